"""The largest eigenmodes of a model's tangent kernel by the cheapest exact route, and which route that was."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.measuring import Globs, trainable
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs
from tangentlens.kernels.jacobian import jacobian_gram, jacobian_product
from tangentlens.kernels.krylov import krylov_spectrum
from tangentlens.kernels.product import Product, entk_product
from tangentlens.kernels.spectra import Spectrum, relative_residuals, spectrum
from tangentlens.kernels.tangent import entk_full

Route = Literal["dense", "dual", "krylov"]

# a symmetric matrix of this size is decomposed in seconds on one core
SMALL = 4096


def top_spectrum(
    model: nn.Module,
    inputs: Inputs,
    *,
    modes: int,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
    seed: int = 0,
    tol: float | None = None,
    method: Route | None = None,
) -> Spectrum:
    """The `modes` largest eigenmodes of `entk_full`, row n*C + c, without forming it where it is large.

    dense: the kernel itself, (N C)^3. dual: J^T J, for fewer parameters P than N C rows: u = J v / sqrt(lambda), N C
    P^2 + P^3. krylov: products alone. In float64 unless told otherwise; `tol` bounds ||K v - lambda v|| / ||K||,
    recomputed on the modes returned, whatever the route; a mode above it is marked, not dropped.
    """
    precision = torch.float64 if dtype is None else dtype
    tolerance = tol if tol is not None else (1e-10 if precision == torch.float64 else 1e-5)
    product = entk_product(model, inputs, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk)
    rows = product.shape[0]
    size = sum(parameter.numel() for parameter in trainable(model, parameters).values())
    if not 1 <= modes <= min(rows, size):
        raise ValueError(
            f"a kernel of {rows} rows and {size} parameters has at most {min(rows, size)} modes above zero, "
            f"got modes={modes}"
        )
    route = method or chosen_route(rows, size, modes)
    if route not in ("dense", "dual", "krylov"):
        raise ValueError(f"method= is one of 'dense', 'dual', 'krylov', got {route!r}")
    if route == "krylov":
        return krylov_spectrum(
            product.__matmul__, rows, modes, tol=tolerance, seed=seed, dtype=product.dtype, device=product.device
        )
    if route == "dense":
        kernel = entk_full(model, inputs, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk)
        found = spectrum(kernel, modes)
        found = replace(found, method=f"dense ({found.method})")
    else:
        gram = jacobian_gram(model, inputs, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk)
        directions = spectrum(gram, modes).eigenvectors
        images = jacobian_product(
            model, inputs, directions, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk
        )
        found = modes_from_dual(images.flatten(0, 1), product)
    return replace(found, converged=found.residuals <= tolerance)


def chosen_route(rows: int, parameters: int, modes: int) -> Route:
    """The smaller side of J exactly while it is small, or while most of its modes are wanted; products beyond.

    >>> chosen_route(25_000, 550, 80), chosen_route(841, 44_544, 80), chosen_route(300_000, 44_544, 80)
    ('dual', 'dense', 'krylov')
    """
    side = min(rows, parameters)
    if side <= SMALL or modes > side // 4:
        return "dense" if rows <= parameters else "dual"
    return "krylov"


def modes_from_dual(images: Float[Tensor, "row mode"], product: Product) -> Spectrum:
    """Modes of J J^T from the images J v of the eigenvectors of J^T J.

    u = J v / sqrt(lambda) loses orthogonality where lambda is small; a QR and a small SVD give the same modes without.
    """
    images = images.to(torch.float64)
    basis, small = torch.linalg.qr(images)
    turn, sizes, _ = torch.linalg.svd(small)
    vectors, values = basis @ turn, sizes.square()
    residuals = relative_residuals((product @ vectors).to(vectors), values, vectors)
    return Spectrum(values, vectors, residuals, torch.ones_like(residuals, dtype=torch.bool), "dual")
