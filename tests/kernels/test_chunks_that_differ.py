"""What was learned from one chunk must not be believed of the next: paths, layouts and cuts change with the data."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import nn

from tangentlens.capture.reader import Trace
from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, entk_product
from tests.reference import tangent
from tests.zoo.entry import Written, mlp


def assert_exact(model: nn.Module, inputs: object, others: object = None, **options: object) -> None:
    rows = tangent.jacobian(model, inputs)
    columns = rows if others is None else tangent.jacobian(model, others)
    true = tangent.full_kernel(rows, columns)
    scale = (tangent.full_kernel(rows).norm() * tangent.full_kernel(columns).norm()).sqrt()
    assert (entk_full(model, inputs, others, **options) - true).norm() < 1e-10 * scale
    averaged = tangent.averaged_over_outputs(true)
    assert (entk(model, inputs, others, **options) - averaged).norm() < 1e-10 * scale
    assert (sum(entk_by_layer(model, inputs, others, **options).values()) - averaged).norm() < 1e-10 * scale
    assert (entk_mean_output(model, inputs, others, **options) - true.mean((1, 3))).norm() < 1e-10 * scale
    product = entk_product(model, inputs, others, **options)
    vectors = torch.randn(product.shape[1], 2, dtype=torch.float64)
    for _ in range(2):  # the second time gradients may be held
        found = product @ vectors
        assert (found - true.flatten(2, 3).flatten(0, 1) @ vectors).norm() < 1e-10 * scale * vectors.norm()


def ragged_model() -> nn.Module:
    def forward(m, x, valid):
        owner = torch.arange(len(x))[:, None].expand_as(valid)[valid]
        rows = m.encode(x[valid])
        sums = rows.new_zeros(len(x), rows.shape[1]).index_add(0, owner, rows)
        return m.head(sums.tanh())

    return Written(forward, encode=mlp(2, 4, 4), head=nn.Linear(4, 2)).double()


@pytest.mark.parametrize("counts", [[2, 2, 1, 3, 3, 1], [1, 3, 2, 2, 4, 0], [4, 0, 0, 4, 2, 2], [0, 4, 2, 2, 1, 3]])
def test_ragged_rows_of_equal_number_but_other_owners_are_told_apart(counts):
    """Each chunk of two has four rows in all: a layout kept from the first would fit the shapes of the others."""
    valid = torch.arange(4) < torch.tensor(counts)[:, None]
    inputs = torch.randn(6, 4, 2, dtype=torch.float64), valid
    assert_exact(ragged_model(), inputs, chunk=2)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_tokens_routed_to_experts_are_told_apart_in_every_chunk(chunk):
    def forward(m, x):
        tokens = x.flatten(0, 1)
        weights, chosen = m.router(tokens).softmax(-1).max(-1)
        out = torch.zeros_like(tokens)
        for e, expert in enumerate(m.experts):
            (row,) = torch.where(chosen == e)
            out = out.index_add(0, row, expert(tokens[row]) * weights[row, None])
        return m.head(out.view_as(x).mean(1))

    experts = nn.ModuleList([mlp(3, 4, 3) for _ in range(2)])
    model = Written(forward, router=nn.Linear(3, 2), experts=experts, head=nn.Linear(3, 2)).double()
    assert_exact(model, torch.randn(14, 2, 3, dtype=torch.float64), chunk=chunk)


def test_positions_gathered_by_the_data_are_told_apart_in_every_chunk():
    """Rows are sorted by a value across the whole batch: the same shapes, another order in every chunk."""

    def forward(m, x):
        rows = x.flatten(0, 1)
        order = rows[:, 0].argsort()
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        return m.b(torch.tanh(m.a(rows[order])))[back].view(len(x), -1, 2).sum(1)

    model = Written(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2)).double()
    inputs = torch.randn(12, 2, 3, dtype=torch.float64)
    inputs[:2, :, 0] = torch.tensor([[0.0, 1.0], [2.0, 3.0]])  # the first chunk happens to be in order
    assert_exact(model, inputs, chunk=2)


def two_layers(between):
    """Whatever happens to the rows before two maps is undone behind them."""

    def forward(m, x, *more):
        rows, back = between(x, *more)
        return back(m.b(m.a(rows).tanh()))

    return Written(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2)).double()


def sliced_to_length(x, lengths):
    sizes = lengths.tolist()
    return torch.cat([row[:size] for row, size in zip(x, sizes)]), lambda out: torch.stack(
        [part.mean(0) for part in out.split(sizes)]
    )


def test_sequences_of_other_lengths_but_the_same_number_of_rows_are_told_apart():
    def of_lengths(*lengths):
        return torch.randn(len(lengths), 5, 3, dtype=torch.float64), torch.tensor(lengths)

    assert_exact(two_layers(sliced_to_length), of_lengths(2, 2), of_lengths(3, 1))


def in_order_of_sums(x):
    order = x.sum(1).argsort().tolist()
    return torch.stack([x[i] for i in order]), lambda out: torch.stack([out[order.index(i)] for i in range(len(x))])


def rolled(x):
    shift = int(x[0].sum() > x[-1].sum())
    return x.roll(shift, 0), lambda out: out.roll(-shift, 0)


class Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, order):
        ctx.save_for_backward(order)
        return rows[order]

    @staticmethod
    def backward(ctx, gradient):
        (order,) = ctx.saved_tensors
        return torch.empty_like(gradient).index_copy_(0, order, gradient), None


def permuted_by_a_function(x):
    order = x.sum(1).argsort()
    return Permuted.apply(x, order), lambda out: Permuted.apply(out, order.argsort())


@pytest.mark.parametrize("between", [in_order_of_sums, rolled, permuted_by_a_function])
def test_rows_moved_without_an_index_in_the_graph_are_told_apart_in_every_chunk(between):
    """The first chunk happens to be in order: what is learned there fits the shapes of all others."""
    inputs = torch.randn(6, 3, dtype=torch.float64)
    inputs = inputs[inputs.sum(1).argsort()][[0, 1, 3, 2, 5, 4]]
    assert_exact(two_layers(between), inputs, chunk=2)


def test_a_layout_is_found_once_for_chunks_whose_rows_stay_where_they_are():
    """Two backward passes for every chunk are saved by it."""
    looked, found = [], Trace.find_layouts
    with mock.patch.object(Trace, "find_layouts", lambda trace: looked.append(1) or found(trace)):
        entk(mlp(3, 4, 2), torch.randn(30, 3), chunk=3)
    assert len(looked) == 1


def branching_model(**parts: nn.Module | torch.Tensor) -> nn.Module:
    """Positive and negative examples take different paths through the same or other parameters."""

    def forward(m, x):
        return torch.stack([m.positive(m, row) if row[0] > 0 else m.negative(m, row) for row in x])

    positive, negative = parts.pop("positive"), parts.pop("negative")
    model = Written(forward, **parts).double()
    model.positive, model.negative = positive, negative
    return model


def positive_and_negative(count: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randn(count, 3, dtype=torch.float64), torch.randn(count, 3, dtype=torch.float64)
    x[:, 0], y[:, 0] = x[:, 0].abs(), -y[:, 0].abs()
    return x, y


def whole_weight(m, row):
    return (m.weight @ row).tanh()


def weight_in_halves(m, row):
    return torch.cat([(m.weight[:2] @ row).sin(), (m.weight[2:] @ row).tanh()])


def weight_in_other_halves(m, row):
    return torch.cat([(m.weight[:1] @ row).sin(), (m.weight[1:] @ row).tanh()])


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        (whole_weight, weight_in_halves),
        (weight_in_halves, whole_weight),
        (weight_in_halves, weight_in_other_halves),
        (whole_weight, lambda m, row: ((m.weight @ m.weight.T) @ (m.weight @ row)).tanh()),
        (weight_in_halves, lambda m, row: (m.weight.exp() @ row).tanh()),
        (lambda m, row: (row @ m.weight.T).tanh(), lambda m, row: (m.weight * row).sum(1)),
    ],
    ids=["whole-halves", "halves-whole", "halves-others", "whole-squared", "halves-exp", "product-elementwise"],
)
@pytest.mark.parametrize("chunk", [None, 1, 2])
def test_a_parameter_read_in_other_cuts_on_the_other_side_is_put_together(positive, negative, chunk):
    model = branching_model(positive=positive, negative=negative, weight=torch.randn(4, 3))
    x, y = positive_and_negative()
    assert_exact(model, x, y, chunk=chunk)
    assert_exact(model, y, x, chunk=chunk)
    assert_exact(model, torch.cat([x, y]), chunk=chunk)
    assert_exact(model, torch.stack([x, y], 1).flatten(0, 1), chunk=chunk)


@pytest.mark.parametrize("chunk", [None, 1])
def test_examples_that_share_no_parameter_have_no_kernel_between_them(chunk):
    parts = {"left": nn.Linear(3, 2), "right": nn.Linear(3, 2)}
    model = branching_model(positive=lambda m, row: m.left(row), negative=lambda m, row: m.right(row), **parts)
    x, y = positive_and_negative()
    assert entk_full(model, x, y, chunk=chunk).abs().max() == 0
    assert (entk_product(model, x, y, chunk=chunk) @ torch.ones(6, 1, dtype=torch.float64)).abs().max() == 0
    assert_exact(model, torch.cat([x, y]), chunk=chunk)


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_a_parameter_that_only_late_examples_use_is_not_missed(chunk):
    parts = {"common": nn.Linear(3, 2), "rare": torch.randn(2)}
    model = branching_model(
        positive=lambda m, row: m.common(row), negative=lambda m, row: m.common(row).tanh() * m.rare, **parts
    )
    x, y = positive_and_negative(5)
    found = entk_by_layer(model, torch.cat([x, y]), by="parameter", chunk=chunk)
    assert found["rare"][:5].abs().max() == 0 and (found["rare"][5:, 5:].diagonal() > 0).all()
    assert_exact(model, torch.cat([x, y]), chunk=chunk)


@pytest.mark.parametrize("chunk", [1, 2])
def test_chunks_of_other_lengths_of_the_same_graph_are_exact(chunk):
    """The last chunk is shorter; one example alone shows no layout."""
    model = Written(
        lambda m, x: m.b(torch.tanh(m.a(x.transpose(0, 1)))).cumsum(0).tanh().sum(0),
        a=nn.Linear(3, 4),
        b=nn.Linear(4, 2),
    ).double()
    assert_exact(model, torch.randn(5, 2, 3, dtype=torch.float64), chunk=chunk)
    assert_exact(model, torch.randn(1, 1, 3, dtype=torch.float64))
