"""What stands between a use and its parameter: nothing, a transpose, a cut-out, or any function of parameters alone.

A cut-out (rows of a packed weight, a reshaped or permuted matrix, the looked-up part of a position table) keeps inner
products, so kernels are taken in its own coordinates and nothing is copied. It is recognised by its gradient: pulling
back the numbers 1, 2, 3, ... puts each at one place. Anything else (weight norm, products of parameters) is formed and
pulled back, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import torch
from torch import Tensor

from tangentlens.capture.factors import Factor, Formed, Outer
from tangentlens.capture.graph import Edge, Graph, Meeting, Node, pulled_back

_TRANSPOSES = {"TBackward0", "TransposeBackward0", "PermuteBackward0"}
_COUNTABLE = 1 << 24  # whole numbers float32 can hold


@dataclass(frozen=True)
class Piece:
    """A parameter, or a part of one no other use touches, with its gradient for every example and output.

    `index` says where the part lies in the flat parameter; `node` is its one use's place in the graph, which a weight
    and its bias share.
    """

    name: str
    shape: torch.Size
    factors: list[Factor]
    index: Tensor | None = None
    node: int | None = None

    def values(self, parameter: Tensor) -> Tensor:
        """This piece of the parameter itself."""
        return parameter if self.index is None else parameter.flatten()[self.index].view(self.shape)


@dataclass(frozen=True)
class Source:
    """How a factor at a use becomes a factor of (a piece of) the parameter `name`."""

    name: str
    key: str
    shape: torch.Size
    transposed: bool = False
    edge: Edge | None = None
    parameter: Tensor | None = None
    use_shape: torch.Size | None = None
    index: Tensor | None = None

    def placed(self, factor: Factor) -> Factor:
        if self.edge is not None and self.parameter is not None and self.use_shape is not None:
            gradient = factor.formed(self.use_shape).gradient
            n, c = gradient.shape[:2]
            flat = gradient.reshape(n * c, *self.use_shape)
            return Formed(pulled_back(self.edge, self.parameter, flat).reshape(n, c, *self.shape))
        if not self.transposed:
            return factor
        if isinstance(factor, Outer):
            return replace(factor, flipped=not factor.flipped)
        return Formed(factor.formed(torch.Size(reversed(self.shape))).gradient.transpose(2, 3))


def sources_of(
    met: list[Meeting], graph: Graph, parameters: Mapping[str, Tensor], gathered: set[str]
) -> list[list[Source]]:
    """For each use the pieces it contributes to, such that two pieces of one parameter never overlap."""
    found: list[list[Source]] = []
    cuts: dict[str, dict[str, Tensor | None]] = {}
    for m in met:
        here = [_source(m, name, parameters[name], graph, cuts.setdefault(name, {})) for name in _behind(m, graph)]
        found.append(here)
    whole = gathered | {name for name, parts in cuts.items() if _overlap(parts, parameters[name].numel())}
    return [
        [_pulled(m, s.name, parameters[s.name]) if s.name in whole and s.key != s.name else s for s in here]
        for m, here in zip(met, found, strict=True)
    ]


def _behind(m: Meeting, graph: Graph) -> list[str]:
    return sorted(graph.names_behind(m.source))


def _source(m: Meeting, name: str, parameter: Tensor, graph: Graph, cuts: dict[str, Tensor | None]) -> Source:
    node = m.source[0]
    if node in graph.leaves:
        cuts[name] = None
        return Source(name, name, parameter.shape)
    below = node.next_functions[0][0]
    if node.name() in _TRANSPOSES and parameter.ndim == 2 and below in graph.leaves and _swaps(node):
        cuts[name] = None
        return Source(name, name, parameter.shape, transposed=True)
    index = _cut_out(m, parameter) if len(graph.names_behind(m.source)) == 1 else None
    if index is None:
        cuts[name] = None
        return _pulled(m, name, parameter)
    key = f"{name}[{_fingerprint(index)}]"
    cuts[key] = index
    return Source(name, key, m.source_shape, index=index)


def _pulled(m: Meeting, name: str, parameter: Tensor) -> Source:
    return Source(name, name, parameter.shape, edge=m.source, parameter=parameter, use_shape=m.source_shape)


def _swaps(node: Node) -> bool:
    """For a matrix every transpose or permutation is the swap, or nothing at all."""
    dims = getattr(node, "_saved_dims", None)
    if dims is not None:
        return [d % 2 if d < 1 << 62 else (d - (1 << 64)) % 2 for d in dims] == [1, 0]
    if hasattr(node, "_saved_dim0"):
        return (node._saved_dim0 - node._saved_dim1) % 2 == 1
    return True


def _cut_out(m: Meeting, parameter: Tensor) -> Tensor | None:
    """Where in the flat parameter each entry of the use's value lies, if it is a selection without repetition."""
    size = m.source_shape.numel()
    if size >= _COUNTABLE or size > parameter.numel():
        return None
    numbers = torch.arange(1, size + 1, dtype=parameter.dtype, device=parameter.device).view(1, *m.source_shape)
    landed = pulled_back(m.source, parameter, numbers)[0].flatten()
    places = landed.nonzero().flatten()
    if len(places) != size:
        return None
    values = landed[places]
    order = torch.argsort(values)
    if not torch.equal(values[order], numbers.flatten()):
        return None
    return places[order]


def _overlap(cuts: dict[str, Tensor | None], size: int) -> bool:
    indices = list(cuts.values())
    if len(indices) <= 1:
        return False
    if any(index is None for index in indices):
        return True
    together = torch.cat([index for index in indices if index is not None])
    return len(torch.unique(together)) < len(together)


def _fingerprint(index: Tensor) -> str:
    """The same places in the same order, whichever chunk they are seen in, and no others."""
    return f"{int(index[0])}+{len(index)}#{blake2b(index.cpu().numpy().tobytes(), digest_size=16).hexdigest()}"
