"""Find a model's head: the last linear map its outputs come from, whatever it is written with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tangentlens.capture.outputs import Outputs, selected_outputs
from tangentlens.capture.probe import Probe
from tangentlens.errors import BadInput
from tangentlens.kernels.linear_maps import LinearMap, linear_map


@dataclass(frozen=True)
class Call:
    """One use of a linear map in a forward pass: which, where, its result and that one's node in the autograd graph."""

    map: LinearMap
    name: str
    result: Tensor
    node: Any


class LinearCalls(TorchFunctionMode):
    """Sees every linear map of a forward pass through a parameter, and makes its result visible in the graph.

    What is computed from parameters and buffers alone is a parameter here: a cosine head's W / |W|, two factors of one
    weight. With `head` given, the pass costs no graph memory: nothing is tracked before that call, and everything from
    it on.
    """

    def __init__(self, model: nn.Module, *, head: int | None = None) -> None:
        super().__init__()
        self.head = head
        self.calls: list[Call] = []
        self._count = 0
        self._where: list[str] = [""]
        self._names = list(model.named_modules())
        self._storages = {_storage(p): name
                          for name, p in model.named_parameters(remove_duplicate=False)}  # fmt: skip
        self._constant = {_storage(b) for b in model.buffers()}
        self._made: list[Tensor] = []  # held, so that nothing else takes their place in memory
        self._hooks: list[Any] = []

    def __enter__(self) -> LinearCalls:
        for name, module in self._names:
            self._hooks.append(module.register_forward_pre_hook(self._entering(name)))
            self._hooks.append(module.register_forward_hook(self._leaving, always_call=True))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*error)

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        result = self._marked(func(*args, **(kwargs or {})), linear_map(func, args, kwargs or {}, self._is_parameter))
        self._note_made_of_parameters(result, args, kwargs or {})
        return result

    def _marked(self, result: Any, found: LinearMap | None) -> Any:
        if found is None:
            return result
        self._count += 1
        if self.head is not None and self._count - 1 != self.head:
            return result
        plain = result.detach().clone()  # models may go on in place
        if self.head is not None:
            torch.set_grad_enabled(True)
        if not result.requires_grad:  # frozen weights leave no graph to walk
            result = result.detach().requires_grad_().clone()
        self.calls.append(Call(found, self._name_of(found.owner), plain, result.grad_fn))
        return result

    def _note_made_of_parameters(self, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        given = [_storage(item) for item in _flat((*args, *kwargs.values())) if isinstance(item, Tensor)]
        names = [self._storages[place] for place in given if place in self._storages]
        if names and all(place in self._storages or place in self._constant for place in given):
            for tensor in _flat((result,)):
                if isinstance(tensor, Tensor):
                    self._storages.setdefault(_storage(tensor), names[0])
                    self._made.append(tensor)

    def _is_parameter(self, tensor: Tensor) -> bool:
        return _storage(tensor) in self._storages

    def _name_of(self, weight: Tensor) -> str:
        return self._where[-1] or self._storages.get(_storage(weight), "head")

    def _entering(self, name: str) -> Callable[..., None]:
        def note(module: nn.Module, inputs: Any) -> None:
            self._where.append(name)

        return note

    def _leaving(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if len(self._where) > 1:
            self._where.pop()


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _flat(items: Sequence[Any]) -> Iterator[Any]:
    """The items, with those of lists and tuples (of tensors to join, of results) in their place."""
    for item in items:
        if isinstance(item, list | tuple):
            yield from _flat(item)
        else:
            yield item


def head_call(model: nn.Module, examples: Probe, outputs: Outputs | None) -> int:
    """The number, in calling order, of the one linear map behind the outputs with no other linear map after it."""
    with LinearCalls(model) as seen:
        chosen = selected_outputs(examples.call(model), outputs, examples.length)
    last = nearest(chosen, {call.node: number for number, call in enumerate(seen.calls)})
    if len(last) == 1:
        return last[0]
    names = ", ".join(dict.fromkeys(seen.calls[number].name for number in last))
    found = f"the outputs come from {len(last)} maps side by side ({names})" if last else "none was found"
    raise BadInput(
        f"the head must be one linear map that the outputs come from, but {found}; "
        "name the layer whose input is to be read with layer="
    )


def nearest(outputs: Tensor, numbers: Mapping[Any, int]) -> list[int]:
    """The marked nodes that a walk back from the outputs meets first, in order of their numbers."""
    met: set[int] = set()
    visited: set[Any] = set()
    waiting = [outputs.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if node in numbers:
            met.add(numbers[node])
        else:
            waiting += [edge[0] for edge in node.next_functions]
    return sorted(met)
