"""Exact spectra: closed forms, what each mode carries with it, and kernels that no eigensolver likes."""

from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tangentlens.kernels import entk_full, spectra
from tangentlens.kernels.spectra import extended_modes, spectrum


def random_gram(rows: int, rank: int, seed: int) -> torch.Tensor:
    factors = torch.randn(rows, rank, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return factors @ factors.T


def test_a_circulant_kernel_has_the_fourier_transform_of_its_row_as_eigenvalues():
    row = torch.tensor([4.0, 1.0, 0.5, 0.25, 0.5, 1.0], dtype=torch.float64)
    kernel = torch.stack([row.roll(shift) for shift in range(6)])
    expected = torch.fft.fft(row).real.sort(descending=True).values
    torch.testing.assert_close(spectrum(kernel).eigenvalues, expected)


def test_a_rank_one_kernel_has_one_mode_along_its_vector():
    vector = torch.tensor([3.0, 0.0, -4.0], dtype=torch.float64)
    modes = spectrum(torch.outer(vector, vector), modes=1)
    assert modes.eigenvalues.item() == pytest.approx(25.0)
    assert torch.abs(modes.eigenvectors[:, 0] @ vector / 5).item() == pytest.approx(1.0)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 20), rank=st.integers(1, 20), seed=st.integers(0, 10_000))
def test_modes_are_orthonormal_sorted_and_rebuild_the_kernel(rows, rank, seed):
    kernel = random_gram(rows, rank, seed)
    modes = spectrum(kernel)
    vectors = modes.eigenvectors
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(rows, dtype=torch.float64))
    torch.testing.assert_close(vectors * modes.eigenvalues @ vectors.T, kernel)
    assert bool((modes.eigenvalues.diff() <= 0).all()) and bool(modes.converged.all())
    assert float(modes.residuals.max()) < 1e-13


def test_a_kernel_over_outputs_is_read_with_row_example_times_outputs_plus_output():
    full = random_gram(12, 30, 0)
    modes = spectrum(full.reshape(4, 3, 4, 3))
    torch.testing.assert_close(full @ modes.eigenvectors, modes.eigenvectors * modes.eigenvalues)


def test_a_float32_kernel_is_decomposed_in_float64():
    kernel = random_gram(8, 8, 1).float()
    modes = spectrum(kernel)
    assert modes.eigenvalues.dtype == torch.float64
    torch.testing.assert_close(modes.eigenvalues, torch.linalg.eigvalsh(kernel.double()).flip(0))


def test_a_low_rank_float32_kernel_with_repeated_eigenvalues_has_a_spectrum():
    repeated = torch.kron(random_gram(60, 3, 2), torch.eye(10, dtype=torch.float64)).float()
    modes = spectrum(repeated, modes=40)
    assert torch.isfinite(modes.eigenvectors).all() and bool(modes.converged.all())
    assert float(modes.eigenvalues[30]) < 1e-5 * float(modes.eigenvalues[0])


def test_when_one_driver_fails_another_is_tried_and_named(monkeypatch):
    def failing(_: torch.Tensor) -> None:
        raise torch.linalg.LinAlgError("eigh: failed to converge")

    kernel = random_gram(9, 4, 3)
    expected = torch.linalg.eigvalsh(kernel).flip(0)
    monkeypatch.setattr(spectra.torch.linalg, "eigh", failing)
    modes = spectrum(kernel)
    torch.testing.assert_close(modes.eigenvalues, expected)
    assert "scipy" in modes.method and bool(modes.converged.all())


def test_asking_for_some_modes_gives_the_largest_ones():
    kernel = random_gram(10, 10, 4)
    torch.testing.assert_close(spectrum(kernel, 3).eigenvalues, spectrum(kernel).eigenvalues[:3])
    with pytest.raises(ValueError, match="1 to 10 modes"):
        spectrum(kernel, 11)


@pytest.mark.parametrize("shape", [(3, 4), (3,), (2, 3, 3, 2)])
def test_a_kernel_that_is_not_square_is_refused_with_its_shape(shape):
    with pytest.raises(ValueError, match="square"):  # the tests check types before the function can
        inspect.unwrap(spectra.symmetric_matrix)(torch.ones(shape))


def test_a_kernel_that_is_not_finite_is_refused_with_the_place():
    kernel = torch.eye(3)
    kernel[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"nan at \[1, 2\]"):
        spectrum(kernel)


def test_a_kernel_that_is_not_symmetric_is_refused():
    with pytest.raises(ValueError, match="symmetric"):
        spectrum(torch.tensor([[1.0, 0.5], [0.0, 1.0]]))


def test_a_mode_that_did_not_converge_shows_in_the_text_of_its_spectrum():
    modes = spectrum(random_gram(4, 4, 5))
    worse = spectra.Spectrum(
        modes.eigenvalues, modes.eigenvectors, modes.residuals + 1, modes.residuals > 1, "krylov", 7
    )
    assert "4 NOT CONVERGED" in repr(worse) and "seed 7" in repr(worse) and "NOT CONVERGED" in worse._repr_html_()
    assert "all converged" in repr(modes)


def test_modes_of_a_full_kernel_are_extended_by_the_full_cross_kernel():
    model = torch.nn.Linear(3, 2).double()
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    modes = spectrum(entk_full(model, x), 4)
    extended = extended_modes(modes, entk_full(model, y, x))
    flat = entk_full(model, y, x).reshape(8, 10)
    torch.testing.assert_close(extended, extended_modes(modes, flat))
    torch.testing.assert_close(extended_modes(modes, entk_full(model, x)), modes.eigenvectors)


def test_modes_extended_to_their_own_rows_are_themselves():
    kernel = random_gram(12, 5, 6)
    modes = spectrum(kernel, 5)
    torch.testing.assert_close(extended_modes(modes, kernel), modes.eigenvectors)


def test_modes_of_a_linear_kernel_extend_to_linear_functions():
    generator = torch.Generator().manual_seed(7)
    inputs, others = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (20, 6))
    modes = spectrum(inputs @ inputs.T, 3)
    weights = torch.linalg.lstsq(inputs, modes.eigenvectors).solution
    torch.testing.assert_close(extended_modes(modes, others @ inputs.T), others @ weights)


def test_a_mode_without_an_eigenvalue_has_no_extension():
    kernel = random_gram(6, 2, 8)
    extended = extended_modes(spectrum(kernel), kernel)
    assert bool(torch.isfinite(extended[:, :2]).all()) and bool(torch.isnan(extended[:, 2:]).all())


def test_an_extension_asks_for_the_spectrums_own_inputs_as_columns():
    modes = spectrum(random_gram(6, 6, 9))
    with pytest.raises(ValueError, match="6 rows"):
        extended_modes(modes, torch.ones(6, 5))
