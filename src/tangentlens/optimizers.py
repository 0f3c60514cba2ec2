"""Speed-limited optimisation: each layer's gradient gets the norm it is asked to have, then any torch optimiser steps.

W_l <- W_l - lr C_l g_l / (eps + |g_l|), g_l the layer's gradient and |.| its Frobenius norm (arXiv 2402.05271; eps
from the first author's code). A high speed below and a low one above keeps the tangent kernel still while the weights
turn towards it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor, nn

Speed = float | Callable[[int], float]


class SpeedLimited(torch.optim.Optimizer):
    """Any torch optimiser behind per-layer speed limits, used in its place: `step`, `zero_grad`, schedulers, AMP's
    scaler.

    `speeds` maps globs over layer names (`named_modules()`; over parameter names with `by="parameter"`) to the norm
    the layer's gradient is given before each step, a number or a function of the count of steps so far. The first
    glob that matches a layer decides; a layer none matches keeps its gradient; 0 stands still. With `by="module"` the
    weight and the bias of a module share one norm. `eps` softens the limit: the norm becomes C |g| / (eps + |g|).

    Only with plain SGD are these the paper's steps. Momentum mixes limited gradients, weight decay is added after the
    limit, and an optimiser that divides by its gradients' own size (Adam) undoes it; a warning says so.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    >>> optimizer = SpeedLimited(torch.optim.SGD(model.parameters(), lr=0.1), model, {"0": 5.0, "*": 0.2})
    >>> model(torch.ones(2, 3)).sum().backward()
    >>> optimizer.limit()
    >>> round(optimizer.gradient_norms()["0"], 5), round(optimizer.gradient_norms()["1"], 5)
    (5.0, 0.2)
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        speeds: Mapping[str, Speed],
        *,
        eps: float = 0.0,
        by: Literal["module", "parameter"] = "module",
    ) -> None:
        if not (eps >= 0 and math.isfinite(eps)):
            raise ValueError(f"eps must be a finite number >= 0, got {eps}; 0 gives the asked norms exactly")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.optimizer = optimizer
        self.eps = eps
        self.steps = 0
        self._share()
        self.layers = _layers(model, optimizer, by)
        self.speeds = _matched(speeds, list(self.layers))
        _warn_about(optimizer)

    @torch.no_grad()
    def limit(self) -> None:
        """Give every limited layer's gradient its norm, in place; `step` does this first. Zero stays zero."""
        for name, speed in self.speeds.items():
            gradients = _gradients(self.layers[name])
            if not gradients:
                continue
            asked = float(speed(self.steps)) if callable(speed) else speed
            _check_speed(name, asked)
            norm = _joint_norm(gradients)
            # a gradient that is exactly zero has no direction to give a length to
            scale = torch.where(norm > 0, asked / (norm + self.eps), 0)
            for gradient in gradients:
                gradient.copy_(gradient.to(scale.dtype) * scale.to(gradient.device))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Limit, then step. A closure's gradients are limited each time it is called (LBFGS calls often)."""
        if closure is None:
            self.limit()
            result = self.optimizer.step()
        else:

            def limited() -> Any:
                loss = closure()
                self.limit()
                return loss

            result = self.optimizer.step(limited)
        self.steps += 1
        return result

    def gradient_norms(self) -> dict[str, float]:
        """Each layer's gradient norm as it stands, limited or not; layers without a gradient are left out."""
        norms = {name: _gradients(parameters) for name, parameters in self.layers.items()}
        return {name: float(_joint_norm(gradients)) for name, gradients in norms.items() if gradients}

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimiser's state, the step count, eps, and the speeds that are numbers."""
        speeds = {name: None if callable(speed) else speed for name, speed in self.speeds.items()}
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps, "eps": self.eps, "speeds": speeds}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where a saved one stopped; speeds given as functions are those of this optimiser."""
        missing = {"optimizer", "steps", "eps", "speeds"} - set(state_dict)
        if missing:
            raise ValueError(
                f"this is not the state of a SpeedLimited optimiser, {sorted(missing)} are missing; load a plain "
                "optimiser's state into .optimizer"
            )
        saved = state_dict["speeds"]
        if set(saved) != set(self.speeds):
            raise ValueError(
                f"the saved state limits {sorted(saved)}, this optimiser {sorted(self.speeds)}; build it with the same "
                "globs and the same model"
            )
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.steps, self.eps = state_dict["steps"], state_dict["eps"]
        for name, speed in saved.items():
            if speed is None and not callable(self.speeds[name]):
                raise ValueError(f"the saved speed of {name!r} was a function; build this optimiser with one, too")
            self.speeds[name] = self.speeds[name] if speed is None else speed
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()  # the base class would copy and pickle its own three attributes alone

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        # one list of groups and one state: schedulers, scalers and zero_grad must see what the wrapped optimiser uses
        self.param_groups = self.optimizer.param_groups
        self.state = self.optimizer.state


def _layers(model: nn.Module, optimizer: torch.optim.Optimizer, by: str) -> dict[str, list[nn.Parameter]]:
    """The parameters the optimiser moves, gathered by the module (or singly) under the unwrapped model's names."""
    if by not in ("module", "parameter"):
        raise ValueError(f"by is 'module' (a layer's parameters share a norm) or 'parameter', got {by!r}")
    optimised = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in _unwrapped(model).named_parameters():
        if id(parameter) in optimised:
            layers.setdefault(name if by == "parameter" else name.rpartition(".")[0], []).append(parameter)
    if not layers:
        raise ValueError("the optimiser holds no parameter of this model; build it from model.parameters()")
    return layers


def _unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside DistributedDataParallel, DataParallel or torch.compile, whose names it has."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def _matched(speeds: Mapping[str, Speed], layers: list[str]) -> dict[str, Speed]:
    """Each layer's speed by the first glob that matches it; a glob that decides nothing is an error."""
    if not speeds:
        raise ValueError("no speeds given; name at least one layer, as in {'0': 500.0, '*': 0.002}")
    chosen: dict[str, Speed] = {}
    for glob, speed in speeds.items():
        if not callable(speed):
            _check_speed(glob, float(speed))
        matches = [name for name in layers if fnmatchcase(name, glob)]
        if not matches:
            raise ValueError(
                f"no layer matches {glob!r}; the layers that are trained are {', '.join(map(repr, layers))}"
            )
        free = [name for name in matches if name not in chosen]
        if not free:
            raise ValueError(
                f"{glob!r} matches only layers that earlier globs decide: {', '.join(matches)}; put it first"
            )
        chosen |= {name: speed if callable(speed) else float(speed) for name in free}
    return chosen


def _check_speed(name: str, speed: float) -> None:
    if not (speed >= 0 and math.isfinite(speed)):
        raise ValueError(f"the speed of {name!r} must be a finite number >= 0, got {speed}")


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    """The gradients' values, to be scaled in place; a sparse gradient's are its coalesced entries."""
    values = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            # uncoalesced entries of one row add up, so their norm is not the gradient's
            parameter.grad = parameter.grad.coalesce()
            values.append(parameter.grad._values())
        else:
            values.append(parameter.grad)
    return values


def _joint_norm(gradients: list[Tensor]) -> Tensor:
    """The Frobenius norm of several tensors as one vector, in at least float32, whole even where they are sharded."""
    norms = []
    for gradient in gradients:
        dtype = torch.promote_types(gradient.dtype, torch.float32)
        norm = torch.linalg.vector_norm(gradient, dtype=dtype)
        norms.append(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
    return torch.linalg.vector_norm(torch.stack([norm.to(norms[0]) for norm in norms]))


def _warn_about(optimizer: torch.optim.Optimizer) -> None:
    settings = optimizer.param_groups
    if any("betas" in group or "alpha" in group or "rho" in group for group in settings):
        consequence = "divides each step by its gradients' own size, which undoes constant speeds"
    elif any(group.get("momentum") for group in settings):
        consequence = "has momentum, which mixes limited gradients: a step is no longer as long as its speed"
    elif any(group.get("weight_decay") for group in settings):
        consequence = "adds weight decay after the limit"
    else:
        return
    warnings.warn(f"{type(optimizer).__name__} {consequence}; the paper's rule is plain SGD", UserWarning, stacklevel=3)
