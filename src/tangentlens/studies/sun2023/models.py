"""The text models of the paper in reading order, widths and deviations as parameters.

Every layer divides by the root of its width, so that a width can grow without anything else changing. `embedding`,
`hidden` and `readout` are the parameter groups of the closed-form kernels. Token number 0 is padding: it is masked
out of every sum, so no score depends on what shares its batch (in the authors' release it does).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from tangentlens.kernels.infinite_width import ACTIVATIONS, Deviations
from tangentlens.kernels.infinite_width.hidden_layer import UNIT

PAD = 0


class TextModel(nn.Module):
    """What all of them share: Gaussian embeddings and readout, a mask for padding, one score per label."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        labels: int = 1,
        activation: str = "relu",
        deviations: Deviations = UNIT,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.width = width
        self.phi = ACTIVATIONS[activation]
        self.random = torch.Generator().manual_seed(seed)
        self.embedding = self.gaussian(vocabulary, width, deviation=deviations.embedding)
        self.readout = self.gaussian(labels, width, deviation=deviations.readout)
        self.dropout = nn.Dropout(dropout)

    def gaussian(self, *shape: int, deviation: float) -> nn.Parameter:
        return nn.Parameter(deviation * torch.randn(*shape, generator=self.random))

    def embedded(
        self, tokens: Int[Tensor, "example position"]
    ) -> tuple[Float[Tensor, "example position unit"], Bool[Tensor, "example position"]]:
        present = tokens != PAD
        return self.dropout(F.embedding(tokens, self.embedding)) * present[..., None], present

    def read(self, pooled: Float[Tensor, "example unit"]) -> Float[Tensor, "example label"]:
        return pooled @ self.readout.T / sqrt(self.width)


class TokenMLP(TextModel):
    """s(x) = v . sum_t phi(W e_t / sqrt d) / sqrt d: each word alone through one hidden layer, then the sum."""

    def __init__(self, vocabulary: int, width: int, *, deviations: Deviations = UNIT, **kind: object) -> None:
        super().__init__(vocabulary, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.hidden = self.gaussian(width, width, deviation=deviations.hidden)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        embedded, present = self.embedded(tokens)
        units = self.phi(embedded @ self.hidden.T / sqrt(self.width))
        return self.read((units * present[..., None]).sum(1))


class TokenCNN(TextModel):
    """s(x) = v . sum_t phi(sum_k W_k e_{t+k} / sqrt d) / sqrt d over windows, zeros around the text."""

    def __init__(
        self, vocabulary: int, width: int, *, window: int = 3, padding: int | None = None,
        deviations: Deviations = UNIT, **kind: object,
    ) -> None:  # fmt: skip
        super().__init__(vocabulary, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.padding = window - 1 if padding is None else padding
        self.hidden = self.gaussian(width, width, window, deviation=deviations.hidden)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        embedded, _ = self.embedded(tokens)
        # windows over padding alone are phi(0), zero for every activation used here but the sigmoid
        windows = F.conv1d(embedded.mT, self.hidden, padding=self.padding) / sqrt(self.width)
        return self.read(self.phi(windows).sum(-1))


class SelfAttention(TextModel):
    """s(x) = v . sum_i sum_j a_ij e_j / sqrt d, a_ij = softmax_j((e_i + p_i / 20) . e_j / scale): no W_q, W_k, W_v.

    `per_width` divides logits by d, which has a limit; without it they are divided by sqrt d, as released.
    """

    def __init__(
        self, vocabulary: int, width: int, *, per_width: bool = False, positions: bool = True, **kind: object
    ) -> None:
        super().__init__(vocabulary, width, **kind)  # type: ignore[arg-type]
        self.scale = float(width) if per_width else sqrt(width)
        self.positions = positions
        self.position_dropout = nn.Dropout(0.5)

    def attended(
        self, tokens: Int[Tensor, "example position"]
    ) -> tuple[Float[Tensor, "example position unit"], Bool[Tensor, "example position"]]:
        embedded, present = self.embedded(tokens)
        query = embedded
        if self.positions:
            places = sinusoids(tokens.shape[1], self.width, embedded)
            query = embedded + self.position_dropout(places / 20)
        logits = (query @ embedded.mT / self.scale).masked_fill(~present[:, None], -torch.inf)
        return torch.softmax(logits, -1) @ embedded, present

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        attended, present = self.attended(tokens)
        return self.read((attended * present[..., None]).sum(1))


class SelfAttentionMLP(SelfAttention):
    """Self-attention, then phi(W h_i / sqrt d) at each position before the sum (Figure 2i; form inferred)."""

    def __init__(self, vocabulary: int, width: int, *, deviations: Deviations = UNIT, **kind: object) -> None:
        super().__init__(vocabulary, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.hidden = self.gaussian(width, width, deviation=deviations.hidden)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        attended, present = self.attended(tokens)
        units = self.phi(attended @ self.hidden.T / sqrt(self.width))
        return self.read((units * present[..., None]).sum(1))


class MatrixVector(TextModel):
    """s(x) = v . sum_t M_{t-1} e_t / d, one matrix per word; one of the two definitions the paper may mean.

    A begin mark of its own, the last row of the tables, stands before every text, so that single words have a score.
    """

    def __init__(self, vocabulary: int, width: int, *, deviations: Deviations = UNIT, **kind: object) -> None:
        super().__init__(vocabulary + 1, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.begin = vocabulary
        self.hidden = self.gaussian(vocabulary + 1, width, width, deviation=deviations.hidden)

    def after_begin(self, tokens: Int[Tensor, "example position"]) -> Int[Tensor, "example position+1"]:
        return F.pad(tokens, (1, 0), value=self.begin)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        tokens = self.after_begin(tokens)
        embedded, present = self.embedded(tokens)
        matrices = F.embedding(tokens[:, :-1].contiguous(), self.hidden.flatten(1)).unflatten(
            -1, (self.width, self.width)
        )
        moved = torch.einsum("etij,etj->eti", matrices, embedded[:, 1:]) / sqrt(self.width)
        return self.read((moved * present[:, 1:, None]).sum(1))


class DiagonalMatrixVector(MatrixVector):
    """s(x) = v . sum_t (W e_{t-1} / sqrt d) * e_t / sqrt d: the matrix of a word is diagonal, and W is shared."""

    def __init__(self, vocabulary: int, width: int, *, deviations: Deviations = UNIT, **kind: object) -> None:
        TextModel.__init__(self, vocabulary + 1, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.begin = vocabulary
        self.hidden = self.gaussian(width, width, deviation=deviations.hidden)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        embedded, present = self.embedded(self.after_begin(tokens))
        moved = embedded[:, :-1] @ self.hidden.T / sqrt(self.width) * embedded[:, 1:]
        return self.read((moved * present[:, 1:, None]).sum(1))


class LinearRecurrence(TextModel):
    """h_t = (W_h h_{t-1} + W_x e_t) / sqrt d, s = v . h_T / sqrt d: a linear recurrence read at its last state."""

    def __init__(self, vocabulary: int, width: int, *, deviations: Deviations = UNIT, **kind: object) -> None:
        super().__init__(vocabulary, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.hidden = self.gaussian(width, width, deviation=deviations.hidden)
        self.recurrent = self.gaussian(width, width, deviation=deviations.recurrent)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        embedded, present = self.embedded(tokens)
        state = embedded.new_zeros(len(tokens), self.width)
        for position in range(tokens.shape[1]):
            read_in = embedded[:, position] @ self.hidden.T / sqrt(self.width)
            moved = state @ self.recurrent.T / sqrt(self.width) + read_in
            state = torch.where(present[:, position, None], moved, state)
        return self.read(state)


class GatedRecurrence(TextModel):
    """h_t = u(x_t) + A(x_t) h_{t-1}, u = tanh(W e), A = diag(1 - tanh^2(W e)) W_h: a recurrence whose words multiply.

    Inferred from files named "linear" in the authors' 2022 repository; whether the paper means it is not known.
    """

    def __init__(self, vocabulary: int, width: int, *, deviations: Deviations = UNIT, **kind: object) -> None:
        super().__init__(vocabulary, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.hidden = self.gaussian(width, width, deviation=deviations.hidden)
        self.recurrent = self.gaussian(width, width, deviation=deviations.recurrent)

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        embedded, present = self.embedded(tokens)
        state = embedded.new_zeros(len(tokens), self.width)
        for position in range(tokens.shape[1]):
            entered = torch.tanh(embedded[:, position] @ self.hidden.T / sqrt(self.width))
            moved = entered + (1 - entered**2) * (state @ self.recurrent.T / sqrt(self.width))
            state = torch.where(present[:, position, None], moved, state)
        return self.read(state)


class DeepTokenMLP(TextModel):
    """Beyond the paper: each word through several hidden layers, with layer normalisation before each on request."""

    def __init__(
        self, vocabulary: int, width: int, *, depth: int = 2, normalised: bool = False,
        deviations: Deviations = UNIT, **kind: object,
    ) -> None:  # fmt: skip
        super().__init__(vocabulary, width, deviations=deviations, **kind)  # type: ignore[arg-type]
        self.hidden = self.gaussian(depth, width, width, deviation=deviations.hidden)
        self.normalised = normalised

    def forward(self, tokens: Int[Tensor, "example position"]) -> Float[Tensor, "example label"]:
        units, present = self.embedded(tokens)
        for matrix in self.hidden:
            units = F.layer_norm(units, (self.width,)) if self.normalised else units
            units = self.phi(units @ matrix.T / sqrt(self.width))
        return self.read((units * present[..., None]).sum(1))


def sinusoids(length: int, width: int, like: Tensor) -> Float[Tensor, "position unit"]:
    """Positions as sines and cosines of geometrically spaced frequencies."""
    place = torch.arange(length, device=like.device, dtype=like.dtype)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, device=like.device, dtype=like.dtype) * (-log(10_000.0) / width))
    waves = torch.stack([torch.sin(place * frequency), torch.cos(place * frequency)], -1)
    return waves.flatten(1)[:, :width]


def padded(documents: Sequence[Int[Tensor, "_position"]]) -> Int[Tensor, "example position"]:
    """Documents of different lengths as one batch."""
    return nn.utils.rnn.pad_sequence(list(documents), batch_first=True, padding_value=PAD)
