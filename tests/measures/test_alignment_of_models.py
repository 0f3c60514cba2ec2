"""The ansatz from one capture of a real model, against gradients by the layer's input, one backward at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tangentlens.kernels import layer_moments
from tangentlens.measures.alignment import ansatz_correlation
from tangentlens.measures.alignment_readings import head_rows, packed_rows, rows_of
from tests.reference.beaglehole2024 import correlation_by_entries, gradient_outer_product


def relative(ours: torch.Tensor, true: torch.Tensor) -> float:
    return ((ours - true).norm() / true.norm()).item()


def test_an_mlps_agop_is_the_outer_product_of_its_input_jacobian() -> None:
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    inputs = torch.randn(11, 6, dtype=torch.float64)
    moments = layer_moments(model, inputs)
    for layer, below, above in (("0", model[:0], model), ("2", model[:2], model[2:])):
        true = gradient_outer_product(above, below(inputs).detach())
        assert relative(moments[layer].agop, true) < 1e-10
        ours = ansatz_correlation(moments[layer].weight, moments[layer].ptk_covariance)
        assert abs(ours - correlation_by_entries(moments[layer].nfm, true, "none")) < 1e-10


def test_a_convolutions_agop_is_the_outer_product_over_its_patches() -> None:
    convolution = nn.Conv2d(2, 4, 3, padding=1).double()
    above = nn.Sequential(nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 4, 2)).double()
    images = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    patches = nn.functional.unfold(images, 3, padding=1).mT  # example position patch

    def from_patches(patch: torch.Tensor) -> torch.Tensor:
        weight = convolution.weight.flatten(1)
        return above((patch @ weight.T + convolution.bias).mT.reshape(1, 4, 4, 4))[0]

    true = torch.zeros(18, 18, dtype=torch.float64)
    for image in patches:  # gradients by every patch, its outer product taken place by place
        jacobian = torch.autograd.functional.jacobian(from_patches, image)
        true += torch.einsum("opi,opj->ij", jacobian, jacobian)
    moments = layer_moments(nn.Sequential(convolution, above), images)["0"]
    assert relative(moments.agop, true) < 1e-10
    assert (
        abs(
            ansatz_correlation(moments.weight, moments.ptk_covariance)
            - correlation_by_entries(moments.nfm, true, "none")
        )
        < 1e-10
    )


class Attention(nn.Module):
    """Two heads of packed self-attention by hand, each projection's input open to perturbation at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Linear(6, 18)
        self.head = nn.Linear(6, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.from_projections(self.packed(tokens))

    def from_projections(self, packed: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (2, 3)).transpose(-3, -2) for part in packed.split(6, dim=-1))
        weights = (query @ key.mT / 3**0.5).softmax(-1)
        mixed = (weights @ value).transpose(-3, -2).flatten(-2)
        return self.head(mixed.mean(-2))


@pytest.mark.parametrize("part", ["query 0", "key 1", "value 0"])
def test_a_heads_agop_is_the_outer_product_of_perturbing_only_what_its_projection_reads(part: str) -> None:
    model = Attention().double()
    tokens = torch.randn(4, 5, 6, dtype=torch.float64)
    rows = head_rows(18, 2)[part]
    true = torch.zeros(6, 6, dtype=torch.float64)
    for example in tokens:

        def with_own_copy(copy: torch.Tensor, example: torch.Tensor = example) -> torch.Tensor:
            packed = model.packed(example).detach()
            own = copy @ model.packed.weight[rows].T + model.packed.bias[rows]
            return model.from_projections(
                torch.cat([packed[:, : rows.start], own, packed[:, rows.stop :]], dim=1)[None]
            )[0]

        jacobian = torch.autograd.functional.jacobian(with_own_copy, example)  # output position input
        true += torch.einsum("opi,opj->ij", jacobian, jacobian)
    moments = layer_moments(model, tokens)["packed"]
    weight, kernel = rows_of(moments.weight, moments.ptk_covariance, rows)
    assert relative(weight.T @ kernel @ weight, true) < 1e-10
    assert abs(ansatz_correlation(weight, kernel) - correlation_by_entries(weight.T @ weight, true, "none")) < 1e-10


def test_the_gates_of_a_recurrent_map_are_layers_of_their_own() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru = nn.GRU(4, 3, batch_first=True)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.gru(tokens)[0][:, -1]

    model, tokens = Last().double(), torch.randn(5, 4, 4, dtype=torch.float64)
    moments = layer_moments(model, tokens)
    name = next(name for name in moments if "weight_ih" in name)
    gates = packed_rows(9, ("reset", "update", "new"))
    whole = moments[name]
    total = torch.zeros(4, 4, dtype=torch.float64)
    for rows in gates.values():
        weight, kernel = rows_of(whole.weight, whole.ptk_covariance, rows)
        assert 0 < ansatz_correlation(weight, kernel) <= 1
        total += weight.T @ weight
    assert torch.allclose(total, whole.nfm)
    # outputs of the last step by the inputs of every step, through W_ih x_t + b alone: its gradients against autograd's
    inputs = tokens.clone().requires_grad_(True)
    gradients = [torch.autograd.grad(column.sum(), inputs, retain_graph=True)[0] for column in model(inputs).T]
    true = sum(torch.einsum("npi,npj->ij", gradient, gradient) for gradient in gradients)
    assert relative(whole.agop, true) < 1e-10
