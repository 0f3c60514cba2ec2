"""The largest eigenmodes of a symmetric operator, from products alone.

A block of vectors is needed, not one: the kernel of a read-out layer has every eigenvalue C times over, and a
single-vector Lanczos (ARPACK's `eigsh`) then returns pairs with residuals of 1e-14 that are *not* the largest ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.routes import vectors_at_once
from tangentlens.kernels.spectra import Spectrum, relative_residuals

_LOOKS = 3  # rounds that a second random block goes on for once all modes have converged

Product = Callable[[Float[Tensor, "row column"]], Float[Tensor, "row column"]]


def krylov_spectrum(
    product: Product,
    rows: int,
    modes: int,
    *,
    tol: float | None = None,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    block: int | None = None,
    basis: int | None = None,
    rounds: int = 100,
) -> Spectrum:
    """Block Lanczos with full re-orthogonalisation and thick restart; residuals are recomputed with one last product.

    The space is span{X, KX, K^2 X, ...} for a seeded Gaussian block X of `block` columns (modes + 8 unless told): it
    finds eigenvalues repeated up to `block` times. A wide block asks for few products, a narrow one for few vectors.
    With one narrower than `modes`, what has converged is met with further random blocks, in which copies that the first
    one missed would show, until one shows none. Memory 2 * rows * basis; cost block products per round.
    """
    block, room = vectors_at_once(rows, modes, block)
    basis = room if basis is None else min(rows, basis)
    if not 1 <= modes <= basis <= rows or not 1 <= block <= basis:
        raise ValueError(
            f"needs 1 <= modes <= basis <= rows and 1 <= block <= basis, got modes={modes}, block={block}, "
            f"basis={basis} and rows={rows}"
        )
    tolerance = tol if tol is not None else (1e-10 if dtype == torch.float64 else 1e-5)
    generator = torch.Generator().manual_seed(seed)  # on the processor: the same start on every device

    def random_block() -> Tensor:
        return torch.randn(rows, block, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)

    space = torch.linalg.qr(random_block()).Q
    images = product(space)
    looks, seen = _LOOKS if block < modes else 0, images.new_zeros(modes)
    for _ in range(rounds):
        values, rotation = _ritz(space, images)
        kept = rotation[:, :modes]
        # half: the products of the last check round anew, and what was just within the tolerance must not fall out
        done = space.shape[1] >= modes and bool(
            (relative_residuals(images @ kept, values[:modes], space @ kept) <= tolerance / 2).all()
        )
        if (
            done
            and looks == 0
            and block < modes
            and bool(((values[:modes] - seen).abs() > tolerance * values[0]).any())
        ):
            looks = _LOOKS  # copies were missed, perhaps more than one block of them
        if done and looks == 0:
            break
        if again := done and looks == _LOOKS:
            seen = values[:modes]
        looks -= int(done)
        step = _new_directions(random_block() if again else images[:, -block:], space)
        if step.shape[1] == 0 and block < modes:  # the space is invariant, and may be one of a few copies
            step = _new_directions(random_block(), space)
        if step.shape[1] == 0:  # nothing is left to find
            break
        if space.shape[1] + step.shape[1] > basis:
            keep = max(modes, min(basis // 2, basis - step.shape[1]))
            space, images = space @ rotation[:, :keep], images @ rotation[:, :keep]
            step = _new_directions(step, space)
        space, images = torch.cat([space, step], 1), torch.cat([images, product(step)], 1)
    values, rotation = _ritz(space, images)
    vectors = space @ rotation[:, :modes]
    residuals = relative_residuals(product(vectors), values[:modes], vectors)
    return Spectrum(values[:modes], vectors, residuals, residuals <= tolerance, "krylov", seed)


def _ritz(
    space: Float[Tensor, "row basis"], images: Float[Tensor, "row basis"]
) -> tuple[Float[Tensor, "basis"], Float[Tensor, "basis basis"]]:
    """Eigenpairs of the operator seen from the space, largest first."""
    small = space.T @ images
    values, rotation = torch.linalg.eigh((small + small.T) / 2)
    return values.flip(0), rotation.flip(1)


def _new_directions(
    candidates: Float[Tensor, "row candidate"], space: Float[Tensor, "row basis"]
) -> Float[Tensor, "row direction"]:
    """An orthonormal basis of what the candidates add to the space; empty when they add nothing."""
    scale = candidates.norm(dim=0).max()
    for _ in range(2):  # once leaves rounding of the size of what was removed
        candidates = candidates - space @ (space.T @ candidates)
    directions, sizes, _ = torch.linalg.svd(candidates, full_matrices=False)
    room = space.shape[0] - space.shape[1]
    fresh = int((sizes > 1e3 * torch.finfo(sizes.dtype).eps * scale).sum())
    directions = directions[:, : min(fresh, room)]
    # small directions come out of the decomposition with an error that points back into the space
    return torch.linalg.qr(directions - space @ (space.T @ directions)).Q
