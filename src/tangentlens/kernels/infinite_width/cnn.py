"""Windows of n words through one hidden layer: s(x) = v . sum_t phi(sum_k W_k e_{t+k} / sqrt d) / sqrt d."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tangentlens.kernels.infinite_width.documents import Documents, as_documents, pooled
from tangentlens.kernels.infinite_width.hidden_layer import UNIT, Deviations, hidden_layer_kernel, total
from tangentlens.kernels.infinite_width.quadrature import Elementwise

EMPTY = -1


def window_kernel(
    window: int, *, activation: str | Elementwise = "relu", deviations: Deviations = UNIT
) -> Float[Tensor, "match"]:
    """kappa(m) between two full windows with m aligned equal words, m = 0..window.

    kappa(m) = E phi(u)phi(z) + s_v^2 (s_e^2 + s_w^2) m E phi'(u)phi'(z), variance n s_w^2 s_e^2, correlation m/n.
    kappa(0) is the bias; a linear phi makes kappa proportional to m, so a linear CNN has no n-gram features.

    >>> kappa = window_kernel(2)
    >>> [round(x, 3) for x in (kappa / kappa[-1]).tolist()]
    [0.106, 0.425, 1.0]
    """
    return total(_table(window, activation, deviations))[window, window]


def cnn_kernel(
    documents: Documents,
    others: Documents | None = None,
    *,
    window: int = 2,
    padding: int | None = None,
    activation: str | Elementwise = "relu",
    deviations: Deviations = UNIT,
) -> Float[Tensor, "example other"]:
    """Theta(x, x') = sum over pairs of windows of kappa(their aligned equal words) (sun2023, our derivation).

    `padding` zero vectors stand on both sides of a document, window - 1 unless told: then a single word has one
    score per filter position, as in the authors' code.
    """
    groups = cnn_kernel_by_group(
        documents, others, window=window, padding=padding, activation=activation, deviations=deviations
    )
    return total(groups)


def cnn_kernel_by_group(
    documents: Documents,
    others: Documents | None = None,
    *,
    window: int = 2,
    padding: int | None = None,
    activation: str | Elementwise = "relu",
    deviations: Deviations = UNIT,
    chunk: int = 64,
) -> dict[str, Float[Tensor, "example other"]]:
    """The same kernel split over readout, hidden and embedding gradients. Cost: (windows)^2 * window comparisons."""
    padding = window - 1 if padding is None else padding
    if window < 1 or padding < 0:
        raise ValueError(f"expected a window of at least 1 word and padding of at least 0, got {window} and {padding}")
    rows = as_documents(documents)
    columns = rows if others is None else as_documents(others)
    table = _table(window, activation, deviations)
    others_of, other_windows = _windows(columns, window, padding)
    parts: dict[str, list[Tensor]] = {group: [] for group in table}
    for start in range(0, len(rows), chunk):
        block = rows[start : start + chunk]
        document_of, windows = _windows(block, window, padding)
        equal = (windows[:, None] == other_windows[None]) & (windows != EMPTY)[:, None]
        matches = equal.sum(-1)
        filled = (windows != EMPTY).sum(-1)[:, None].expand_as(matches)
        other_filled = (other_windows != EMPTY).sum(-1)[None].expand_as(matches)
        for group, kappa in table.items():
            values = kappa[filled, other_filled, matches]
            parts[group].append(pooled(values, document_of, others_of, len(block), len(columns)))
    return {group: torch.cat(blocks) for group, blocks in parts.items()}


def _table(window: int, activation: str | Elementwise, deviations: Deviations) -> dict[str, Tensor]:
    """kappa by group for every (filled slots, other's filled slots, matches)."""
    slots = torch.arange(window + 1, dtype=torch.float64)
    filled, other_filled, matches = torch.meshgrid(slots, slots, slots, indexing="ij")
    # more matches than slots cannot happen; clamped so that the unused entries stay finite
    matches = torch.minimum(matches, torch.minimum(filled, other_filled))
    return hidden_layer_kernel(filled, other_filled, matches, activation=activation, deviations=deviations)


def _windows(
    rows: list[Int[Tensor, "_position"]], window: int, padding: int
) -> tuple[Int[Tensor, "_position"], Int[Tensor, "position slot"]]:
    """Every window of every document, and the document it belongs to."""
    document_of, windows = [], []
    for number, row in enumerate(rows):
        padded = torch.nn.functional.pad(row, (padding, padding), value=EMPTY)
        if len(padded) < window:
            raise ValueError(
                f"document {number} has {len(row)} words and padding {padding}: no window of {window} fits; "
                f"pad by at least {window - len(row)} or leave it out"
            )
        windows.append(padded.unfold(0, window, 1))
        document_of.append(torch.full((len(windows[-1]),), number))
    return torch.cat(document_of), torch.cat(windows)
