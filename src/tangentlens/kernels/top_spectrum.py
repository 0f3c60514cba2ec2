"""The largest eigenmodes of a model's tangent kernel by the cheapest exact route, and which route that was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.measuring import Globs, trainable
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs
from tangentlens.distributed import Ranks, joined
from tangentlens.errors import BadInput
from tangentlens.kernels.jacobian import jacobian_gram, jacobian_product
from tangentlens.kernels.krylov import Product as Operator, krylov_spectrum
from tangentlens.kernels.product import Product, averaged, entk_product
from tangentlens.kernels.routes import Way, route_to
from tangentlens.kernels.spectra import Spectrum, relative_residuals, spectrum
from tangentlens.kernels.stored import StoredKernel
from tangentlens.kernels.stored_spectrum import cost_of_tiles, stored_spectrum
from tangentlens.kernels.tangent import entk_full
from tangentlens.kernels.writing import refuse_another_origin

Route = Way | Literal["tiles"]

_FEW = 64  # vectors: a product with fewer takes nearly as long


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
    stored: StoredKernel | None = None,
    ranks: Ranks = None,
) -> Spectrum:
    """The `modes` largest eigenmodes of `entk_full`, row n*C + c, without forming it where it is large.

    dense: the kernel itself, (N C)^3. dual: J^T J, for fewer parameters P than N C rows: u = J v / sqrt(lambda), N C
    P^2 + P^3. krylov: products alone. In float64 unless told otherwise; `tol` bounds ||K v - lambda v|| / ||K||,
    recomputed on the modes returned, whatever the route; a mode above it is marked, not dropped.

    `stored` is this model's kernel as `out=` wrote it, full or averaged: its modes are found by products with its
    tiles or with the model, whichever is cheaper by the count of bytes and multiply-adds, and `method` says which.
    """
    precision = torch.float64 if dtype is None else dtype
    tolerance = tol if tol is not None else (1e-10 if precision == torch.float64 else 1e-5)
    if method not in (None, "dense", "dual", "krylov", "tiles") or (method == "tiles" and stored is None):
        raise ValueError(
            f"method= is one of 'dense', 'dual', 'krylov', and 'tiles' beside stored=, got {method!r} "
            f"{'without' if stored is None else 'with'} stored="
        )
    if stored is not None:
        _refuse_what_is_not_beside(stored, method)
    product = entk_product(
        model, inputs, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk, ranks=ranks
    )
    rows = product.shape[0]
    if stored is not None:
        refuse_another_origin(stored, model, inputs, outputs, parameters)
        return _beside_stored(stored, product, modes, tol, seed, method)
    size = sum(parameter.numel() for parameter in trainable(model, parameters).values())
    cheapest = route_to(modes, rows, size)
    route = method or cheapest.way
    if route == "krylov":
        return _led(product, lambda apply: krylov_spectrum(
            apply, rows, modes, tol=tolerance, seed=seed, dtype=product.dtype, device=product.device,
            block=_block(product, modes),
        ))  # fmt: skip
    if route == "dense":
        kernel = entk_full(
            model, inputs, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk, ranks=ranks
        )
        found = _led(product, lambda _: spectrum(kernel, modes))
        found = replace(found, method=f"dense ({found.method})")
    else:
        gram = jacobian_gram(
            model, inputs, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk, ranks=ranks
        )
        directions = _led(product, lambda _: spectrum(gram, modes)).eigenvectors
        images = jacobian_product(
            model, inputs, directions, outputs=outputs, parameters=parameters, dtype=precision, chunk=chunk, ranks=ranks
        )
        found = _led(product, lambda apply: modes_from_dual(images.flatten(0, 1), apply))
    return replace(found, converged=found.residuals <= tolerance)


def _block(product: Product, modes: int) -> int:
    """Vectors multiplied at once: as many as modes where every product captures anew, for few products; where gradients
    are held few vectors are cheaper, though more than a read-out repeats each eigenvalue."""
    return min(modes + 8, product.shape[0], max(_FEW, product.output_count + 8) if product.held else modes + 8)


def _refuse_what_is_not_beside(stored: object, method: Route | None) -> None:
    """A layer's kernel and the model's product have modes of their own: what was cheaper must not decide which come."""
    if not isinstance(stored, StoredKernel) or stored.layer is not None:
        got = repr(stored) if isinstance(stored, StoredKernel) else f"a {type(stored).__name__}"
        raise BadInput(
            f"stored= is the model's whole kernel, as entk or entk_full write it with out=, got {got}; "
            "spectrum(layers[name]) gives the modes of one layer"
        )
    if method in ("dense", "dual"):
        raise ValueError(f"beside stored= method= is 'tiles' or 'krylov', got {method!r}; leave stored= or method= out")


def _beside_stored(
    stored: StoredKernel, product: Product, modes: int, tol: float | None, seed: int, method: Route | None
) -> Spectrum:
    """Modes of the kernel on disk, from its tiles or from the model it came from."""
    vectors = modes + 8  # a block of krylov_spectrum
    passes = product.output_count if stored.outputs == 1 else 1
    by_model = passes * (product.captures + vectors * product.multiply_adds)
    by_tiles = cost_of_tiles(stored, vectors)
    done, regions = stored.progress()
    if method == "tiles" or (method is None and done == regions and by_tiles <= by_model):
        return _led(product, lambda _: stored_spectrum(stored, modes, tol=tol, seed=seed))
    rows = stored.matrix_shape[0]
    tolerance = tol if tol is not None else (1e-10 if product.dtype == torch.float64 else 1e-5)

    def work(apply: Operator) -> Spectrum:
        shown = averaged(product, apply) if stored.outputs == 1 else apply
        return krylov_spectrum(shown, rows, modes, tol=tolerance, seed=seed, dtype=product.dtype, device=product.device)

    return replace(_led(product, work), method="krylov on the model's product")


def _led(product: Product, work: Callable[[Operator], Spectrum]) -> Spectrum:
    """Work with products on the first rank, in which all others take part: ranks that iterate each for themselves
    would part ways at the first rounding."""
    with joined(product.ranks) as job:
        if job.size == 1:
            return work(product.__matmul__)
        if not job.first:
            while True:
                vectors, found = job.sent(None, 0)
                if vectors is None:
                    return found
                product @ vectors  # noqa: B018  the first rank reads the result

        def apply(vectors: Tensor) -> Tensor:
            job.sent((vectors, None), 0)
            return product @ vectors

        found = work(apply)
        return job.sent((None, found), 0)[1]


def modes_from_dual(images: Float[Tensor, "row mode"], product: Operator) -> Spectrum:
    """Modes of J J^T from the images J v of the eigenvectors of J^T J.

    u = J v / sqrt(lambda) loses orthogonality where lambda is small; a QR and a small SVD give the same modes without.
    """
    images = images.to(torch.float64)
    basis, small = torch.linalg.qr(images)
    turn, sizes, _ = torch.linalg.svd(small)
    vectors, values = basis @ turn, sizes.square()
    residuals = relative_residuals(product(vectors).to(vectors), values, vectors)
    return Spectrum(values, vectors, residuals, torch.ones_like(residuals, dtype=torch.bool), "dual")
