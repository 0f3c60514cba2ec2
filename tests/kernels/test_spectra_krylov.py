"""Modes from products alone: the same ones, repeated eigenvalues included, and honest when it runs out of rounds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tangentlens.kernels.krylov import krylov_spectrum


def with_eigenvalues(values: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(len(values), len(values), generator=generator, dtype=torch.float64)).Q
    return basis * values @ basis.T


@settings(max_examples=15, deadline=None)
@given(decay=st.floats(0.3, 3.0), modes=st.integers(1, 12), seed=st.integers(0, 1000))
def test_modes_from_products_are_the_head_of_the_exact_spectrum(decay, modes, seed):
    values = torch.arange(1, 61, dtype=torch.float64) ** -decay
    kernel = with_eigenvalues(values, seed)
    found = krylov_spectrum(lambda block: kernel @ block, 60, modes, seed=seed)
    assert bool(found.converged.all()) and found.seed == seed
    torch.testing.assert_close(found.eigenvalues, values[:modes], rtol=0, atol=1e-10)
    torch.testing.assert_close(kernel @ found.eigenvectors, found.eigenvectors * found.eigenvalues, rtol=0, atol=1e-9)


def test_every_copy_of_a_repeated_eigenvalue_is_found():
    """A read-out kernel repeats each eigenvalue once per output; single-vector Lanczos skips copies without a sign of
    it."""
    single = torch.tensor([9.0, 4.0, 3.5, 1.0] + [0.1] * 16, dtype=torch.float64)
    kernel = torch.kron(with_eigenvalues(single), torch.eye(15, dtype=torch.float64))
    found = krylov_spectrum(lambda block: kernel @ block, 300, 40)
    torch.testing.assert_close(found.eigenvalues, single.repeat_interleave(15)[:40])


@pytest.mark.parametrize("block", [4, 10])
@pytest.mark.parametrize("seed", range(5))
def test_a_narrow_block_finds_copies_beyond_its_width_by_a_second_look(block, seed):
    """Fifteen copies each: one random block of ten holds ten of them, and nothing in its residuals says so."""
    single = torch.tensor([9.0, 4.0, 3.5, 1.0] + [0.1] * 16, dtype=torch.float64)
    kernel = torch.kron(with_eigenvalues(single, seed), torch.eye(15, dtype=torch.float64))
    found = krylov_spectrum(lambda vectors: kernel @ vectors, 300, 40, seed=seed, block=block)
    torch.testing.assert_close(found.eigenvalues, single.repeat_interleave(15)[:40])
    assert bool(found.converged.all())


@settings(max_examples=15, deadline=None)
@given(decay=st.floats(0.3, 3.0), block=st.integers(1, 12), seed=st.integers(0, 1000))
def test_a_block_of_any_width_finds_the_head_of_the_spectrum(decay, block, seed):
    values = torch.arange(1, 121, dtype=torch.float64) ** -decay
    kernel = with_eigenvalues(values, seed)
    found = krylov_spectrum(lambda vectors: kernel @ vectors, 120, 12, seed=seed, block=block)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.eigenvalues, values[:12], rtol=0, atol=1e-10)


def test_a_narrow_block_takes_fewer_vectors():
    """Where many modes lie in a flat spectrum: the reason to have one."""
    kernel = with_eigenvalues(torch.linspace(1, 0.2, 600, dtype=torch.float64))
    counts = []
    for block in (48, 8):
        taken = []

        def product(vectors, taken=taken):
            taken.append(vectors.shape[1])
            return kernel @ vectors

        found = krylov_spectrum(product, 600, 40, block=block, tol=1e-6)
        assert bool(found.converged.all())
        counts.append(sum(taken))
    assert counts[1] < counts[0]


def test_the_same_seed_gives_the_same_modes():
    kernel = with_eigenvalues(torch.linspace(1, 0, 50, dtype=torch.float64) ** 4)
    first, second = (krylov_spectrum(lambda block: kernel @ block, 50, 4, seed=3) for _ in range(2))
    assert torch.equal(first.eigenvectors, second.eigenvectors)


def test_modes_that_did_not_converge_are_marked_and_their_residuals_are_true():
    kernel = with_eigenvalues(torch.linspace(1, 0.9, 400, dtype=torch.float64))
    found = krylov_spectrum(lambda block: kernel @ block, 400, 5, rounds=2)
    true = (kernel @ found.eigenvectors - found.eigenvectors * found.eigenvalues).norm(dim=0) / found.eigenvalues[0]
    assert not bool(found.converged.any())
    torch.testing.assert_close(found.residuals, true)


@pytest.mark.parametrize("tol", [3e-3, 1e-6])
def test_a_mode_counts_as_converged_only_within_the_tolerance_asked_for(tol):
    kernel = with_eigenvalues(torch.arange(1, 301, dtype=torch.float64) ** -0.5)
    for seed in range(5):
        found = krylov_spectrum(lambda block: kernel @ block, 300, 5, tol=tol, seed=seed)
        assert found.converged.tolist() == (found.residuals <= tol).tolist() and bool(found.converged.all())


def test_a_kernel_of_low_rank_ends_with_zeros():
    kernel = with_eigenvalues(torch.tensor([2.0, 1.0] + [0.0] * 38, dtype=torch.float64))
    found = krylov_spectrum(lambda block: kernel @ block, 40, 5)
    torch.testing.assert_close(found.eigenvalues, torch.tensor([2.0, 1, 0, 0, 0], dtype=torch.float64))
    assert bool(found.converged.all())


def test_the_zero_kernel_is_no_trouble():
    found = krylov_spectrum(torch.zeros_like, 30, 3)
    assert float(found.eigenvalues.abs().max()) == 0.0 and bool(found.converged.all())


def test_more_modes_than_rows_are_refused():
    with pytest.raises(ValueError, match="modes <= basis"):
        krylov_spectrum(torch.clone, 5, 6)
