"""The network before training, kept in the run so that a resumed run measures against the same beginning."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DTYPES = {str(dtype): dtype for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                                          torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
                                          torch.complex64, torch.complex128)}  # fmt: skip


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers by name."""
    return {name: t.detach().clone() for name, t in (*model.named_parameters(), *model.named_buffers())}


def packed(state: dict[str, Tensor]) -> tuple[np.ndarray, str]:
    """One run of bytes and its table of contents: a few large chunks, however many tensors there are."""
    contents: list[dict[str, Any]] = []
    pieces = []
    for name, tensor in state.items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        piece = flat.view(torch.uint8).numpy() if flat.numel() else np.zeros(0, np.uint8)
        contents.append({"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype), "bytes": piece.size})
        pieces.append(piece)
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint8), json.dumps(contents)


def unpacked(values: np.ndarray, contents: str, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The tensors again, bit for bit."""
    state, start = {}, 0
    for entry in json.loads(contents):
        piece = torch.from_numpy(values[start : start + entry["bytes"]].copy())
        start += entry["bytes"]
        tensor = piece.view(DTYPES[entry["dtype"]]) if piece.numel() else torch.empty(0, dtype=DTYPES[entry["dtype"]])
        state[entry["name"]] = tensor.reshape(entry["shape"]).to(device)
    return state
