"""Gradient flow under a constant kernel: what scores would do if training were lazy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tangentlens.errors import BadInput

Solver = Literal["auto", "implicit", "split"]
INDEFINITE = 1e-4
"""Below zero by more than this share of the largest, an eigenvalue is none of float32 rounding."""


@runtime_checkable
class KernelAction(Protocol):
    """A kernel known by its products alone, float64 in and out: for corpora whose matrix would not fit."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def __matmul__(self, block: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class KernelFlow:
    """Scores at each of `times` are the initial ones plus kernel @ duals, the residuals each example has sent."""

    times: Float[Tensor, "time"]
    duals: Float[Tensor, "time example label"]

    def scores(
        self, kernel: Float[Tensor, "other example"] | KernelAction, initial: Float[Tensor, "other label"] | None = None
    ) -> Float[Tensor, "time other label"]:
        """Scores of any inputs, from their kernel with the training examples."""
        table = kernel.to(self.duals) if isinstance(kernel, Tensor) else kernel
        examples = self.duals.shape[1]
        if len(table.shape) != 2 or table.shape[1] != examples:
            raise BadInput(
                f"expected the kernel of the inputs with the {examples} training examples, a row for each input, "
                f"got shape {tuple(table.shape)}"
            )
        moved = torch.stack([table @ duals for duals in self.duals])
        return moved if initial is None else moved + initial.to(self.duals)


def kernel_time(kernel: Float[Tensor, "example other"]) -> float:
    """The natural unit of time, N over the mean diagonal: after one unit a lone example has felt its own residual."""
    return float(len(kernel) / kernel.diagonal().mean())


def kernel_flow(
    kernel: Float[Tensor, "example other"] | KernelAction,
    targets: Int[Tensor, "_example"] | Float[Tensor, "_example"] | Bool[Tensor, "_example"] | Sequence[int],
    times: Float[Tensor, "time"] | Sequence[float],
    *,
    labels: int = 1,
    initial: Float[Tensor, "_example label"] | None = None,
    solver: Solver = "auto",
    stiff: int = 4,
    tolerance: float = 1e-5,
) -> KernelFlow:
    """ds(x)/dt = 1/N sum_j Theta(x, x_j) r_j under the mean logistic loss, with r_j = y_j g(-y_j s_j) or 1[y_j] - p_j.

    One label: targets are 0 or 1, the logistic loss. More: targets are class numbers, the softmax loss, and the kernel
    is the same for every output. A feature bias makes one direction of the kernel far stiffer than the rest; an
    explicit step tuned to the others oscillates along it and fakes a large bias. So solver "implicit" (scipy's BDF with
    the exact Jacobian, N * labels up to 3,000 by default) treats all directions implicitly and "split" the `stiff`
    leading ones, at the cost of two products with the kernel per step; a kernel that is not a matrix, anything with a
    shape and `@`, is always split. Everything runs in float64 on the CPU.

    >>> kernel_flow(torch.eye(2), [0, 1], [1.0]).scores(torch.eye(2)).flatten().gt(0)
    tensor([False,  True])
    """
    if solver not in get_args(Solver):
        raise BadInput(f"solver is one of {', '.join(get_args(Solver))}, got {solver!r}")
    if labels < 1:
        raise BadInput(f"labels is the number of scores of an example, at least 1, got {labels}")
    if stiff < 1 or not tolerance > 0:
        raise BadInput(f"expected stiff of at least 1 and a tolerance above 0, got {stiff} and {tolerance:g}")
    table = _table(kernel)
    residual = _residual(table, _as_numbers(targets), labels)
    times = torch.as_tensor(times, dtype=torch.float64).cpu()
    if (
        times.ndim != 1
        or not len(times)
        or not times.isfinite().all()
        or (times < 0).any()
        or (times.diff() <= 0).any()
    ):
        raise BadInput("times must be a list of growing, non-negative numbers")
    size = table.shape[0]
    start = torch.zeros(size, labels, dtype=torch.float64) if initial is None else initial.detach().double().cpu()
    if start.shape != (size, labels):
        raise BadInput(f"initial scores have shape {tuple(start.shape)}, expected {(size, labels)}")
    if not start.isfinite().all():  # a slope of NaN would pass for one at rest, and the flow for zero
        raise BadInput("initial scores must be finite, got inf or nan entries; look at the network they are of")
    if isinstance(table, Tensor) and (solver == "implicit" or (solver == "auto" and size * labels <= 3000)):
        duals = _implicit(table, start, residual, times, tolerance)
    elif solver == "implicit":
        raise BadInput("the implicit solver factors the kernel and needs its matrix; use solver='split'")
    else:
        duals = _split(table, start, residual, times, tolerance, stiff)
    return KernelFlow(times, duals / size)


def _table(kernel: Tensor | KernelAction) -> Tensor | KernelAction:
    """A matrix as the solvers take it; a kernel known by its products as it is."""
    if not isinstance(kernel, Tensor):
        return kernel
    if not kernel.isfinite().all():
        raise BadInput("the kernel must be finite, got inf or nan entries; look at the inputs and weights it is of")
    return kernel.detach().double().cpu()


def _as_numbers(targets: Tensor | Sequence[int]) -> Tensor:
    """Targets as numbers: `labels > 0` says the same as 0 and 1."""
    given = torch.as_tensor(targets).cpu()
    return given.long() if given.dtype == torch.bool else given


def _check_definite(values: Float[Tensor, "mode"]) -> None:
    """Along a negative eigenvalue a flow would run away from its targets: no kernel of gradients has one."""
    if values[0] < -INDEFINITE * values.abs().max():
        raise BadInput(
            f"a kernel is positive semi-definite, got the eigenvalue {float(values[0]):.3g} beside "
            f"{float(values[-1]):.3g}; pass the kernel of the training examples with themselves, not a cross one"
        )


Residual = Callable[
    [Float[Tensor, "example label"]], tuple[Float[Tensor, "example label"], Float[Tensor, "example label"]]
]
"""Scores -> the push of each example on each label, and the probabilities p behind it."""


def _residual(kernel: Tensor | KernelAction, targets: Tensor, labels: int) -> Residual:
    if len(kernel.shape) != 2 or kernel.shape[0] != kernel.shape[1]:
        raise BadInput(f"a flow needs the square kernel of the training examples, got {tuple(kernel.shape)}")
    if not kernel.shape[0]:
        raise BadInput("a flow needs at least one training example, got none")
    if targets.shape != (kernel.shape[0],):
        raise BadInput(f"{kernel.shape[0]} examples need as many targets, got {tuple(targets.shape)}")
    highest = max(labels - 1, 1)
    if (targets != targets.round()).any() or targets.min() < 0 or targets.max() > highest:
        raise BadInput(
            f"targets must be whole numbers 0..{highest} for {labels} label score{'s' * (labels > 1)}, "
            f"got {targets.min().item():g}..{targets.max().item():g}; set labels= to the number of outputs"
        )
    if labels == 1:
        wanted = targets.double()[:, None]
        return lambda s: (wanted - torch.sigmoid(s), torch.sigmoid(s))
    hot = torch.nn.functional.one_hot(targets.long(), labels).double()
    return lambda s: (hot - torch.softmax(s, -1), torch.softmax(s, -1))


def _curvature(p: Float[Tensor, "example label"]) -> Float[Tensor, "example label label"]:
    """-d residual / d score of each example: p(1-p), or diag(p) - p p^T."""
    if p.shape[1] == 1:
        return (p * (1 - p))[..., None]
    return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]


def _implicit(kernel: Tensor, start: Tensor, residual: Residual, times: Tensor, tolerance: float) -> Tensor:
    """BDF, with its exact Jacobian, on the weights of the kernel's own features: kernel = features features^T.

    Only directions the kernel has are integrated. The residual that stays in its null space would grow forever in the
    duals, move no score, and stall the solver.
    """
    from scipy.integrate import solve_ivp

    values, vectors = torch.linalg.eigh((kernel + kernel.T) / 2)
    _check_definite(values)
    has = values > 1e-10 * values[-1]
    features = vectors[:, has] * values[has].sqrt()
    size, shape = len(kernel), (features.shape[1], start.shape[1])

    def answered(weights: object) -> tuple[Tensor, Tensor]:
        return residual(start + features @ torch.as_tensor(weights).reshape(shape))

    def slope(_: float, weights: object) -> object:
        return (features.T @ answered(weights)[0] / size).flatten().numpy()

    def jacobian(_: float, weights: object) -> object:
        bent = torch.einsum("ncd,nm->ncmd", _curvature(answered(weights)[1]), features)
        return -torch.einsum("nk,ncmd->kcmd", features / size, bent).reshape(shape[0] * shape[1], -1).numpy()

    end, reach = float(times[-1]), float(values[-1].sqrt())

    def left_to_move(time: float, weights: object) -> float:
        """Along a convex loss the slope only falls, so no score moves by more than this until the end."""
        return reach * float(torch.as_tensor(slope(time, weights)).norm()) * (end - time) - 0.01 * tolerance

    left_to_move.terminal = True  # type: ignore[attr-defined]  # at rest, Newton's steps are rounding and never converge
    nothing = torch.zeros(shape[0] * shape[1], dtype=torch.float64)
    weights = nothing.expand(len(times), -1).clone()
    if left_to_move(0.0, nothing) > 0:
        solved = solve_ivp(
            slope, (0.0, end), nothing.numpy(), method="BDF", t_eval=times.numpy(), events=left_to_move,
            jac=jacobian, rtol=tolerance, atol=tolerance / reach,
        )  # fmt: skip
        if not solved.success:
            raise RuntimeError(f"the flow did not reach time {end:g}: {solved.message}")
        seen = len(solved.t)
        if seen:
            weights[:seen] = torch.from_numpy(solved.y.T.copy())
        if seen < len(times):
            weights[seen:] = torch.from_numpy(solved.y_events[0][0].copy())
    return size * (vectors[:, has] / values[has].sqrt()) @ weights.reshape(len(times), *shape)


def _split(
    kernel: Tensor | KernelAction, start: Tensor, residual: Residual, times: Tensor, tolerance: float, stiff: int
) -> Tensor:
    """ROS2, a W-method (Verwer et al. 1999): second order whatever matrix stands for the Jacobian.

    That matrix is -curvature * (the leading directions of the kernel) / N, so each step solves a small system and never
    factors the kernel.
    """
    size, labels = start.shape
    directions = _leading(kernel, min(stiff, size))
    gamma = 1 + 1 / sqrt(2)
    q, now, step = torch.zeros_like(start), 0.0, float(times[times > 0][0]) * 1e-3 if (times > 0).any() else 0.0
    kept = []
    scores = start.clone()
    for end in times.tolist():
        while now < end * (1 - 1e-12):
            h = min(step, end - now)
            r, p = residual(scores)
            solve = _small_system(directions, _curvature(p), gamma * h / size, labels)
            first = solve(r)
            ahead = kernel @ first * (h / size)
            second = solve(residual(scores + ahead)[0] - 2 * first)
            back = kernel @ second * (h / size)
            # the embedded first-order result differs by h (first + second) / 2, seen here in the scores
            error = float(((ahead + back) / 2).abs().max()) / (10 * tolerance * (1 + float(scores.abs().max())))
            if error <= 1:
                q, scores, now = q + h * (1.5 * first + 0.5 * second), scores + 1.5 * ahead + 0.5 * back, now + h
            if h == step or error > 1:
                step = h * min(4.0, max(0.2, 0.9 / sqrt(max(error, 1e-8))))
        kept.append(q)
    return torch.stack(kept)


def _leading(kernel: Tensor | KernelAction, count: int) -> Float[Tensor, "example mode"]:
    """U with U U^T the leading part of the kernel, by a few rounds of subspace iteration: it only steers the solver."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(kernel.shape[0], count, dtype=torch.float64, generator=generator)
    for _ in range(8):
        block = torch.linalg.qr(kernel @ block).Q
    values, vectors = torch.linalg.eigh(block.T @ (kernel @ block))
    _check_definite(values)
    return block @ vectors * values.clamp_min(0).sqrt()


def _small_system(
    directions: Float[Tensor, "example mode"],
    curvature: Float[Tensor, "example label label"],
    weight: float,
    labels: int,
) -> Callable[[Float[Tensor, "example label"]], Float[Tensor, "example label"]]:
    """Solves (I + weight C U U^T) x = b by the Woodbury identity; C acts on labels, U U^T on examples."""
    modes = directions.shape[1]
    bent = torch.einsum("ncd,nm->ncmd", curvature, directions)  # C (U kron labels)
    inner = torch.einsum("nk,ncmd->kcmd", directions, bent).reshape(modes * labels, modes * labels)
    factor = torch.linalg.lu_factor(torch.eye(modes * labels, dtype=torch.float64) + weight * inner)

    def solve(b: Float[Tensor, "example label"]) -> Float[Tensor, "example label"]:
        seen = (directions.T @ b).reshape(-1, 1)
        answer = torch.linalg.lu_solve(*factor, seen).reshape(modes, labels)
        return b - weight * torch.einsum("ncmd,md->nc", bent, answer)

    return solve
