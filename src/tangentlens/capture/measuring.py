"""Everything a measurement needs, made ready and checked at the border: model, parameters, probe, reader, rungs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tangentlens.capture.casts import HALVES, Widened
from tangentlens.capture.factors import Formed
from tangentlens.capture.graph import read_graph
from tangentlens.capture.ladder import by_loop, by_vmap
from tangentlens.capture.outputs import Outputs
from tangentlens.capture.precision import products_in
from tangentlens.capture.probe import Inputs, Probe, of_precision, probe
from tangentlens.capture.reader import Reader, StructureChanged
from tangentlens.capture.sources import Piece
from tangentlens.capture.undisturbed import eager, refuse_coupled_examples, undisturbed
from tangentlens.capture.writes import ParametersGuarded, ParametersWritten
from tangentlens.errors import BadInput, NonDeterministicModel

Globs = str | Sequence[str]
Result = TypeVar("Result")

_FEW = 3  # examples on which rungs are compared


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
            found |= {n: Piece(n, g.gradient.shape[2:], [g]) for n, g in formed.items()}
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
        """vmap where it runs and agrees with the loop on a few examples (decided once), the loop elsewhere."""
        undecided = [n for n in names if n not in self.lower_rungs]
        if undecided:
            self._choose_rungs(chunk.rows(0, _FEW), undecided)
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

    def _choose_rungs(self, few: Probe, names: list[str]) -> None:
        """On several examples: of one alone vmap can be right by chance of having nothing to batch."""
        expected = by_loop(self.model, {n: self.wanted[n] for n in names}, self.outputs, few)
        try:
            got = by_vmap(self.model, names, self.outputs, few)
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
    _refuse_without_values(model)
    refuse_coupled_examples(model)
    wanted = trainable(model, parameters)
    target = _dtype(wanted, dtype)
    with ExitStack() as stack:
        stack.enter_context(undisturbed(model))
        stack.enter_context(products_in(None))
        if any(isinstance(m, nn.RNNBase) for m in model.modules()):
            # The fused recurrent kernels hide their steps; without them a recurrence is matrix products.
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        if any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
            stack.enter_context(torch.jit.optimized_execution(False))  # the optimiser folds operations into one node
        in_place = all(of_precision(p.dtype, target) == p.dtype for p in model.parameters())
        narrower = HALVES & {p.dtype for p in model.parameters()}
        begin = partial(
            _begun, names=wanted, outputs=outputs, target=target, inputs=inputs, check=check, narrower=narrower
        )
        measurement: Measurement | None = None
        if in_place:
            with suppress(ParametersWritten), ParametersGuarded(model):
                measurement = begin(model)
        yield measurement or _begun_on_a_copy(begin, model, target, inputs)


def _begun_on_a_copy(
    begin: Callable[[nn.Module], Measurement], model: nn.Module, target: torch.dtype, inputs: Inputs | Probe
) -> Measurement:
    """On a copy in another precision. What a module keeps that was made of its parameters before forward has lost them
    there: nothing is missed where forward makes it anew (weight norm's `weight`)."""
    made_before = {
        id(value): value.detach().to(of_precision(value.dtype, target), copy=True).requires_grad_(value.requires_grad)
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    measurement = begin(_copied(model, target, made_before))
    if made_before:
        _refuse_made_before(measurement, {id(value) for value in made_before.values()}, inputs)
    return measurement


def _begun(
    model: nn.Module,
    names: Iterable[str],
    outputs: Outputs | None,
    target: torch.dtype,
    inputs: Inputs | Probe,
    check: bool,
    narrower: frozenset[torch.dtype],
) -> Measurement:
    """A measurement whose model has run, and if asked, has shown that it has a kernel."""
    named = dict(model.named_parameters())
    wanted = {name: named[name] for name in names}
    complex_valued = {name: "it is complex" for name, p in wanted.items() if p.is_complex()}
    reader = Reader(model, wanted, outputs, complex_valued)
    measurement = Measurement(model, wanted, outputs, reader, target, next(iter(wanted.values())).device)
    ready = measurement.prepared(inputs)
    one = ready.chosen([0])
    if target == torch.float64:
        narrower |= {torch.float32}
    if narrower and not _runs_widened(reader, one, Widened(target, narrower)):
        reader.widened = None
    if check:
        _refuse_unstable(measurement, ready)
    else:
        reader.run(one)
    return measurement


def _runs_widened(reader: Reader, one: Probe, widened: Widened) -> bool:
    """A model may mix float64 with its own float32 constants and break when casts are lifted: then they stay."""
    reader.widened = widened
    try:
        reader.run(one)
    except RuntimeError:
        return False
    return True


def _refuse_without_values(model: nn.Module) -> None:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            raise BadInput(
                f"a kernel needs the values of all parameters and buffers, got {name} without any "
                f"({'lazy' if is_lazy(tensor) else 'on the meta device'}); run the model once, or load its weights"
            )


def trainable(model: nn.Module, parameters: Globs | None) -> dict[str, nn.Parameter]:
    """Parameters that are trained and of whose names one matches; a shared one counts once, under its first name."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}  # whole numbers cannot
    if not named:
        frozen = sum(1 for _ in model.parameters())
        raise BadInput(
            f"a tangent kernel needs trainable parameters, got {type(model).__name__} with none "
            f"({frozen} frozen); set requires_grad_(True) on those to measure"
        )
    if parameters is None:
        return named
    if not isinstance(parameters, str | Sequence):
        raise TypeError(
            f"parameters= must be a name or glob, or a list of them, got {type(parameters).__name__}; "
            f"there are {', '.join(list(named)[:8])}"
        )
    globs = [parameters] if isinstance(parameters, str) else list(parameters)
    if not globs:
        raise BadInput(f"parameters= must name at least one, got none; there are {', '.join(list(named)[:8])}")
    first = {id(p): name for name, p in named.items()}
    every = {name: first[id(p)] for name, p in model.named_parameters(remove_duplicate=False) if id(p) in first}
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in every):
            raise BadInput(
                f"parameters={glob!r} matches no trainable parameter; names are {', '.join(list(named)[:8])}"
                f"{', ...' if len(named) > 8 else ''}"
            )
    matched = {owner for name, owner in every.items() if any(fnmatchcase(name, glob) for glob in globs)}
    return {name: p for name, p in named.items() if name in matched}


def _dtype(wanted: dict[str, nn.Parameter], dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        if dtype not in (torch.float32, torch.float64):
            raise BadInput(f"dtype= must be torch.float32 or torch.float64, got {dtype}; choose one of the two")
        return dtype
    widest = torch.float32
    for p in wanted.values():
        widest = torch.promote_types(widest, p.dtype.to_real())
    return widest


def _copied(model: nn.Module, target: torch.dtype, stand_ins: dict[int, Tensor]) -> nn.Module:
    """A deep copy in another precision, complex numbers too, which Module.to() would make real."""
    model = copy.deepcopy(model, dict(stand_ins))
    return model._apply(lambda tensor: tensor.to(of_precision(tensor.dtype, target)))


def _refuse_made_before(measurement: Measurement, stand_ins: set[int], inputs: Inputs | Probe) -> None:
    out = measurement.reader.run(measurement.prepared(inputs).chosen([0]))[1]
    used = {id(node.variable) for node in read_graph(out, {}).nodes if hasattr(node, "variable")}
    for name, module in measurement.model.named_modules():
        for attribute, value in vars(module).items():
            if id(value) in stand_ins & used:
                place = ".".join(filter(None, [name, attribute]))
                raise BadInput(
                    f"measuring in {str(measurement.dtype).removeprefix('torch.')}, on a copy, needs a forward that "
                    f"makes everything from the parameters, got {place} made of them beforehand; make it in forward, "
                    "or measure in the model's own dtype"
                )


def _refuse_unstable(measurement: Measurement, probe: Probe) -> None:
    """A kernel needs outputs that are the same twice, finite, and the same whoever else is in the batch.

    A few examples from all over the probe, the first of them alone, and the others without it: whoever of them a
    batch depends on, somewhere he is missing.
    """
    last = probe.length - 1
    together = probe.chosen([0, last // 3, (2 * last + 2) // 3, last])

    def outputs_of(p: Probe) -> Tensor:
        return measurement.reader.run(p)[1].detach()

    once = outputs_of(together)
    apart = torch.cat([outputs_of(together.rows(0, 1)), outputs_of(together.rows(1, 4))])
    if not torch.isfinite(once).all():
        return  # the kernel functions name the first place where it shows
    tolerance = 1e-9 if measurement.dtype == torch.float64 else 1e-4
    allowed = tolerance * max(float(once.abs().max()), 1e-30)
    by_example = (once - apart).abs().amax(1)
    if not (by_example > allowed).any():
        return
    if (difference := float((once - outputs_of(together)).abs().max())) > allowed:
        raise NonDeterministicModel(
            f"two runs on the same inputs must agree, got outputs that differ by {difference:.3g}; "
            "call model.eval(), or fix the randomness inside the model"
        )
    if (difference := float(by_example.max())) > 10 * allowed:
        raise BadInput(
            f"an example's outputs must not depend on the rest of the batch, got a difference of {difference:.3g} for "
            "the same example among others; look for batch statistics, contrastive heads, or a first axis that is not "
            "the example"
        )


__all__ = ["Globs", "Measurement", "measuring", "trainable"]
