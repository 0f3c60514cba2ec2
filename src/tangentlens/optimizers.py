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
OWN_SIZE = {"betas", "rho", "etas", "beta2_decay", "initial_accumulator_value", "ns_steps"}
"""Settings by which torch's optimisers that divide by the size of gradients are known: Adam's family, Adadelta, Rprop,
Adafactor, Adagrad, Muon; RMSprop has an `alpha`, and so has ASGD, which does not divide."""


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
        _check_arguments(optimizer, model, speeds)
        if not (eps >= 0 and math.isfinite(eps)):
            raise ValueError(f"eps must be a finite number >= 0, got {eps}; 0 gives the asked norms exactly")
        self.optimizer = optimizer
        groups, state = optimizer.param_groups, optimizer.state
        super().__init__(groups, optimizer.defaults)
        optimizer.param_groups, optimizer.state = groups, state  # the base class starts with empty ones
        self.eps = eps
        self.steps = 0
        self._named, self._by, self._asked = dict(_unwrapped(model).named_parameters()), by, dict(speeds)
        self.layers = _layers(self._named, optimizer, by)
        self.speeds = _matched(speeds, list(self.layers))
        _warn_about(optimizer)

    # one list of groups and one state, the wrapped optimiser's, also after it has loaded others: schedulers, scalers
    # and zero_grad must see what it uses
    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """More parameters to move; the globs that were given decide on their speeds, too."""
        if not hasattr(self, "layers"):  # the base class's constructor, which gathers the groups there are
            super().add_param_group(param_group)
            return
        self.optimizer.add_param_group(param_group)
        self.layers = _layers(self._named, self.optimizer, self._by)
        self.speeds = _matched(self._asked, list(self.layers)) | self.speeds

    @torch.no_grad()
    def limit(self) -> None:
        """Give every limited layer's gradient its norm, in place; `step` does this first. Zero stays zero."""
        for name, speed in self.speeds.items():
            gradients = _gradients(self.layers[name])
            if not gradients:
                continue
            asked = float(speed(self.steps)) if callable(speed) else speed
            _check_speed(name, asked)
            largest, norm = _joint_norm(gradients)
            # a gradient that is exactly zero has no direction to give a length to, and stays
            unit, factor = torch.where(largest == 0, 1, largest), torch.where(largest == 0, 0, asked)
            factor = factor / (torch.where(largest == 0, 1, norm) + self.eps / unit)
            for gradient in gradients:
                gradient.copy_(gradient.to(unit.dtype) / unit.to(gradient.device) * factor.to(gradient.device))

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
        found = {name: _gradients(parameters) for name, parameters in self.layers.items()}
        norms = {name: _joint_norm(gradients) for name, gradients in found.items() if gradients}
        return {name: float(largest) * float(norm) for name, (largest, norm) in norms.items()}

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

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()  # the base class would copy and pickle its own three attributes alone


def _check_arguments(optimizer: object, model: object, speeds: object) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer is a torch optimiser that was built, as SGD(model.parameters()), got {optimizer!r}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is the module whose layers are named, got {type(model).__name__}")
    if not isinstance(speeds, Mapping):
        raise TypeError(f"speeds map globs to numbers, as in {{'0': 500.0, '*': 0.002}}, got {type(speeds).__name__}")


def _layers(
    named: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, by: str
) -> dict[str, list[nn.Parameter]]:
    """The parameters the optimiser moves, gathered by the module (or singly) under the unwrapped model's names."""
    if by not in ("module", "parameter"):
        raise ValueError(f"by is 'module' (a layer's parameters share a norm) or 'parameter', got {by!r}")
    optimised = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in named.items():
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


def _matched(speeds: Mapping[str, Any], layers: list[str]) -> dict[str, Speed]:
    """Each layer's speed by the first glob that matches it; a glob that decides nothing is an error."""
    if not speeds:
        raise ValueError("no speeds given; name at least one layer, as in {'0': 500.0, '*': 0.002}")
    chosen: dict[str, Speed] = {}
    for glob, speed in speeds.items():
        if not callable(speed):
            if isinstance(speed, bool | str) or not hasattr(speed, "__float__"):
                raise TypeError(f"the speed of {glob!r} is a number or a function of the step count, got {speed!r}")
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
    return [torch.view_as_real(value) if value.is_complex() else value for value in values]


def _joint_norm(gradients: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The largest entry of several tensors, and the Frobenius norm of all as one vector in units of it.

    In at least float32, whole even where they are sharded. The norm is the product: squares of entries below 1e-22 or
    above 1e19 have no place in float32, the entries and the two factors do.
    """
    wide = [gradient.to(torch.promote_types(gradient.dtype, torch.float32)) for gradient in gradients]
    largest = _together([torch.linalg.vector_norm(gradient, ord=torch.inf) for gradient in wide]).max()
    unit = torch.where(largest == 0, 1, largest)
    norms = [torch.linalg.vector_norm(gradient / unit.to(gradient.device)) for gradient in wide]
    return largest, torch.linalg.vector_norm(_together(norms))


def _together(numbers: list[Tensor]) -> Tensor:
    whole = [number.full_tensor() if hasattr(number, "full_tensor") else number for number in numbers]
    return torch.stack([number.to(whole[0]) for number in whole])


def _warn_about(optimizer: torch.optim.Optimizer) -> None:
    settings = optimizer.param_groups
    if any(OWN_SIZE & set(group) or ("alpha" in group and "lambd" not in group) for group in settings):
        consequence = "divides each step by its gradients' own size, which undoes constant speeds"
    elif any("history_size" in group for group in settings):
        consequence = "makes its step from differences of limited gradients: it is not as long as its speed"
    elif any(group.get("momentum") for group in settings):
        consequence = "has momentum, which mixes limited gradients: a step is no longer as long as its speed"
    elif any(group.get("weight_decay") or group.get("lambd") for group in settings):
        consequence = "adds weight decay after the limit"
    else:
        return
    warnings.warn(f"{type(optimizer).__name__} {consequence}; the paper's rule is plain SGD", UserWarning, stacklevel=3)
