"""Eigenmodes of a kernel held in memory, each with its residual and how it was obtained."""

from __future__ import annotations

import html
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tangentlens.kernels.stored import StoredKernel

# A dense solver leaves residuals near 1e-15; ten thousand times that already means something went wrong.
DENSE_TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """Eigenmodes of a kernel, largest first: K v = lambda v.

    A row of `eigenvectors` is an example, or row n*C + c for output c of example n. `residuals` are
    ||K v - lambda v|| / ||K|| in the spectral norm, and a mode above the tolerance asked for is marked in `converged`.
    """

    eigenvalues: Float[Tensor, "mode"]
    eigenvectors: Float[Tensor, "row mode"]
    residuals: Float[Tensor, "mode"]
    converged: Bool[Tensor, "mode"]
    method: str
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.eigenvalues)

    def __repr__(self) -> str:
        head = ", ".join(f"{value:.4g}" for value in self.eigenvalues[:5].tolist())
        dots = ", ..." if len(self) > 5 else ""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return (
            f"Spectrum({len(self)} modes of {len(self.eigenvectors)} rows: {head}{dots}; "
            f"largest residual {_largest(self.residuals):.1e}, {self._convergence()}; {self.method}{seed})"
        )

    def _convergence(self) -> str:
        missing = int((~self.converged).sum())
        return "all converged" if missing == 0 else f"{missing} NOT CONVERGED"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{mode}</td><td>{value:.5g}</td><td>{residual:.1e}</td><td>{'' if done else 'open'}</td></tr>"
            for mode, (value, residual, done) in enumerate(
                zip(self.eigenvalues[:10].tolist(), self.residuals[:10].tolist(), self.converged[:10].tolist())
            )
        )
        return (
            f"<p>{html.escape(repr(self))}</p><table><thead><tr><th>mode</th><th>eigenvalue</th><th>residual</th>"
            f"<th></th></tr></thead><tbody>{rows}</tbody></table>"
        )


def spectrum(
    kernel: Float[Tensor, "example example"] | Float[Tensor, "example output example output"] | StoredKernel,
    modes: int | None = None,
) -> Spectrum:
    """Exact eigenmodes of a symmetric kernel, in float64; cost n^3 for n rows, less for a few modes of one on disk.

    A kernel (example, output, example, output) is read with row n*C + c. Nothing is centred, so the first mode of a
    tangent kernel is often the constant one.

    >>> spectrum(torch.diag(torch.tensor([1.0, 3.0, 2.0]))).eigenvalues.tolist()
    [3.0, 2.0, 1.0]
    """
    if isinstance(kernel, StoredKernel):
        from tangentlens.kernels.stored_spectrum import stored_spectrum  # which needs this file

        return stored_spectrum(kernel, modes)
    if not isinstance(kernel, Tensor):
        raise TypeError(
            f"a spectrum needs one kernel, a tensor or a StoredKernel, got {type(kernel).__name__}; "
            "of kernels by layer take one: layers[name]"
        )
    matrix = symmetric_matrix(kernel)
    size = len(matrix)
    wanted = size if modes is None else modes
    if not 1 <= wanted <= size:
        raise ValueError(f"a kernel of {size} rows has 1 to {size} modes, got modes={modes}")
    values, vectors, method = _eigh(matrix)
    # eigh sorts ascending; every figure and measure reads from the largest mode down
    values, vectors = values.flip(0)[:wanted], vectors.flip(1)[:, :wanted]
    residuals = relative_residuals(matrix @ vectors, values, vectors)
    return Spectrum(values, vectors, residuals, residuals <= DENSE_TOLERANCE, method)


def symmetric_matrix(
    kernel: Float[Tensor, "example example"] | Float[Tensor, "example output example output"],
) -> Float[Tensor, "row row"]:
    """The kernel as a float64 matrix, checked to be square, finite and symmetric up to rounding, then symmetrised."""
    if kernel.ndim == 4 and kernel.shape[:2] == kernel.shape[2:]:
        rows = kernel.shape[0] * kernel.shape[1]
        kernel = kernel.reshape(rows, rows)
    if kernel.ndim != 2 or kernel.shape[0] != kernel.shape[1]:
        raise ValueError(
            f"a spectrum needs a square kernel, (n, n) or (n, c, n, c), got {tuple(kernel.shape)}; "
            "pass the same inputs for rows and columns"
        )
    if kernel.device.type == "mps":  # no float64 there
        kernel = kernel.cpu()
    # float64: the tail of a Gram spectrum lies below float32 resolution
    matrix = kernel.detach().to(torch.float64)
    if not torch.isfinite(matrix).all():
        row, column = torch.nonzero(~torch.isfinite(matrix))[0].tolist()
        raise ValueError(f"a spectrum needs a finite kernel, got {matrix[row, column].item()} at [{row}, {column}]")
    largest = matrix.abs().max()
    asymmetry = (matrix - matrix.T).abs().max()
    if (
        asymmetry > 1e-3 * largest
    ):  # float32 kernels differ by about 1e-6, bfloat16 ones by about 1e-2 of an entry's size
        raise ValueError(
            f"a spectrum needs a symmetric kernel, got entries that differ by {asymmetry.item():.2g} "
            f"across the diagonal; pass the same inputs for rows and columns"
        )
    return (matrix + matrix.T) / 2


def _eigh(matrix: Float[Tensor, "row row"]) -> tuple[Float[Tensor, "mode"], Float[Tensor, "row mode"], str]:
    """Ascending eigenpairs. Divide and conquer can fail on repeated eigenvalues (pytorch #105359): try the others."""
    attempts = [("eigh", matrix), ("eigh on the processor", matrix.cpu())]
    for method, placed in attempts[: 1 if matrix.device.type == "cpu" else 2]:
        try:
            values, vectors = torch.linalg.eigh(placed)
        except RuntimeError:  # torch.linalg.LinAlgError is one
            continue
        if torch.isfinite(values).all() and torch.isfinite(vectors).all():
            return values.to(matrix.device), vectors.to(matrix.device), method
    from scipy.linalg import LinAlgError, eigh

    for driver in ("evr", "ev"):
        try:
            values, vectors = map(torch.from_numpy, eigh(matrix.cpu().numpy(), driver=driver))
        except LinAlgError:
            continue
        return (
            values.to(matrix.device),
            vectors.to(matrix.device),
            f"eigh (scipy {driver}, after another driver failed)",
        )
    raise ValueError("no eigensolver converged on this kernel; check it for extreme entries, or rescale the outputs")


def relative_residuals(
    images: Float[Tensor, "row mode"], values: Float[Tensor, "mode"], vectors: Float[Tensor, "row mode"]
) -> Float[Tensor, "mode"]:
    """||K v - lambda v|| / ||K||, from the images K v; ||K|| is the largest eigenvalue in size."""
    scale = values.abs().max()
    distance = (images - vectors * values).norm(dim=0)
    return torch.where(scale > 0, distance / scale, distance)


def extended_modes(
    modes: Spectrum,
    cross_kernel: Float[Tensor, "other row"] | Float[Tensor, "other output example output"],
    *,
    floor: float = 1e-12,
) -> Float[Tensor, "other_row mode"]:
    """Values of the modes on new rows (Nystrom): v(x) = K(x, X) v / lambda. Exact on the spectrum's own rows.

    A cross kernel (other, output, example, output) is read with rows n*C + c on both sides, as `spectrum` reads it. A
    mode whose eigenvalue is below `floor` times the largest has no extension, and is NaN.
    """
    if cross_kernel.ndim == 4:
        cross_kernel = cross_kernel.flatten(2, 3).flatten(0, 1)
    if cross_kernel.ndim != 2 or cross_kernel.shape[1] != len(modes.eigenvectors):
        raise ValueError(
            f"the modes live on {len(modes.eigenvectors)} rows, got a kernel of shape {tuple(cross_kernel.shape)}; "
            "pass new inputs as rows and the spectrum's own inputs as columns"
        )
    values = torch.where(modes.eigenvalues > floor * modes.eigenvalues.max(), modes.eigenvalues, torch.nan)
    return cross_kernel.to(modes.eigenvectors) @ modes.eigenvectors / values


def _largest(residuals: Float[Tensor, "mode"]) -> float:
    return float(residuals.max()) if len(residuals) else 0.0
