"""Rotating a near-degenerate block: the span stays, single modes become readable."""

from __future__ import annotations

import pytest
import torch

from tangentlens.measures.families import fourier_features, modular_families
from tangentlens.measures.mode_map import frequency_map
from tangentlens.measures.overlaps import orthonormal_span, subspace_overlap
from tangentlens.measures.rotation import rotated_block, torus_laplacian, two_stage_rotation

P = 7
A, B = torch.cartesian_prod(torch.arange(P), torch.arange(P)).unbind(1)


def mixed(*features: torch.Tensor) -> torch.Tensor:
    """The features' joint span in a random basis, as eigh returns a degenerate block."""
    span = orthonormal_span(torch.cat(features, 1))
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(span.shape[1], span.shape[1], generator=generator, dtype=torch.float64)).Q
    return span @ turn


def test_a_function_of_the_difference_is_flat_along_the_diagonal():
    families = modular_families(A, B, P)
    diagonal, other = torus_laplacian(P, 1, 1), torus_laplacian(P, 1, -1)
    assert float((diagonal @ families["a-b"]).abs().max()) < 1e-12
    assert float((other @ families["a+b"]).abs().max()) < 1e-12
    assert float((torus_laplacian(P, 0, 1) @ families["a"]).abs().max()) < 1e-12


def test_a_torus_laplacian_is_the_sum_of_squared_steps():
    values = torch.randn(P, P, dtype=torch.float64)
    squares = (values - values.roll((1, 0), (0, 1))).square().sum()
    flat = values.flatten()
    assert float(flat @ torus_laplacian(P, 1, 0) @ flat) == pytest.approx(float(squares))


def test_rotation_keeps_the_span_and_sorts_by_roughness():
    block = mixed(fourier_features(A, P))
    found = rotated_block(block, torus_laplacian(P, 1, 0))
    assert subspace_overlap(found.modes, block, centre=False).percent == pytest.approx(100.0)
    assert bool((found.roughness.diff() >= -1e-12).all())
    ring = 2 - 2 * torch.cos(2 * torch.pi * torch.arange(1, 4).double() / P)
    torch.testing.assert_close(found.roughness, ring.repeat_interleave(2))


def test_two_stages_separate_two_families_and_order_each_by_frequency():
    families = modular_families(A, B, P)
    found = two_stage_rotation(mixed(families["a"], families["b"]), torus_laplacian(P, 1, 0), torus_laplacian(P, 0, 1))
    assert found.first_part == P - 1  # found from the gap in roughness, not by halving
    smooth, rest = found.modes[:, : P - 1], found.modes[:, P - 1 :]
    assert subspace_overlap(smooth, families["b"]).percent == pytest.approx(100.0)
    assert subspace_overlap(rest, families["a"]).percent == pytest.approx(100.0)
    assert frequency_map(smooth, families["b"]).argmax(0).tolist() == [0, 0, 1, 1, 2, 2]


def test_the_split_can_be_told_and_must_lie_inside_the_block():
    block = mixed(fourier_features(A, P))
    laplacian = torus_laplacian(P, 1, 0)
    assert two_stage_rotation(block, laplacian, laplacian, split=2).first_part == 2
    with pytest.raises(ValueError, match="after 1 to 6"):
        two_stage_rotation(block, laplacian, laplacian, split=9)
