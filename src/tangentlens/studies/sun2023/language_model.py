"""The transformer of the authors' notebook, with the causal mask it forgot."""

from __future__ import annotations

from math import sqrt

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tangentlens.kernels.infinite_width import ACTIVATIONS
from tangentlens.studies.sun2023.models import sinusoids


class LanguageModel(nn.Module):
    """A transformer that predicts the next word: the tutorial model of the authors' notebook, with the mask it forgot.

    Returns the scores of the next word at every position. `causal=False` gives the notebook's leak, for the check.
    """

    def __init__(
        self, vocabulary: int, width: int = 200, *, heads: int = 2, layers: int = 2, hidden: int = 200,
        dropout: float = 0.2, activation: str = "relu", normalised: bool = True, causal: bool = True, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.width, self.causal = width, causal
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    width, heads, hidden, dropout, activation=ACTIVATIONS[activation], batch_first=True
                )
                for _ in range(layers)
            )
            self.readout = nn.Linear(width, vocabulary)
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            nn.init.uniform_(self.readout.weight, -0.1, 0.1)
            nn.init.zeros_(self.readout.bias)
        if not normalised:  # beyond the paper
            for block in self.blocks:
                block.norm1 = block.norm2 = nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example position token"]:
        length = tokens.shape[1]
        units = self.embedding(tokens) * sqrt(self.width)
        units = self.dropout(units + sinusoids(length, self.width, units))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device) if self.causal else None
        for block in self.blocks:
            units = block(units, src_mask=mask, is_causal=self.causal)
        return self.readout(units)
