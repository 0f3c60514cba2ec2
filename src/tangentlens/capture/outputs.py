"""From whatever a model returns to the numbers a kernel is taken of: one row per example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

Outputs = Callable[[Any], Tensor]


def selected_outputs(raw: Any, outputs: Outputs | None, examples: int) -> Float[Tensor, "example output"]:
    """The chosen outputs, flattened to one axis behind the example axis."""
    chosen = chosen_outputs(raw, outputs)
    if chosen.ndim == 0 or len(chosen) != examples:
        raise ValueError(
            f"the outputs must have the example on their first axis ({examples} examples), got shape "
            f"{tuple(chosen.shape)}; choose or transpose them with outputs=, and do not reduce over the batch"
        )
    if chosen.numel() == 0:
        raise ValueError(
            f"the outputs must hold at least one number for each example, got shape {tuple(chosen.shape)}; "
            "choose others with outputs="
        )
    if not chosen.is_floating_point():
        raise TypeError(f"the outputs must be floating point, got {chosen.dtype}; choose others with outputs=")
    return chosen.reshape(examples, -1)


def chosen_outputs(raw: Any, outputs: Outputs | None) -> Tensor:
    """What `outputs=` picks, or the tensor a model returns by itself."""
    if not (outputs is None or callable(outputs)):
        raise TypeError(
            f"outputs= must be a function from what the model returns to a tensor, got {outputs!r}; "
            "pass for example outputs=lambda out: out.logits[:, -1]"
        )
    chosen = outputs(raw) if outputs is not None else _default_outputs(raw)
    if not isinstance(chosen, Tensor):
        raise TypeError(
            f"outputs= must return a tensor whose first axis is the example, got {type(chosen).__name__}; "
            "return one tensor, for example outputs=lambda out: out.logits[:, -1]"
        )
    return chosen


def describe_outputs(raw: Any, outputs: Outputs | None) -> str:
    """What the plan says about where the outputs came from."""
    if outputs is not None:
        return f"outputs={getattr(outputs, '__name__', repr(outputs))}"
    return "the model's tensor" if isinstance(raw, Tensor) else f".logits of {type(raw).__name__}"


def _default_outputs(raw: Any) -> Tensor:
    if isinstance(raw, Tensor):
        return raw
    # A plain dict is the user's own convention; a ModelOutput is Hugging Face's, whose logits are *the* outputs.
    logits = getattr(raw, "logits", None) if isinstance(raw, Mapping) and type(raw) is not dict else None
    if isinstance(logits, Tensor):
        return logits
    if isinstance(raw, Mapping):
        found = f"{type(raw).__name__} with keys {sorted(map(str, raw))}"
    elif isinstance(raw, tuple | list):
        found = f"{type(raw).__name__} of {len(raw)}: {', '.join(type(item).__name__ for item in raw)}"
    else:
        found = type(raw).__name__
    raise TypeError(
        f"the model's output must be a tensor (or a Hugging Face output with logits), got {found}; "
        "say which numbers to measure, for example outputs=lambda out: out[0]"
    )
