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
    if vocabulary < 2 or int(tokens.max()) >= vocabulary:
        raise BadInput(
            "later words are exchanged for others of the vocabulary: expected at least 2 and more than the largest "
            f"token number, {int(tokens.max())}, got {vocabulary}"
        )
    model = eager(model)
    cut = tokens.shape[1] // 2
    shift = torch.randint(1, vocabulary, tokens[:, cut:].shape, generator=torch.Generator().manual_seed(seed))
    changed = torch.cat([tokens[:, :cut], (tokens[:, cut:] + shift.to(tokens.device)) % vocabulary], 1)
    with undisturbed(model), torch.no_grad():
        model.eval()
        before, after = _logits(model(tokens)), _answered(model, changed, vocabulary)
    if before.shape[:2] != tokens.shape:
        raise BadInput(f"expected scores at every position, {tuple(tokens.shape)} first, got {tuple(before.shape)}")
    return float((after - before)[:, :cut].abs().max() / before.std())


def _answered(model: nn.Module, changed: Tensor, vocabulary: int) -> Tensor:
    try:
        return _logits(model(changed))
    except IndexError as error:
        raise BadInput(
            f"the model has no embedding for some of {vocabulary} words: {error}; give its own number"
        ) from error


def _logits(raw: Any) -> Tensor:
    return raw if isinstance(raw, Tensor) else raw.logits
