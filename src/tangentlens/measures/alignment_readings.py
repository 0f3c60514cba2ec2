"""All numbers of the ansatz for one layer at one step, each correlation beside its null; parts of packed weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.alignment import Centering, centred_share, relative_change, weight_change
from tangentlens.measures.alignment_null import DRAWS, Correlation, ansatz
from tangentlens.measures.alignment_turns import Turns


def ansatz_readings(
    weight: Float[Tensor, "unit input"],
    initial_weight: Float[Tensor, "unit input"],
    ptk_covariance: Float[Tensor, "unit unit"],
    initial_ptk_covariance: Float[Tensor, "unit unit"] | None = None,
    *,
    centering: Centering = "none",
    agop_power: float = 1.0,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Float[Tensor, ""]]:
    """One layer's ansatz by name: correlations with `_null`, `_low`, `_high`, `_adjusted`, then the share and the
    change.

    `uncentred` is rho(F, G) of W and K, `centred` the same of W - W_0 and the *current* K (as the code released with
    arXiv 2402.05271 has it). With an initial K also `centred_initial_kernel` (W - W_0 with K_0) and
    `centred_kernel_change` (W - W_0 with K - K_0, the double-centred variant). `centred_share` and `relative_change`
    are plain numbers.
    """
    change = weight_change(weight, initial_weight)
    pairs = {"uncentred": (weight, ptk_covariance), "centred": (change, ptk_covariance)}
    if initial_ptk_covariance is not None:
        initial = initial_ptk_covariance.to(ptk_covariance)
        pairs["centred_initial_kernel"] = (change, initial)
        pairs["centred_kernel_change"] = (change, ptk_covariance - initial)
    readings: dict[str, Tensor] = {}
    same = Turns(ptk_covariance, draws=draws, seed=seed)
    for name, (matrix, kernel) in pairs.items():
        turns = same if kernel is ptk_covariance else Turns(kernel, draws=draws, seed=seed)
        correlation = ansatz(matrix, kernel, centering=centering, agop_power=agop_power, turns=turns)
        readings |= named(name, correlation)
    readings["centred_share"] = centred_share(weight, initial_weight, ptk_covariance)
    readings["relative_change"] = relative_change(weight, initial_weight)
    return readings


def named(name: str, correlation: Correlation) -> dict[str, Float[Tensor, ""]]:
    """A correlation and its null as six named numbers."""
    return {
        name: correlation.value,
        f"{name}_null": correlation.null,
        f"{name}_low": correlation.low,
        f"{name}_high": correlation.high,
        f"{name}_analytic_null": correlation.analytic_null,
        f"{name}_adjusted": correlation.adjusted,
    }


def rows_of(
    weight: Float[Tensor, "unit input"], ptk_covariance: Float[Tensor, "unit unit"], rows: slice | Tensor
) -> tuple[Float[Tensor, "some input"], Float[Tensor, "some some"]]:
    """One part of a packed weight with its own PTK covariance: the same rows of W, the same rows and columns of K.

    The part is a layer of its own: it reads the same input, and its gradient is that part of the packed gradient.
    """
    chosen = torch.arange(weight.shape[0], device=weight.device)[rows]
    if len(chosen) == 0:
        raise ValueError(f"rows {rows} choose nothing of {weight.shape[0]} units; give a range inside them")
    return weight[chosen], ptk_covariance[chosen][:, chosen]


def packed_rows(units: int, parts: Mapping[str, int] | tuple[str, ...]) -> dict[str, slice]:
    """Names and row ranges of a packed weight: equal parts by name, or each part's number of rows.

    Gates of a recurrent map lie one below the other in torch: `("input", "forget", "cell", "output")` for an LSTM,
    `("reset", "update", "new")` for a GRU.

    >>> packed_rows(6, ("reset", "update", "new"))["new"]
    slice(4, 6, None)
    """
    if not isinstance(parts, Mapping):
        if not parts or units % len(parts):
            raise ValueError(
                f"{units} rows do not divide into {len(parts)} equal parts {parts}; give the rows of each part"
            )
        parts = {name: units // len(parts) for name in parts}
    if sum(parts.values()) != units:
        raise ValueError(f"the parts {dict(parts)} hold {sum(parts.values())} rows, the weight has {units}")
    slices, start = {}, 0
    for name, rows in parts.items():
        slices[name] = slice(start, start + rows)
        start += rows
    return slices


def head_rows(units: int, heads: int, *, packed: bool = True, shared_heads: int | None = None) -> dict[str, slice]:
    """Row ranges of attention heads: of a packed query-key-value weight, or of a single projection with `packed=False`.

    Rows lie as in torch's `MultiheadAttention` and GPT-2: all queries, all keys, all values, head by head in each.
    `shared_heads` is the number of key and value heads where they serve several query heads.

    >>> list(head_rows(12, 2))
    ['query 0', 'query 1', 'key 0', 'key 1', 'value 0', 'value 1']
    """
    shared = heads if shared_heads is None else shared_heads
    counts = {"query": heads, "key": shared, "value": shared} if packed else {"head": heads}
    total = sum(counts.values())
    if units % total:
        raise ValueError(
            f"{units} rows do not divide among {total} heads {counts}; check heads, packed and shared_heads"
        )
    return packed_rows(units, {f"{part} {head}": units // total for part, n in counts.items() for head in range(n)})
