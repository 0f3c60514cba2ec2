"""How far a kernel has moved since the start, and whether a theory of constant kernels applies at all."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from tangentlens.errors import BadInput

CHANGE_LIMIT, ALIGNMENT_LIMIT = 0.5, 0.9
"""The largest relative change, and the smallest cosine, at which a constant kernel is taken for an explanation."""


@dataclass(frozen=True)
class Drift:
    """`change` is |K - K0| / |K0|, `alignment` the cosine of K and K0, `growth` their ratio of norms."""

    change: float
    alignment: float
    growth: float
    change_limit: float
    alignment_limit: float

    @property
    def lazy(self) -> bool:
        """Whether predictions from the initial kernel can be trusted."""
        return self.change <= self.change_limit and self.alignment >= self.alignment_limit

    @property
    def verdict(self) -> str:
        seen = f"the kernel changed by {self.change:.3g} of its size, cosine to the start {self.alignment:.3f}"
        if self.lazy:
            return f"training is close to lazy: {seen}"
        allowed = f"allowed: {self.change_limit:g} and {self.alignment_limit:g}"
        return f"theory does not apply here: {seen} ({allowed})"


def drift(
    kernel: Float[Tensor, "example other"],
    initial: Float[Tensor, "_example _other"],
    *,
    change_limit: float = CHANGE_LIMIT,
    alignment_limit: float = ALIGNMENT_LIMIT,
) -> Drift:
    """Relative change |K - K0|_F / |K0|_F and alignment <K, K0> / (|K| |K0|) of a kernel against its initial one.

    The limits are this library's, not a paper's: at relative change 1 the kernel has moved by its own size. Networks
    whose scores a constant kernel predicted with correlation above .95 had changed by less than .5.

    >>> import torch
    >>> drift(2 * torch.eye(2), torch.eye(2)).verdict
    'theory does not apply here: the kernel changed by 1 of its size, cosine to the start 1.000 (allowed: 0.5 and 0.9)'
    """
    if kernel.shape != initial.shape:
        raise BadInput(
            f"kernels of shapes {tuple(kernel.shape)} and {tuple(initial.shape)}; measure both on the same inputs"
        )
    now, start = kernel.detach().double(), initial.detach().double()
    size, start_size = now.norm(), start.norm()
    if start_size == 0:
        raise BadInput("the initial kernel is zero, so no change relative to it exists")
    return Drift(
        change=float((now - start).norm() / start_size),
        alignment=0.0 if size == 0 else float((now * start).sum() / (size * start_size)),
        growth=float(size / start_size),
        change_limit=change_limit,
        alignment_limit=alignment_limit,
    )
