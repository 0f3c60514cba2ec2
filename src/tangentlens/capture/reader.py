"""Capture: one forward pass and one backward pass per output give (a, b) at every use of every parameter.

The first pass over a new kind of graph is examined: which values are made of parameters alone, how examples are laid
out, and whether each rule reproduces autograd's own gradient. A parameter that no rule serves, or whose rule
disagrees, is handed to the ladder (`capture/ladder.py`); none is ever left out.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from tangentlens.capture.backward import backward, backward_batched
from tangentlens.capture.casts import Widened
from tangentlens.capture.factors import Factor, detached, merged, without_dead_positions
from tangentlens.capture.graph import (
    Graph,
    Meeting,
    edge_shape,
    inputs_of,
    maybe_pure,
    meetings,
    pulled_back,
    read_graph,
    written_in_python,
)
from tangentlens.capture.layout import (
    Layout,
    Regular,
    binary_codes,
    example_weights,
    ragged_layout,
    regular_layout,
)
from tangentlens.capture.outputs import Outputs, describe_outputs, selected_outputs
from tangentlens.capture.probe import Probe
from tangentlens.capture.rules import LOOKUPS, Reading, reading
from tangentlens.capture.sources import Piece, Source, sources_of
from tangentlens.errors import BadInput

_TOGETHER = 32 << 20


class StructureChanged(Exception):
    """A later chunk cannot be read the way earlier ones were; the work starts again with what was learned."""


@dataclass
class Reader:
    """Reads a model's graphs, and remembers from chunk to chunk what it found."""

    model: nn.Module
    wanted: dict[str, nn.Parameter]
    outputs: Outputs | None
    unreadable: dict[str, str] = field(default_factory=dict)
    gathered: set[str] = field(default_factory=set)
    described_outputs: str = ""
    widened: Widened | None = None
    plain_inputs: bool = False
    _pure: dict[int, frozenset[int]] = field(default_factory=dict)
    _layouts: dict[Any, list[Layout | None]] = field(default_factory=dict)
    _structure: dict[str, frozenset[str]] = field(default_factory=dict)
    _together: dict[int, bool] = field(default_factory=dict)

    @torch.enable_grad()
    def run(self, probe: Probe) -> tuple[Any, Float[Tensor, "example output"]]:
        """The model's answer and its chosen outputs."""
        with self.casts():
            raw = self._answer(probe)
            return raw, selected_outputs(raw, self.outputs, probe.length)

    def _answer(self, probe: Probe) -> Any:
        """A model may do with its inputs what no graph allows (numpy, deepcopy): then they carry none."""
        if not self.plain_inputs:
            try:
                return probe.differentiable().call(self.model)
            except RuntimeError:
                answer = probe.copied().call(self.model)  # an error of the model's own is raised again here
                self.plain_inputs = True
                return answer
        return probe.copied().call(self.model)

    def casts(self) -> AbstractContextManager[Any]:
        """Around every call of the model: what it asks for in less than the precision measured in, it gets in this."""
        return self.widened or nullcontext()

    @torch.enable_grad()
    def trace(self, probe: Probe) -> Trace:
        """Run the model on a chunk and find every use; gradients are read from the trace afterwards."""
        raw, out = self.run(probe)
        self.described_outputs = describe_outputs(raw, self.outputs)
        readable = {name: p for name, p in self.wanted.items() if name not in self.unreadable}
        if out.grad_fn is None:
            return Trace(self, out, Graph([], {}), [], [])
        graph = read_graph(out, readable)
        kind = hash(tuple(node.name() for node in graph.nodes))
        if probe.length == 1 and kind not in self._pure:
            # One example shows nothing of the layout; beside a copy of itself it does.
            self.trace(probe.chosen([0, 0]))
        return self._read(graph, out, kind)

    def _read(self, graph: Graph, out: Tensor, kind: int) -> Trace:
        everything = {id(p): p for p in self.model.parameters()}
        pure = maybe_pure(graph, everything)
        known = self._pure.get(kind)
        if known is not None:
            pure = {node for index, node in enumerate(graph.nodes) if index in known}
        else:
            self._refuse_hidden(graph, out)
            pure = _told_from_constants(graph, pure, out)
            self._pure[kind] = frozenset(i for i, node in enumerate(graph.nodes) if node in pure)
        found = meetings(graph, pure)
        readings = [reading(m.node, m.slot) if m.real else None for m in found]
        trace = Trace(self, out, graph, found, readings, kind=kind)
        key = (kind, len(out), graph.whole_numbers(), tuple(m.result_shape for m in found))
        if key in self._layouts:
            trace.layouts = self._layouts[key]
        else:
            certain = trace.find_layouts()
            if known is None:
                trace.verify()
            if certain and (len(out) == 1 or not graph.rows_may_move(len(out), pure)):
                self._layouts[key] = trace.layouts
        trace.drop_unreadable()
        return trace

    def _refuse_hidden(self, graph: Graph, out: Tensor) -> None:
        """A custom function may run a module of its own in its backward pass: what that reaches is in no graph, but
        gradients arrive at the parameters (which hold none while they are measured)."""
        own = written_in_python(graph)
        if not own:
            return
        gradients_at(out, [GradientEdge(*edge) for node in own for _, edge in inputs_of(node)[:1]], _mixed_outputs(out))
        if hidden := [name for name, p in self.wanted.items() if p.grad is not None]:
            raise BadInput(
                f"every parameter must show in the autograd graph, got {', '.join(hidden[:4])} reached only from the "
                f"backward pass of a custom function ({', '.join(sorted({node.name() for node in own}))}); hand the "
                "function its parameters as tensors, call the module inside it directly, or leave these parameters "
                "out with parameters="
            )

    def fail(self, names: frozenset[str], why: str) -> None:
        for name in names:
            self.unreadable.setdefault(name, why)
        if any(name in self._structure for name in names):
            raise StructureChanged(", ".join(sorted(names)))

    def agree(self, name: str, keys: frozenset[str]) -> None:
        """All chunks must cut a parameter into the same pieces, or products between chunks would miss some."""
        before = self._structure.setdefault(name, keys)
        if before != keys:
            self.gathered.add(name)
            del self._structure[name]
            raise StructureChanged(name)


@dataclass
class Trace:
    """A chunk's graph, the uses found in it and the layout of each."""

    reader: Reader
    out: Float[Tensor, "example output"]
    graph: Graph
    meetings: list[Meeting]
    readings: list[Reading | None]
    layouts: list[Layout | None] = field(default_factory=list)
    kind: int = 0

    @property
    def exact(self) -> bool:
        """Whether every operation ran in float64: comparisons are as strict as the coarsest of them allows."""
        return self.graph.exact

    @property
    def names(self) -> list[str]:
        """Parameters that rules serve here."""
        served = {n for m in self.meetings for n in self.graph.names_behind(m.source)}
        return [n for n in self.reader.wanted if n in served and n not in self.reader.unreadable]

    @torch.no_grad()
    def pieces(self, names: list[str], every_position: bool = False) -> dict[str, Piece]:
        """The factors of these parameters for every example and output of the chunk.

        `every_position` keeps positions aligned between examples, where a reading compares them one by one.
        """
        wanted = frozenset(names)
        chosen = [i for i, m in enumerate(self.meetings) if self.graph.names_behind(m.source) & wanted]
        sources = sources_of([self.meetings[i] for i in chosen], self.graph, self.reader.wanted, self.reader.gathered)
        gradients = self._output_gradients([self.meetings[i].result for i in chosen])
        found: dict[str, list[tuple[Source, Factor]]] = {}
        places: dict[str, list[int]] = {}
        numbers = {node: number for number, node in enumerate(self.graph.nodes)}
        for position, i in enumerate(chosen):
            use, layout = self.readings[i], self.layouts[i]
            assert use is not None and layout is not None  # drop_unreadable() has run
            factor = use.factor(gradients[position], layout, len(self.out), self.meetings[i].source_shape)
            factor = detached(factor, self.out.dtype)
            gradients[position] = torch.empty(0)  # free each (output, *result) block as soon as it is sorted
            factor = factor if every_position else without_dead_positions(factor)
            for source in sources[position]:
                if source.name in wanted:
                    found.setdefault(source.key, []).append((source, source.placed(factor)))
                    places.setdefault(source.key, []).append(numbers[self.meetings[i].node])
        pieces = {}
        for key, parts in found.items():
            source = parts[0][0]
            node = places[key][0] if len(parts) == 1 else None
            pieces[key] = Piece(source.name, source.shape, merged([f for _, f in parts]), source.index, node)
        for name in {p.name for p in pieces.values()}:
            self.reader.agree(name, frozenset(k for k, p in pieces.items() if p.name == name))
        return pieces

    def _output_gradients(self, edges: list[GradientEdge]) -> list[Tensor]:
        """(output, *result) at every edge: several outputs in one backward pass, as many as stay small."""
        n, c = self.out.shape
        largest = max((math.prod(edge_shape((e.node, e.output_nr))) for e in edges), default=0)
        step = min(c, _together_bytes(self.out.device) // max(1, largest * self.out.element_size()))
        if step < 2 or not self._may_go_together():
            step = 1
        each = torch.eye(c, dtype=self.out.dtype, device=self.out.device)
        blocks: list[Tensor] = []
        for start in range(0, c, step):
            found = gradients_together(self.out, edges, each[start : start + step, None].expand(-1, n, -1))
            if step >= c:
                return found
            if not blocks:
                blocks = [g.new_empty(c, *g.shape[1:]) for g in found]
            for block, gradient in zip(blocks, found, strict=True):
                block[start : start + step] = gradient
        return blocks

    def _may_go_together(self) -> bool:
        """Whether every backward function here takes a batch of gradients and gives each its own: asked once for a kind
        of graph, of two combinations of all outputs."""
        if self.kind not in self.reader._together:
            edges, mix = [m.result for m in self.meetings], _mixed_outputs(self.out)
            pair = torch.stack([mix, mix * example_weights(len(mix), mix)[:, None]])
            try:
                together = gradients_together(self.out, edges, pair)
            except Exception:  # what cannot be batched raises many types
                self.reader._together[self.kind] = False
                return False
            alone = [gradients_at(self.out, edges, one) for one in pair]
            floor = 1e-3 * max(float(g.norm()) for g in alone[0])
            self.reader._together[self.kind] = all(
                _close(found[k], g, self.exact, floor)
                for k, gradients in enumerate(alone)
                for found, g in zip(together, gradients, strict=True)
            )
        return self.reader._together[self.kind]

    @torch.no_grad()
    def find_layouts(self) -> bool:
        """Decode every use's layout; says whether each is certain enough to be used again for such chunks."""
        edges = [m.result for m in self.meetings]
        weights = example_weights(len(self.out), self.out)
        mix = _mixed_outputs(self.out)
        plain = gradients_at(self.out, edges, mix)
        weighted = gradients_at(self.out, edges, mix * weights[:, None])
        self.layouts, certain, ragged = [], True, []
        for index, (use, g, gw) in enumerate(zip(self.readings, plain, weighted, strict=True)):
            layout, unique = _layout(use, g, gw, weights, self.exact)
            self.layouts.append(layout)
            certain &= unique or len(self.out) == 1  # of one example's rows all layouts say the same
            if layout is None and use is not None:
                ragged.append(index)
        if ragged:
            self._find_ragged(ragged, plain, weighted, weights, mix)
        return certain and not ragged

    def _find_ragged(
        self, which: list[int], plain: list[Tensor], weighted: list[Tensor], weights: Tensor, mix: Tensor
    ) -> None:
        edges = [self.meetings[i].result for i in which]
        codes = binary_codes(len(self.out), self.out.device)
        passes = [gradients_at(self.out, edges, mix * code[:, None]) for code in codes]
        for position, i in enumerate(which):
            layout = ragged_layout([p[position] for p in passes])
            owner = layout.ids.clamp(min=0)
            if int(owner.max()) >= len(weights):
                continue
            expected = torch.where(layout.ids >= 0, plain[i] * weights[owner], 0)
            if _close(expected, weighted[i], self.exact) and _rows_agree(self.readings[i], layout.ids):
                self.layouts[i] = layout

    @torch.no_grad()
    def verify(self) -> None:
        """Each rule must give autograd's own gradient of a random combination of examples and outputs."""
        without_rule = {
            n for m, use in zip(self.meetings, self.readings, strict=True) if use is None
            for n in self.graph.names_behind(m.source)
        }  # fmt: skip
        present = set(self.graph.leaves.values()) - without_rule
        names = [n for n in self.reader.wanted if n in present]
        if not names:
            return
        cotangent = _mixed_outputs(self.out) * example_weights(len(self.out), self.out)[:, None]
        parameters = [self.reader.wanted[n] for n in names]
        expected = dict(zip(names, gradients_at(self.out, parameters, cotangent), strict=True))
        at_uses = gradients_at(self.out, [m.result for m in self.meetings], cotangent)
        got: dict[str, Tensor] = {}
        for m, use, g in zip(self.meetings, self.readings, at_uses, strict=True):
            if use is None:
                continue
            axis = use.example_axes[0] if use.example_axes else 0
            everyone = Regular(axis, 1, g.shape[axis]) if g.ndim else Regular(0, 1, 1)
            formed = use.factor(g[None], everyone, 1, m.source_shape).formed(m.source_shape).gradient
            formed = formed.reshape(1, *m.source_shape)
            for name in self.graph.names_behind(m.source):
                pulled = pulled_back(m.source, self.reader.wanted[name], formed)[0]
                got[name] = got[name] + pulled if name in got else pulled
        # A gradient that is zero but for rounding (a bias before a norm) is compared on the scale of the others.
        floor = 1e-3 * max((float(g.norm()) for g in expected.values()), default=0.0)
        for name in names:
            if name in got and not _close(got[name], expected[name], self.exact, floor):
                finite = bool(torch.isfinite(expected[name]).all())
                why = "its rule disagrees with autograd" if finite else "its gradient is not finite"
                self.reader.fail(frozenset([name]), why)
            elif name not in got:
                self.reader.fail(frozenset([name]), "meets data where no rule can see it")

    def drop_unreadable(self) -> None:
        for m, use, layout in zip(self.meetings, self.readings, self.layouts, strict=True):
            names = self.graph.names_behind(m.source)
            if use is None:
                self.reader.fail(names, f"no rule for {m.node.name()}")
            elif layout is None:
                self.reader.fail(names, f"examples cannot be told apart at {m.node.name()}")
        keep = [i for i, m in enumerate(self.meetings) if self.readings[i] is not None and self.layouts[i] is not None]
        self.meetings = [self.meetings[i] for i in keep]
        self.readings = [self.readings[i] for i in keep]
        self.layouts = [self.layouts[i] for i in keep]


def gradients_at(out: Tensor, where: list[Any], cotangent: Tensor) -> list[Tensor]:
    if not where:
        return []
    found = backward(out, cotangent, where)
    return [
        _zeros_at(w, out) if g is None else g.to_dense() if g.is_sparse else g
        for w, g in zip(where, found, strict=True)
    ]


def gradients_together(
    out: Tensor, edges: list[GradientEdge], cotangents: Float[Tensor, "combination example output"]
) -> list[Tensor]:
    """(combination, *result) at every edge, in one backward pass."""
    if len(cotangents) == 1:
        return [g[None] for g in gradients_at(out, edges, cotangents[0])]
    found = backward_batched(out, cotangents, edges)
    return [
        _zeros_at(e, out).expand(len(cotangents), *edge_shape((e.node, e.output_nr))) if g is None else g
        for e, g in zip(edges, found, strict=True)
    ]


def _together_bytes(device: torch.device) -> int:
    """How much of the largest result a backward pass of several outputs may hold: little beside a whole capture."""
    on_card = device.type == "cuda"
    return torch.cuda.get_device_properties(device).total_memory // 64 if on_card else _TOGETHER


def _zeros_at(where: Any, like: Tensor) -> Tensor:
    return (
        torch.zeros_like(where)
        if isinstance(where, Tensor)
        else like.new_zeros(edge_shape((where.node, where.output_nr)))
    )


def _told_from_constants(graph: Graph, maybe: set[Any], out: Tensor) -> set[Any]:
    """Of the nodes fed by parameters alone, drop those whose result belongs to single examples: data without a
    gradient (token ids, masks) entered there."""
    candidates = [n for n in graph.nodes if n in maybe and inputs_of(n)]
    weights = example_weights(len(out), out)
    mix = _mixed_outputs(out)
    edges = [GradientEdge(n, 0) for n in candidates]
    plain = dict(zip(candidates, gradients_at(out, edges, mix), strict=True))
    weighted = dict(zip(candidates, gradients_at(out, edges, mix * weights[:, None]), strict=True))
    pure = set(maybe)
    for node in candidates:
        edges_in = inputs_of(node)
        if any(edge[0] not in pure for _, edge in edges_in):
            pure.discard(node)
            continue
        uses = [reading(node, slot) for slot, _ in edges_in]
        if any(use is None for use in uses) and node.name() not in LOOKUPS:
            continue  # a view or a function of parameters: what it makes is a parameter still
        axes = () if uses[0] is None else uses[0].example_axes
        if regular_layout(plain[node], weighted[node], weights, axes, graph.exact)[0] is not None:
            pure.discard(node)
    return pure


def _layout(
    use: Reading | None, plain: Tensor, weighted: Tensor, weights: Tensor, exact: bool
) -> tuple[Layout | None, bool]:
    if use is None:
        return None, False
    return regular_layout(plain, weighted, weights, use.example_axes, exact)


def _mixed_outputs(out: Tensor) -> Tensor:
    """A fixed random combination of the outputs, the same for every example."""
    generator = torch.Generator().manual_seed(out.shape[1])
    return torch.randn(out.shape[1], generator=generator, dtype=torch.float64).to(out).expand_as(out)


def _close(got: Tensor, expected: Tensor, exact: bool, floor: float = 0.0) -> bool:
    tolerance = 1e-8 if exact else 1e-3
    return bool((got - expected).norm() <= tolerance * max(float(expected.norm()), floor))


def _rows_agree(use: Reading | None, ids: Tensor) -> bool:
    """A row is one example's: everything in it that any output depends on belongs to the same one."""
    if use is None or len(use.example_axes) == 0:
        return True
    others = [d for d in range(ids.ndim) if d not in use.example_axes]
    if not others:
        return True
    highest = ids.amax(others, keepdim=True)
    return bool(((ids == highest) | (ids < 0)).all())
