"""Everything a measurement needs, made ready and checked at the border: model, parameters, probe, reader, rungs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

import torch
from torch import Tensor, nn

from tangentlens.capture.factors import Formed
from tangentlens.capture.float64 import Float64Throughout
from tangentlens.capture.ladder import by_loop, by_vmap
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.probe import Inputs, Probe, probe
from tangentlens.capture.reader import Reader, StructureChanged
from tangentlens.capture.sources import Piece
from tangentlens.capture.undisturbed import eager, refuse_coupled_examples, undisturbed
from tangentlens.errors import BadInput, NonDeterministicModel

Globs = str | Sequence[str]
Result = TypeVar("Result")


@dataclass
class Measurement:
    """A model under measurement. `pieces` gives the gradients of a chunk, whatever the rung that serves them."""

    model: nn.Module
    wanted: dict[str, nn.Parameter]
    outputs: Outputs | None
    reader: Reader
    dtype: torch.dtype
    device: torch.device
    lower_rungs: dict[str, str] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)

    def prepared(self, inputs: Inputs | Probe) -> Probe:
        return probe(inputs).moved(self.device, self.dtype)

    def pieces(self, chunk: Probe, names: Sequence[str], every_position: bool = False) -> dict[str, Piece]:
        """Gradients of every example and output of the chunk with respect to these parameters, piece by piece."""
        trace = self.reader.trace(chunk)
        served = [n for n in trace.names if n in set(names)]
        self.touched.update(trace.names)
        found = trace.pieces(served, every_position) if served else {}
        del trace
        left = [n for n in names if n in self.reader.unreadable]
        if left:
            self.touched.update(left)
            with self.reader.casts():
                formed = self._by_ladder(chunk, left)
            found |= {n: Piece(n, self.wanted[n].shape, [g]) for n, g in formed.items()}
        return found

    def retried(self, work: Callable[[], Result]) -> Result:
        """Run work that captures chunk after chunk; where a later chunk cannot be read like the first, start again."""
        for _ in range(2 + 2 * len(self.wanted)):
            try:
                return work()
            except StructureChanged:
                continue
        raise RuntimeError("the model's graph changes from chunk to chunk in a way no rung can follow")

    def output_count(self, chunk: Probe) -> int:
        return self.reader.run(chunk)[1].shape[1]

    def rung(self, name: str) -> str:
        if name in self.reader.unreadable:
            return self.lower_rungs.get(name, "loop")
        return "rule" if name in self.touched else "unused"

    def _by_ladder(self, chunk: Probe, names: list[str]) -> dict[str, Formed]:
        """vmap where it runs and agrees with the loop on one example (decided once), the loop elsewhere."""
        undecided = [n for n in names if n not in self.lower_rungs]
        if undecided:
            self._choose_rungs(chunk.rows(0, 1), undecided)
        vectorised = [n for n in names if self.lower_rungs[n] == "vmap"]
        looped = [n for n in names if self.lower_rungs[n] == "loop"]
        found: dict[str, Formed] = {}
        if vectorised:
            try:
                found |= by_vmap(self.model, vectorised, self.outputs, chunk)
            except Exception:  # a branch on the data that the first example did not reach
                self.lower_rungs.update(dict.fromkeys(vectorised, "loop"))
                looped += vectorised
        if looped:
            found |= by_loop(self.model, {n: self.wanted[n] for n in looped}, self.outputs, chunk)
        return found

    def _choose_rungs(self, one: Probe, names: list[str]) -> None:
        expected = by_loop(self.model, {n: self.wanted[n] for n in names}, self.outputs, one)
        try:
            got = by_vmap(self.model, names, self.outputs, one)
        except Exception:  # vmap raises many types, and each means the same: not this model
            got = {}
        tolerance = 1e-8 if self.dtype == torch.float64 else 1e-3
        for name in names:
            gradient = expected[name].gradient
            agrees = name in got and (got[name].gradient - gradient).norm() <= tolerance * gradient.norm()
            self.lower_rungs[name] = "vmap" if agrees else "loop"


@contextmanager
def measuring(
    model: nn.Module,
    inputs: Inputs | Probe,
    outputs: Outputs | None = None,
    parameters: Globs | None = None,
    dtype: torch.dtype | None = None,
    check: bool = True,
) -> Iterator[Measurement]:
    """Open a measurement; on leaving it the model is as it was."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"a model must be a torch.nn.Module, got {type(model).__name__}; wrap a function in a module")
    model = eager(model)
    refuse_coupled_examples(model)
    wanted = trainable(model, parameters)
    target = _dtype(wanted, dtype)
    with ExitStack() as stack:
        stack.enter_context(undisturbed(model))
        if any(isinstance(m, nn.RNNBase) for m in model.modules()):
            # The fused recurrent kernels hide their steps; without them a recurrence is matrix products.
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
            stack.enter_context(torch.jit.optimized_execution(False))  # the optimiser folds operations into one node
        if _must_copy(model, target):
            model = _copied(model).to(target)
            named = dict(model.named_parameters())
            wanted = {name: named[name] for name in wanted}
        device = next(iter(wanted.values())).device
        reader = Reader(model, wanted, outputs)
        measurement = Measurement(model, wanted, outputs, reader, target, device)
        ready = measurement.prepared(inputs)
        reader.lifted = target == torch.float64 and _runs_in_float64(measurement, ready.chosen([0]))
        if check:
            _refuse_unstable(measurement, ready)
        yield measurement


@torch.enable_grad()
def _runs_in_float64(measurement: Measurement, one: Probe) -> bool:
    """A model may mix float64 with its own float32 constants and break when casts are lifted: then they stay."""
    try:
        with Float64Throughout():
            one.differentiable().call(measurement.model)
    except RuntimeError:
        return False
    return True


def trainable(model: nn.Module, parameters: Globs | None) -> dict[str, nn.Parameter]:
    """Parameters that are trained and whose name matches, each shared one once."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    if not named:
        frozen = sum(1 for _ in model.parameters())
        raise BadInput(
            f"a tangent kernel needs trainable parameters, got {type(model).__name__} with none "
            f"({frozen} frozen); set requires_grad_(True) on those to measure"
        )
    if parameters is None:
        return named
    globs = [parameters] if isinstance(parameters, str) else list(parameters)
    if not globs:
        raise BadInput(f"parameters= must name at least one, got none; there are {', '.join(list(named)[:8])}")
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in named):
            raise BadInput(
                f"parameters={glob!r} matches no trainable parameter; names are {', '.join(list(named)[:8])}"
                f"{', ...' if len(named) > 8 else ''}"
            )
    return {name: p for name, p in named.items() if any(fnmatchcase(name, glob) for glob in globs)}


def _dtype(wanted: dict[str, nn.Parameter], dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        if dtype not in (torch.float32, torch.float64):
            raise BadInput(f"dtype= must be torch.float32 or torch.float64, got {dtype}; choose one of the two")
        return dtype
    widest = torch.float32
    for p in wanted.values():
        widest = torch.promote_types(widest, p.dtype)
    return widest


def _must_copy(model: nn.Module, target: torch.dtype) -> bool:
    """Another dtype, or a forward pass that rewrites its own parameters (max_norm), is measured on a copy."""
    others = any(p.is_floating_point() and p.dtype != target for p in model.parameters())
    return others or any(getattr(m, "max_norm", None) is not None for m in model.modules())


def _copied(model: nn.Module) -> nn.Module:
    """A deep copy; results that a hook left on a module (weight norm's `weight`) are computed anew."""
    left_over = [
        value
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    ]
    return copy.deepcopy(model, {id(value): value.detach().clone() for value in left_over})


def _refuse_unstable(measurement: Measurement, chunk: Probe) -> None:
    """A kernel needs outputs that are the same twice, finite, and the same whoever else is in the batch."""
    pair = chunk.chosen([0, min(1, chunk.length - 1)])
    alone = chunk.chosen([0])

    def outputs_of(p: Probe) -> Tensor:
        return measurement.reader.run(p)[1].detach()

    once, twice, single = outputs_of(pair), outputs_of(pair), outputs_of(alone)
    if not torch.isfinite(once).all():
        return  # the kernel functions name the first place where it shows
    tolerance = 1e-9 if measurement.dtype == torch.float64 else 1e-4
    scale = max(float(once.abs().max()), 1e-30)
    if (difference := float((once - twice).abs().max())) > tolerance * scale:
        raise NonDeterministicModel(
            f"two runs on the same inputs must agree, got outputs that differ by {difference:.3g}; "
            "call model.eval(), or fix the randomness inside the model"
        )
    if (difference := float((once[0] - single[0]).abs().max())) > 10 * tolerance * scale:
        raise BadInput(
            f"an example's outputs must not depend on the rest of the batch, got a difference of {difference:.3g} for "
            "example 0 alone; look for batch statistics, contrastive heads, or a first axis that is not the example"
        )


__all__ = ["Globs", "Measurement", "measuring", "trainable"]
