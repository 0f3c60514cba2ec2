"""Modes of a kernel that lies on disk: by products with its tiles, or in memory where it is small."""

from __future__ import annotations

from dataclasses import replace

import torch

from tangentlens.errors import BadInput
from tangentlens.kernels.krylov import krylov_spectrum
from tangentlens.kernels.memory import refuse_unless_it_fits
from tangentlens.kernels.routes import SMALL
from tangentlens.kernels.spectra import Spectrum, spectrum
from tangentlens.kernels.stored import StoredKernel

_READING = 100.0  # multiply-adds a processor does while a disk gives one byte


def stored_spectrum(kernel: StoredKernel, modes: int | None, *, tol: float | None = None, seed: int = 0) -> Spectrum:
    """The `modes` largest modes in float64, with residuals against the kernel as it is on disk.

    Block Krylov reads half of a kernel once a product. A kernel of few rows, or one of which most modes are wanted, is
    loaded and decomposed.
    """
    rows, columns = kernel.matrix_shape
    if not kernel.symmetric:
        raise BadInput(f"a spectrum needs a symmetric kernel, got {kernel!r}; write it without others=")
    wanted = rows if modes is None else modes
    if not 1 <= wanted <= rows:
        raise ValueError(f"a kernel of {rows} rows has 1 to {rows} modes, got modes={modes}")
    if rows <= SMALL or wanted > rows // 4:
        refuse_unless_it_fits("a kernel to decompose", rows, columns, 4 * 8 * rows * columns, torch.device("cpu"))
        found = spectrum(kernel.whole(), wanted)
        return replace(found, method=f"{found.method} of the kernel on disk")
    tolerance = tol if tol is not None else (1e-10 if kernel.dtype == torch.float64 else 1e-7)
    found = krylov_spectrum(kernel.__matmul__, rows, wanted, tol=tolerance, seed=seed)
    return replace(found, method="krylov on the tiles on disk")


def cost_of_tiles(kernel: StoredKernel, vectors: int) -> float:
    """Multiply-adds, or as long, of one product with this many vectors."""
    rows, columns = kernel.matrix_shape
    return rows * columns * float(vectors) + _READING * kernel.nbytes / (2 if kernel.symmetric else 1)
