"""What holds for every kernel whatever the model, sizes and settings: found by hypothesis."""

from __future__ import annotations

import hypothesis.strategies as st
import torch
from hypothesis import given, settings
from torch import nn

from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, entk_product
from tests.reference import tangent
from tests.reference.tangent import examples
from tests.zoo import BY_NAME
from tests.zoo.entry import mlp
from tests.zoo.known import known_jacobian, known_mean_output_jacobian, measured, off

SOME = [
    "mlp_of_equal_sizes",
    "cnn_with_groups_and_dilation",
    "merged_rows_with_positions_first",
    "transformer_encoder",
    "gru",
    "siamese",
    "tied_embedding_and_head",
    "class_token",
    "mixture_of_experts",
    "ragged_sets",
    "loop_until_small",
    "gradient_inside_forward",
    "einsum_of_three_operands",
]
some_model = st.sampled_from(SOME)
few = settings(max_examples=20, deadline=None, derandomize=True)


@few
@given(name=some_model, chunk=st.integers(1, 6))
def test_the_chunk_size_changes_nothing(name, chunk):
    model, inputs, options = measured(name, torch.float64)
    known = known_jacobian(name)
    assert off(entk_full(model, inputs, chunk=chunk, **options), tangent.full_kernel(known)) < 1e-10
    assert off(entk(model, inputs, chunk=chunk, **options), tangent.kernel(known)) < 1e-10
    assert (
        off(entk_mean_output(model, inputs, chunk=chunk, **options), tangent.kernel(known_mean_output_jacobian(name)))
        < 1e-10
    )
    product = entk_product(model, inputs, chunk=chunk, **options)
    vectors = torch.randn(product.shape[1], 2, dtype=torch.float64)
    assert off(product @ vectors, tangent.product(known, vectors)) < 1e-10


@few
@given(name=some_model, chunk=st.integers(1, 3), data=st.data())
def test_chunks_of_rows_and_columns_meet_in_cross_kernels(name, chunk, data):
    model, inputs, options = measured(name, torch.float64)
    known = known_jacobian(name)
    count = len(next(iter(known.values())))
    sides = [data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count + 2)) for _ in range(2)]
    found = entk_full(model, *(examples(inputs, side) for side in sides), chunk=chunk, **options)
    true = tangent.full_kernel(*(tangent.at(known, side) for side in sides))
    assert (found - true).norm() < 1e-10 * tangent.full_kernel(known).norm()


@few
@given(name=some_model, data=st.data())
def test_the_order_of_the_examples_is_the_order_of_the_rows(name, data):
    model, inputs, options = measured(name, torch.float64)
    known = tangent.full_kernel(known_jacobian(name))
    order = data.draw(st.permutations(range(len(known))))
    found = entk_full(model, examples(inputs, order), **options)
    assert off(found, known[order][:, :, order]) < 1e-10


@few
@given(name=some_model, data=st.data())
def test_a_batch_of_one_is_one_entry_of_the_kernel(name, data):
    model, inputs, options = measured(name, torch.float64)
    known = known_jacobian(name)
    n = data.draw(st.integers(0, len(next(iter(known.values()))) - 1))
    found = entk_full(model, examples(inputs, [n]), **options)
    assert off(found, tangent.full_kernel(tangent.at(known, [n]))) < 1e-10
    assert off(entk(model, examples(inputs, [n]), **options), tangent.kernel(tangent.at(known, [n]))) < 1e-10


@few
@given(name=some_model, data=st.data())
def test_one_output_is_its_block_of_the_full_kernel(name, data):
    model, inputs, _ = measured(name, torch.float64)
    chosen = BY_NAME[name].outputs or (lambda raw: raw)
    known = tangent.full_kernel(known_jacobian(name))
    c = data.draw(st.integers(0, known.shape[1] - 1))
    block = known[:, c, :, c]
    # a single output is at once the mean over outputs and the mean output
    for outputs in (lambda raw: chosen(raw).flatten(1)[:, c], lambda raw: chosen(raw).flatten(1)[:, c : c + 1]):
        scale = known.norm()
        assert (entk(model, inputs, outputs=outputs) - block).norm() < 1e-10 * scale
        assert (entk_mean_output(model, inputs, outputs=outputs) - block).norm() < 1e-10 * scale
        assert (entk_full(model, inputs, outputs=outputs)[:, 0, :, 0] - block).norm() < 1e-10 * scale


@few
@given(name=some_model, data=st.data())
def test_frozen_parameters_leave_their_share_out(name, data):
    model, inputs, options = measured(name, torch.float64)
    trainable = list(tangent.trainable(model))
    frozen = data.draw(st.sets(st.sampled_from(trainable), max_size=len(trainable) - 1))
    for key in frozen:
        model.get_parameter(key).requires_grad_(False)
    known = {key: value for key, value in known_jacobian(name).items() if key not in frozen}
    whole = tangent.full_kernel(known_jacobian(name)).norm()
    found = entk_full(model, inputs, **options)
    assert (found - tangent.full_kernel(known)).norm() < 1e-10 * whole
    assert set(entk_by_layer(model, inputs, by="parameter", **options)) == set(known)


@few
@given(name=some_model, data=st.data())
def test_globs_that_partition_the_model_sum_to_the_whole(name, data):
    model, inputs, options = measured(name, torch.float64)
    trainable = list(tangent.trainable(model))
    part_of = [data.draw(st.integers(0, 2)) for _ in trainable]
    parts = [[key for key, part in zip(trainable, part_of, strict=True) if part == p] for p in range(3)]
    found = [entk_full(model, inputs, parameters=part, **options) for part in parts if part]
    assert off(sum(found), tangent.full_kernel(known_jacobian(name))) < 1e-10


def test_a_glob_and_a_list_of_globs_choose_by_name():
    model, inputs, options = measured("gru", torch.float64)
    known = known_jacobian("gru")
    body = {key: value for key, value in known.items() if key.startswith("body.")}
    biases = {key: value for key, value in known.items() if "bias" in key}
    assert off(entk(model, inputs, parameters="body.*", **options), tangent.kernel(body)) < 1e-10
    assert off(entk(model, inputs, parameters=["*.bias", "*bias*"], **options), tangent.kernel(biases)) < 1e-10
    chosen = entk_by_layer(model, inputs, parameters="head.*", by="parameter", **options)
    assert set(chosen) == {"head.weight", "head.bias"}
    everything = entk(model, inputs, parameters="*", **options)
    assert off(everything, tangent.kernel(known)) < 1e-10


@few
@given(widths=st.lists(st.integers(1, 6), min_size=2, max_size=4), count=st.integers(1, 7), seed=st.integers(0, 99))
def test_kernels_are_symmetric_and_positive_semidefinite(widths, count, seed):
    torch.manual_seed(seed)
    model, inputs = mlp(*widths).double(), torch.randn(count, widths[0], dtype=torch.float64)
    full = entk_full(model, inputs)
    flat = full.flatten(2, 3).flatten(0, 1)
    for kernel in (flat, entk(model, inputs), entk_mean_output(model, inputs)):
        assert torch.equal(kernel, kernel.T), "exactly symmetric, as eigensolvers read one triangle alone"
        assert torch.linalg.eigvalsh(kernel)[0] > -1e-12 * kernel.diagonal().sum()
    torch.testing.assert_close(full, tangent.full_kernel(tangent.jacobian(model, inputs)), rtol=1e-10, atol=1e-12)


@few
@given(
    shape=st.sampled_from([(3,), (2, 3), (2, 2, 3)]),
    layout=st.sampled_from(["kept", "merged", "swapped"]),
    count=st.integers(1, 4),
    hidden=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_linear_layers_are_exact_in_whatever_layout_their_rows_lie(shape, layout, count, hidden, seed):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(shape[-1], hidden), nn.Linear(hidden, 2)

        def forward(self, x):
            n = len(x)
            x = x.reshape(n, -1, shape[-1])
            if layout == "merged":
                return self.b(torch.tanh(self.a(x.flatten(0, 1)))).view(n, -1, 2).cumsum(1).sin().sum(1)
            if layout == "swapped":
                return self.b(torch.tanh(self.a(x.transpose(0, 1)))).cumsum(0).sin().sum(0)
            return self.b(torch.tanh(self.a(x))).cumsum(1).sin().sum(1)

    torch.manual_seed(seed)
    model, inputs = Rows().double(), torch.randn(count, *shape, dtype=torch.float64)
    assert off(entk_full(model, inputs), tangent.full_kernel(tangent.jacobian(model, inputs))) < 1e-10


@few
@given(
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
    mode=st.sampled_from(["zeros", "circular"]),
    seed=st.integers(0, 99),
)
def test_convolutions_are_exact_at_every_setting(kernel, stride, padding, dilation, groups, transposed, mode, seed):
    torch.manual_seed(seed)
    kind, mode = (nn.ConvTranspose2d, "zeros") if transposed else (nn.Conv2d, mode)
    layer = kind(2, 4, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, padding_mode=mode)
    model = nn.Sequential(layer, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).double()
    inputs = torch.randn(3, 2, 5, 6, dtype=torch.float64)
    if min(model[0](inputs).shape) == 0:
        return
    assert off(entk_full(model, inputs), tangent.full_kernel(tangent.jacobian(model, inputs))) < 1e-10


@few
@given(name=some_model, columns=st.integers(0, 3))
def test_products_take_vectors_and_blocks_of_any_width(name, columns):
    model, inputs, options = measured(name, torch.float64)
    product = entk_product(model, inputs, **options)
    vectors = (
        torch.randn(product.shape[1], columns, dtype=torch.float64)
        if columns
        else torch.randn(product.shape[1], dtype=torch.float64)
    )
    found = product @ vectors
    assert found.shape == vectors.shape
    true = tangent.product(known_jacobian(name), vectors if columns else vectors[:, None])
    assert off(found if columns else found[:, None], true) < 1e-10
