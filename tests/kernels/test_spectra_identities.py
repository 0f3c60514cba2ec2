"""What must be equal by algebra: layers and whole, reductions and shortcuts, read-outs and hidden states."""

from __future__ import annotations

import inspect

import pytest
import torch

from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, reductions, spectrum
from tangentlens.kernels.readout_fold import fold_outputs, folded_kernel, readout_root, unfolded_modes
from tangentlens.kernels.reductions import all_pairs_mean, flattened_class_major, per_class, trace_mean

EXAMPLES, HIDDEN, OUTPUTS = 7, 5, 11


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = (torch.nn.Linear(4, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, OUTPUTS, bias=False))
    return torch.nn.Sequential(*layers).double()


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(EXAMPLES, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def full(model, inputs) -> torch.Tensor:
    return entk_full(model, inputs).detach()


@pytest.mark.parametrize("by", ["module", "parameter"])
def test_layers_sum_to_the_whole(model, inputs, by):
    torch.testing.assert_close(sum(entk_by_layer(model, inputs, by=by).values()), entk(model, inputs))


def test_the_trace_mean_is_the_kernel_averaged_over_outputs(model, inputs, full):
    torch.testing.assert_close(trace_mean(full), entk(model, inputs))
    each = torch.stack([per_class(full, output) for output in range(OUTPUTS)])
    torch.testing.assert_close(trace_mean(full), each.mean(0))


def test_the_all_pairs_mean_is_the_gram_of_the_mean_outputs_gradient(model, inputs, full):
    parameters = list(model.parameters())
    rows = []
    for x in inputs:
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(model(x[None]).mean(), parameters)]))
    gradients = torch.stack(rows)
    torch.testing.assert_close(all_pairs_mean(full), gradients @ gradients.T)
    torch.testing.assert_close(entk_mean_output(model, inputs), gradients @ gradients.T)


def test_the_all_pairs_mean_does_not_see_what_leaves_the_mean_output_alone(full):
    centre = torch.eye(OUTPUTS, dtype=torch.float64) - 1 / OUTPUTS
    blind = torch.einsum("cd,ndmf,ef->ncme", centre, full, centre)
    assert float(all_pairs_mean(blind).abs().max()) < 1e-12
    assert float(trace_mean(blind).abs().max()) > 0.1


def test_flattening_by_class_permutes_rows_and_keeps_the_spectrum(full):
    by_class = flattened_class_major(full)
    assert by_class[3 * EXAMPLES + 2, 4 * EXAMPLES + 5] == full[2, 3, 5, 4]
    torch.testing.assert_close(spectrum(by_class).eigenvalues, spectrum(full).eigenvalues)


def test_a_cross_block_of_two_outputs_is_the_transpose_of_the_other(full):
    torch.testing.assert_close(per_class(full, 1, 4), per_class(full, 4, 1).T)


def test_reductions_refuse_a_kernel_that_is_reduced_already(full):
    with pytest.raises(ValueError, match="entk_full"):  # the tests check types before the function can
        inspect.unwrap(reductions._checked)(trace_mean(full))
    with pytest.raises(ValueError, match="outputs 0 to 10"):
        per_class(full, OUTPUTS)


def test_the_kernel_of_a_read_out_is_the_gram_of_the_hidden_states(model, inputs):
    hidden = model[:2](inputs).detach()
    readout = entk_full(model, inputs, parameters="2.weight")
    torch.testing.assert_close(trace_mean(readout), hidden @ hidden.T)
    torch.testing.assert_close(all_pairs_mean(readout), hidden @ hidden.T / OUTPUTS)


def test_the_folded_kernel_has_the_spectrum_of_the_logit_kernel(model, inputs):
    """A tiny vocabulary: the read-out is held fixed, the kernel is that of the first layer."""
    readout = model[2].weight.detach()
    logits = spectrum(entk_full(model, inputs, parameters="0.*"))
    hidden = entk_full(model[:2], inputs)
    folded = spectrum(folded_kernel(hidden, readout))
    count = EXAMPLES * HIDDEN
    torch.testing.assert_close(folded.eigenvalues, logits.eigenvalues[:count], rtol=0, atol=1e-12)
    through_outputs = entk_full(model[:2], inputs, outputs=fold_outputs(readout))
    torch.testing.assert_close(through_outputs, folded_kernel(hidden, readout))


def test_unfolded_modes_are_those_of_the_logit_kernel(model, inputs):
    readout = model[2].weight.detach()
    logit_kernel = entk_full(model, inputs, parameters="0.*").detach()
    logit_kernel = logit_kernel.reshape(EXAMPLES * OUTPUTS, EXAMPLES * OUTPUTS)
    folded = spectrum(folded_kernel(entk_full(model[:2], inputs).detach(), readout), 10)
    vectors = unfolded_modes(folded.eigenvectors, readout)
    torch.testing.assert_close(logit_kernel @ vectors, vectors * folded.eigenvalues)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(10, dtype=torch.float64))


def test_the_root_of_a_read_out_squares_to_its_gram_whatever_its_rank():
    readout = torch.randn(20, 2, dtype=torch.float64) @ torch.randn(2, 6, dtype=torch.float64)
    root = readout_root(readout)
    torch.testing.assert_close(root @ root, readout.T @ readout)


def test_unfolding_asks_for_rows_that_fit_the_read_out():
    with pytest.raises(ValueError, match="multiple of 6"):
        unfolded_modes(torch.ones(7, 1), torch.ones(20, 6))
