"""Read the autograd graph of a forward pass: where does each parameter meet the data?

The graph is the one witness that cannot miss a use: whatever wrote the model (modules, raw parameters, functional
calls, composite or fused functions, checkpointing), a gradient reaches a parameter only along its edges, and the
operation's own saved tensors are the inputs `a` of that use. A `GradientEdge` names an operation's result as it was
at that moment, so later in-place changes do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tangentlens.capture.backward import backward, backward_batched

Node = Any
Edge = tuple[Node, int]


@dataclass(frozen=True)
class Meeting:
    """An operation at which something made of parameters alone enters at `slot` and data enters elsewhere."""

    node: Node
    slot: int
    source: Edge

    @property
    def result(self) -> GradientEdge:
        return GradientEdge(self.node, 0)

    @property
    def result_shape(self) -> torch.Size:
        return edge_shape((self.node, 0))

    @property
    def source_shape(self) -> torch.Size:
        return edge_shape(self.source)

    @property
    def real(self) -> bool:
        """Rules are for real numbers: with complex ones a gradient carries conjugates."""
        return not any(edge_dtype(edge).is_complex for edge in ((self.node, 0), self.source))


@dataclass
class Graph:
    """A forward pass in topological order (inputs first), with the leaves that are parameters named."""

    nodes: list[Node]
    leaves: dict[Node, str]
    behind: dict[Node, frozenset[str]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Every operation ran in float64."""
        return all(
            m.dtype == torch.float64 or not m.dtype.is_floating_point
            for node in self.nodes
            for m in getattr(node, "_input_metadata", ())
        )

    def rows_may_move(self, examples: int, pure: set[Node]) -> bool:
        """Whether the data may decide which rows there are, and so whose: then no chunk tells about the next. Rows made
        of parameters alone (a table of positions) are nobody's."""
        return any(_moves_rows(node, examples) for node in self.nodes if node not in pure)

    def whole_numbers(self) -> int:
        """Fingerprint of where slices are cut, rows selected, axes rolled: the data may have decided those as well."""
        kinds = [(node, _plain_settings(type(node))) for node in self.nodes]  # type: ignore[arg-type]
        return hash(tuple(_number(getattr(node, name)) for node, names in kinds for name in names))

    def names_behind(self, edge: Edge) -> frozenset[str]:
        """The measured parameters that a value made of parameters alone depends on."""
        return self.behind[edge[0]]


_MOVING = ("Index", "Gather", "Scatter", "Masked", "Sort", "Topk", "Take", "Nonzero", "Unique", "RepeatInterleave")
_FULL_BACKWARD_HOOK = "BackwardHookFunctionBackward"


def _moves_rows(node: Node, examples: int) -> bool:
    name = node.name()
    if isinstance(node, torch.autograd.function.FunctionCtx):  # a function of the user's may do anything
        return name != _FULL_BACKWARD_HOOK
    if name == "EmbeddingBackward0":  # token numbers carry no gradient: a flat list of them may be packed
        return node._saved_indices.ndim == 1 and len(node._saved_indices) != examples
    return name.startswith(_MOVING) and name != "MaskedFillBackward0"


@cache
def _plain_settings(kind: Hashable) -> tuple[str, ...]:
    """The settings an operation keeps that are not tensors, whose unpacking may cost."""
    names = dir(kind)
    return tuple(n for n in names if n.startswith("_saved_") and f"_raw{n}" not in names)


def _number(setting: Any) -> Any:
    return setting if isinstance(setting, int) else tuple(setting) if isinstance(setting, tuple | list) else None


def read_graph(outputs: Tensor, parameters: Mapping[str, Tensor]) -> Graph:
    """Nodes reachable from the outputs; parameters are known by identity, a shared one under its first name."""
    by_identity = {id(p): name for name, p in parameters.items()}
    nodes, leaves = [], {}
    for node in _inputs_first(outputs.grad_fn):
        nodes.append(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor) and id(variable) in by_identity:
            leaves[node] = by_identity[id(variable)]
    return Graph(nodes, leaves)


def edge_shape(edge: Edge) -> torch.Size:
    node, number = edge
    variable = getattr(node, "variable", None)
    return variable.shape if isinstance(variable, Tensor) else torch.Size(node._input_metadata[number].shape)


def edge_dtype(edge: Edge) -> torch.dtype:
    node, number = edge
    variable = getattr(node, "variable", None)
    return variable.dtype if isinstance(variable, Tensor) else node._input_metadata[number].dtype


def written_in_python(graph: Graph) -> list[Node]:
    """Operations whose backward pass is a function of the user's, which may run anything."""
    return [node for node in graph.nodes if isinstance(node, torch.autograd.function.FunctionCtx)]


def inputs_of(node: Node) -> list[tuple[int, Edge]]:
    return [(slot, edge) for slot, edge in enumerate(node.next_functions) if edge[0] is not None]


def maybe_pure(graph: Graph, everything: Mapping[int, Tensor]) -> set[Node]:
    """Nodes that may be made of parameters alone: nothing that carries data's gradient flows in.

    Data without a gradient (token ids, masks) is invisible here; `Decoder` tells those from constants.
    """
    pure: set[Node] = set()
    for node in graph.nodes:
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            if id(variable) in everything:
                pure.add(node)
        elif (edges := inputs_of(node)) and all(edge[0] in pure for _, edge in edges):
            pure.add(node)
    return pure


def meetings(graph: Graph, pure: set[Node]) -> list[Meeting]:
    """Every place where a pure value enters an operation that is not pure, for the parameters that are measured."""
    found = []
    for node in graph.nodes:
        if node in graph.leaves:
            graph.behind[node] = frozenset([graph.leaves[node]])
        elif node in pure:
            graph.behind[node] = frozenset().union(*(graph.behind.get(e[0], frozenset()) for _, e in inputs_of(node)))
        else:
            for slot, edge in inputs_of(node):
                if edge[0] in pure and graph.behind.get(edge[0]):
                    found.append(Meeting(node, slot, edge))
    return found


def pulled_back(source: Edge, parameter: Tensor, gradients: Tensor) -> Tensor:
    """Carry gradients with respect to a pure value back to a parameter it is made of; leading axis batched."""
    if source[0] is _leaf(parameter):
        return gradients
    leading = gradients.shape[: gradients.ndim - len(edge_shape(source))]
    flat = gradients.reshape(leading.numel(), *edge_shape(source))
    edge = GradientEdge(*source)
    pulled: Tensor | None
    try:
        (pulled,) = backward_batched(edge, flat, (parameter,))
    except RuntimeError:  # an operation without a batching rule: one row at a time gives the same numbers
        rows = [r for g in flat for r in backward(edge, g, (parameter,)) if r is not None]
        pulled = torch.stack(rows) if len(rows) == len(flat) else None
    if pulled is None:
        pulled = parameter.new_zeros(len(flat), *parameter.shape)
    return pulled.reshape(*leading, *parameter.shape)


def _leaf(parameter: Tensor) -> Node:
    return torch.autograd.graph.get_gradient_edge(parameter).node


def _inputs_first(root: Node | None) -> Iterable[Node]:
    """Depth first without recursion: recurrent models make graphs deeper than Python's stack."""
    if root is None:
        return []
    order: list[Node] = []
    done: set[Node] = set()
    pending: dict[Node, int] = defaultdict(int)
    stack = [root]
    while stack:
        node = stack[-1]
        children = node.next_functions
        while pending[node] < len(children):
            child = children[pending[node]][0]
            pending[node] += 1
            if child is not None and child not in done and child not in pending:
                stack.append(child)
                break
        else:
            stack.pop()
            if node not in done:
                done.add(node)
                order.append(node)
    return order
