"""Does a language model read the words it is asked to predict?"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from tangentlens.capture.undisturbed import eager, undisturbed
from tangentlens.errors import BadInput


def causal_leak(model: nn.Module, tokens: Int[Tensor, "example position"], vocabulary: int, *, seed: int = 0) -> float:
    """The largest change of a past score when only later words change, over the scores' own spread.

    Zero up to rounding under a causal mask. A model without one reads the answer: its perplexity is a leak.
    """
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise BadInput(f"a leak shows between positions: expected (example, position >= 2), got {tuple(tokens.shape)}")
    model = eager(model)
    cut = tokens.shape[1] // 2
    shift = torch.randint(1, vocabulary, tokens[:, cut:].shape, generator=torch.Generator().manual_seed(seed))
    changed = torch.cat([tokens[:, :cut], (tokens[:, cut:] + shift.to(tokens.device)) % vocabulary], 1)
    with undisturbed(model), torch.no_grad():
        model.eval()
        before, after = _logits(model(tokens)), _logits(model(changed))
    if before.shape[:2] != tokens.shape:
        raise BadInput(f"expected scores at every position, {tuple(tokens.shape)} first, got {tuple(before.shape)}")
    return float((after - before)[:, :cut].abs().max() / before.std())


def _logits(raw: Any) -> Tensor:
    return raw if isinstance(raw, Tensor) else raw.logits
