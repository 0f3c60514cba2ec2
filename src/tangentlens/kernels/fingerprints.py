"""Short names for what numbers come from: equal bytes give equal names, on any machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tangentlens.capture.undisturbed import eager


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Names, shapes, dtypes and every byte."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def weights_fingerprint(model: nn.Module) -> str:
    """Parameters and buffers as they are now."""
    plain = eager(model)
    return fingerprint([*plain.named_parameters(), *plain.named_buffers()])


def named_tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in nested containers, by its path."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key in value:
            yield from named_tensors(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from named_tensors(item, f"{name}.{index}")


def in_words(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Their names, shapes and dtypes."""
    return ", ".join(f"{name} {tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in tensors)
