"""One recorded step, as measures see it: the model, the probe, and readings made once and shared by all who ask."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.outputs import Outputs, selected_outputs
from tangentlens.capture.probe import Probe
from tangentlens.distributed import Ranks
from tangentlens.record.asked import check_finite

if TYPE_CHECKING:
    from tangentlens.kernels import Features, LayerMoments

Reading = TypeVar("Reading")
ROWS = 1024
"""Examples in one forward pass without gradients."""


class Snapshot:
    """What one recorded step offers. Each reading is computed once, when first asked for.

    `model` is the eager module in eval mode, to be looked at and not changed. `beginning` is the snapshot of the
    network before training; its readings are kept for the whole run.
    """

    def __init__(
        self,
        step: int,
        model: nn.Module,
        probe: Probe,
        targets: Tensor | None = None,
        *,
        outputs: Outputs | None = None,
        scalars: Mapping[str, float] | None = None,
        beginning: Callable[[], Snapshot] | None = None,
    ) -> None:
        self.step, self.model, self.probe, self.targets = step, model, probe, targets
        self.select, self.scalars = outputs, dict(scalars or {})
        self.notes: dict[str, dict[str, Any]] = {}
        """Attributes for groups of the record, by group, the run itself under "": what is said beside the numbers."""
        self.chosen: Tensor | None = None
        """Positions of these examples in the whole probe; None when this is the whole probe."""
        self.crew: Callable[[str, list[int] | None], Ranks] | None = None
        """Calls the other processes to a reading, where they share the work; None where this one works alone."""
        self._beginning = beginning
        self._readings: dict[Any, Any] = {}

    def shares_readings_of(self, other: Snapshot) -> Snapshot:
        """This step, with everything read from another one that has the same weights."""
        self._readings = other._readings
        return self

    @property
    def inputs(self) -> Any:
        return self.probe.inputs

    def reading(self, function: Callable[..., Reading], *settings: Any) -> Reading:
        """`function(snapshot, *settings)`, computed once a step: how several measures share one piece of work."""
        key = (function, *settings)
        if key not in self._readings:
            self._readings[key] = function(self, *settings)
        return self._readings[key]

    @property
    def beginning(self) -> Snapshot:
        """The network before training, on the same probe."""
        if self._beginning is None:
            raise ValueError(
                "the initial network was not kept; add needs=frozenset({'initial'}) to the measure that asks"
            )
        return self._beginning()

    @property
    def initial(self) -> dict[str, Tensor]:
        """Parameters before training, by name."""
        return dict(self.beginning.model.named_parameters())

    def subset(self, examples: int | None, seed: int = 0) -> Snapshot:
        """The same step on fewer examples, drawn once for the run: everything when there are no more than that."""
        if examples is None or examples >= self.probe.length:
            return self
        return self.reading(_subset, examples, seed)

    @property
    def outputs(self) -> Float[Tensor, "example output"]:
        """What the model says on the probe, without gradients."""
        return self.reading(_outputs)

    def entk(self) -> Float[Tensor, "example example"]:
        """The tangent kernel averaged over outputs."""
        return self.reading(_entk)

    def entk_by_layer(self) -> dict[str, Float[Tensor, "example example"]]:
        """Its parts, module by module."""
        return self.reading(_entk_by_layer)

    def layer_moments(self) -> dict[str, LayerMoments]:
        """Weight, tangent covariance and input moment of every layer."""
        return self.reading(_layer_moments)

    def features(self) -> Features:
        """The input of the head."""
        return self.reading(_features)


def _subset(snapshot: Snapshot, examples: int, seed: int) -> Snapshot:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(snapshot.probe.length, generator=generator)[:examples].sort().values
    targets = None if snapshot.targets is None else snapshot.targets[chosen.to(snapshot.targets.device)]
    beginning = None
    if snapshot._beginning is not None:
        whole = snapshot._beginning
        beginning = lambda: whole().subset(examples, seed)  # noqa: E731
    part = Snapshot(
        snapshot.step, snapshot.model, snapshot.probe.chosen(chosen.tolist()), targets,
        outputs=snapshot.select, scalars=snapshot.scalars, beginning=beginning,
    )  # fmt: skip
    part.notes = snapshot.notes
    part.chosen = chosen
    part.crew = snapshot.crew
    return part


def _outputs(snapshot: Snapshot) -> Tensor:
    rows = []
    with torch.no_grad():
        for start in range(0, snapshot.probe.length, ROWS):
            part = snapshot.probe.rows(start, start + ROWS)
            rows.append(selected_outputs(part.call(snapshot.model), snapshot.select, part.length))
    return torch.cat(rows)


def _called(snapshot: Snapshot, reading: str) -> Ranks:
    """The processes that take part in a reading: all of them, or this one alone."""
    if snapshot.crew is None:
        return None
    return snapshot.crew(reading, None if snapshot.chosen is None else snapshot.chosen.tolist())


def take_part(reading: str, model: nn.Module, probe: Probe, outputs: Outputs | None, ranks: Ranks) -> None:
    """The other processes' side of a reading that the first one asked for."""
    from tangentlens import kernels

    getattr(kernels, reading)(model, probe.inputs, outputs=outputs, ranks=ranks)


def _entk(snapshot: Snapshot) -> Tensor:
    from tangentlens.kernels import entk

    return entk(snapshot.model, snapshot.inputs, outputs=snapshot.select, ranks=_called(snapshot, "entk")).detach()


def _entk_by_layer(snapshot: Snapshot) -> dict[str, Tensor]:
    from tangentlens.kernels import entk_by_layer

    ranks = _called(snapshot, "entk_by_layer")
    parts = entk_by_layer(snapshot.model, snapshot.inputs, outputs=snapshot.select, ranks=ranks)
    return {layer: part.detach() for layer, part in parts.items()}


def _layer_moments(snapshot: Snapshot) -> dict[str, LayerMoments]:
    from tangentlens.kernels import layer_moments

    ranks = _called(snapshot, "layer_moments")
    moments = layer_moments(snapshot.model, snapshot.inputs, outputs=snapshot.select, ranks=ranks)
    # weights are copied: those of the beginning are kept, and the live ones train on
    return {layer: replace(found, weight=found.weight.detach().clone()) for layer, found in moments.items()}


def _features(snapshot: Snapshot) -> Features:
    from tangentlens.kernels import features

    check_finite(snapshot.outputs)
    found = features(snapshot.model, snapshot.inputs, outputs=snapshot.select)
    return replace(found, values=found.values.detach(), outputs=found.outputs.detach())


class Beginning:
    """The network before training, built when first asked for and kept with its readings."""

    def __init__(self, state: dict[str, Tensor], model: nn.Module, probe: Probe, targets: Tensor | None,
                 outputs: Outputs | None) -> None:  # fmt: skip
        self.state, self._like, self._probe, self._targets, self._outputs = state, model, probe, targets, outputs
        self._snapshot: Snapshot | None = None

    def __call__(self) -> Snapshot:
        if self._snapshot is None:
            model = copied(self._like)
            with torch.no_grad():
                for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                    tensor.copy_(self.state[name])
            for module in model.modules():
                module.training = False
            self._snapshot = Snapshot(
                0, model, self._probe, self._targets, outputs=self._outputs, beginning=lambda: self()
            )
        return self._snapshot

    def is_still(self, model: nn.Module) -> bool:
        """Whether the model has not been trained yet."""
        tensors = (*model.named_parameters(), *model.named_buffers())
        return all(torch.equal(tensor, self.state[name]) for name, tensor in tensors)


def copied(model: nn.Module) -> nn.Module:
    """A copy of a module, computed attributes included (old weight norm keeps one, which deepcopy refuses)."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(model, memo)
