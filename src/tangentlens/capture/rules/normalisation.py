"""Scale and shift of normalisations: the slope of the scale is the normalised input."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tangentlens.capture.rules.elementwise import Broadcast
from tangentlens.capture.rules.reading import Reading


def _layer_norm(node: Any, slot: int) -> Reading | None:
    if slot == 2:
        return Broadcast(None)
    return Broadcast((node._saved_input - node._saved_result1) * node._saved_result2) if slot == 1 else None


def _batch_norm(node: Any, slot: int) -> Reading | None:
    if slot == 2:
        return Broadcast(None, channel=True)
    if slot != 1:
        return None
    x: Tensor = node._saved_input
    if node._saved_training:  # instance norm: batch norm over examples folded into channels
        mean, rstd = node._saved_result1, node._saved_result2
    else:
        mean, rstd = node._saved_running_mean, (node._saved_running_var + _epsilon(node)).rsqrt()
    along_channels = [1, -1] + [1] * (x.ndim - 2)
    return Broadcast((x - mean.view(along_channels)) * rstd.view(along_channels), channel=True)


def _epsilon(node: Any) -> float:
    """cuDNN's node spells it out."""
    return float(node._saved_eps if hasattr(node, "_saved_eps") else node._saved_epsilon)


def _group_norm(node: Any, slot: int) -> Reading | None:
    if slot == 2:
        return Broadcast(None, channel=True)
    if slot != 1:
        return None
    x: Tensor = node._saved_input
    grouped = x.reshape(len(x), node._saved_group, -1)
    normal = (grouped - node._saved_result1[..., None]) * node._saved_result2[..., None]
    return Broadcast(normal.view_as(x), channel=True)


def _rms_norm(node: Any, slot: int) -> Reading | None:
    return Broadcast(node._saved_input * node._saved_result1) if slot == 1 else None


RULES = {
    "NativeLayerNormBackward0": _layer_norm,
    "NativeBatchNormBackward0": _batch_norm,
    "CudnnBatchNormBackward0": _batch_norm,
    "MiopenBatchNormBackward0": _batch_norm,
    "NativeGroupNormBackward0": _group_norm,
    "FusedRmsNormBackward0": _rms_norm,
}
