"""In which precision float32 products are taken: in float32, unless another is asked for.

Convolutions on cards run in TF32 by default, 1e-3 off, and a training script may have asked for the same, or for
bfloat16, everywhere. A measurement is not a training step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from tangentlens.errors import BadInput

Lower = Literal["tf32", "bf16"]
_WORDS = {None: "highest", "tf32": "high", "bf16": "medium"}  # of torch.set_float32_matmul_precision


@dataclass
class Lowered:
    """Kernels measured in a lower precision, and how far their first examples are from those in float32."""

    precision: Lower
    errors: list[float] = field(default_factory=list)
    """Relative error ||K - K_float32|| / ||K_float32|| over the first examples, one for each kernel measured."""


_asked: ContextVar[Lowered | None] = ContextVar("asked", default=None)


@contextmanager
def lower_precision(precision: Lower) -> Iterator[Lowered]:
    """Kernels measured inside take the products between examples in "tf32" or "bf16", where the device has them for
    float32; models are run and captured in float32. The error of each kernel on its first examples is in `errors`.

    >>> import torch, tangentlens as tl
    >>> with lower_precision("tf32") as lowered:
    ...     kernel = tl.entk(torch.nn.Linear(3, 2), torch.randn(5, 3))
    >>> len(lowered.errors)
    1
    """
    if precision not in get_args(Lower):
        raise BadInput(f"a lower precision is 'tf32' or 'bf16', got {precision!r}; leave it out for float32")
    found = Lowered(precision)
    token = _asked.set(found)
    try:
        yield found
    finally:
        _asked.reset(token)


def lowered() -> Lowered | None:
    """What was asked for around here."""
    return _asked.get()


@contextmanager
def in_float32() -> Iterator[None]:
    """As if nothing had been asked for."""
    token = _asked.set(None)
    try:
        yield
    finally:
        _asked.reset(token)


@contextmanager
def products_in(precision: Lower | None) -> Iterator[None]:
    """Products of float32 numbers in this precision (None: float32), whatever the process is set to; then as before."""
    before = [(operation, operation.fp32_precision) for operation in _operations()]
    matmul = cudnn = None
    with suppress(RuntimeError):  # not to be read where somebody set the single operations
        matmul = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        cudnn = torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision(_WORDS[precision])
        torch.backends.cudnn.allow_tf32 = precision is not None
        yield
    finally:
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        if cudnn is not None:
            torch.backends.cudnn.allow_tf32 = cudnn
        for operation, setting in before:
            operation.fp32_precision = setting


def _operations() -> list[Any]:
    backends = torch.backends
    found = [
        getattr(getattr(backends, library), kind, None)
        for library, kinds in (("cuda", ("matmul",)), ("cudnn", ("conv", "rnn")), ("mkldnn", ("matmul", "conv", "rnn")))
        for kind in kinds
    ]
    return [operation for operation in found if getattr(operation, "fp32_precision", None) is not None]
