"""A linear recurrence read at its last state: h_t = (W_h h_{t-1} + W_x e_t) / sqrt d, s = v . h_T / sqrt d."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.kernels.infinite_width.documents import Documents, as_documents
from tangentlens.kernels.infinite_width.hidden_layer import UNIT, Deviations, total


def linear_recurrence_kernel(
    documents: Documents, others: Documents | None = None, *, deviations: Deviations = UNIT
) -> Float[Tensor, "example other"]:
    """A sum over equal words at equal distance k from the end (sun2023, our derivation; the paper's form was not seen).

    Each contributes s_h^{2k} (s_x^2 s_e^2 + s_v^2 s_e^2 + s_v^2 s_x^2) + k s_h^{2(k-1)} s_v^2 s_x^2 s_e^2: linear in
    the words, so no bigram feature and no bias, but the place counts.

    >>> linear_recurrence_kernel([(0, 1)], [(0, 1), (1, 0)])
    tensor([[7., 0.]], dtype=torch.float64)
    """
    return total(linear_recurrence_kernel_by_group(documents, others, deviations=deviations))


def linear_recurrence_kernel_by_group(
    documents: Documents, others: Documents | None = None, *, deviations: Deviations = UNIT
) -> dict[str, Float[Tensor, "example other"]]:
    """The same kernel split over readout, hidden (W_x), recurrent (W_h) and embedding gradients."""
    e, x = deviations.embedding**2, deviations.hidden**2
    v, h = deviations.readout**2, deviations.recurrent**2
    rows = as_documents(documents)
    columns = rows if others is None else as_documents(others)
    longest = max(len(row) for row in [*rows, *columns])
    equal = (_from_the_end(rows, longest, -1)[:, None] == _from_the_end(columns, longest, -2)[None]).double()
    distance = torch.arange(longest, dtype=torch.float64)
    faded = h**distance
    through_states = torch.cat([torch.zeros(1, dtype=torch.float64), distance[1:] * h ** (distance[1:] - 1)])
    return {
        "readout": equal @ (faded * x * e),
        "hidden": equal @ (faded * v * e),
        "recurrent": equal @ (through_states * v * x * e),
        "embedding": equal @ (faded * v * x),
    }


def _from_the_end(rows: list[Tensor], longest: int, blank: int) -> Tensor:
    """Documents reversed and filled with a number no word has; rows and columns get different ones."""
    return torch.stack([torch.nn.functional.pad(row.flip(0), (0, longest - len(row)), value=blank) for row in rows])
