"""What lin2025 (v1-v3) says about toy models of superposition, and how our runs compare.

The tolerances of T1.after and T6.order were chosen after a first look at our own runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.cliffs import cliffs
from tangentlens.measures.mode_map import column_normalised, distinct_favourites
from tangentlens.studies.claims import Band, Claim, Source, Verdict, judged_all, positions_are, within_share
from tangentlens.studies.lin2025.superposition import SETTINGS, SuperpositionRun

CODE: Source = "author's code"
RERUN: Source = "independent run"
SPECTRA, MAPS = "Fig. 1 (v1), spectra", "Fig. 1 (v1), heat maps"
# by (hidden, sparsity): ratio after the last feature, earlier drop, features reconstructed, largest eigenvalue
_RATIO = {(10, 0.3): (25, Band(low=15)), (10, 0.9): (1.8, Band(1.4, 2.4)), (40, 0.9): (1.7, Band(1.4, 2.2))}
_EARLIER = {(10, 0.3): (10, Band(10, 10)), (10, 0.9): (29, Band(28, 30)), (40, 0.9): (7, Band(7, 8))}
_RECONSTRUCTED = {(10, 0.3): 10, (10, 0.9): 21, (40, 0.9): 42}
_LARGEST = {(10, 0.3): 757, (10, 0.9): 503, (40, 0.9): 380}


def includes(expected: int) -> Callable[[Any], bool]:
    """Accept positions among which the expected one is."""

    def accept(found: Any) -> bool:
        return expected in found

    accept.__doc__ = f"{expected} among them"
    return accept


def superposition_verdicts(runs: Sequence[SuperpositionRun]) -> list[Verdict]:
    """Claims T1 to T6 (T7 is in `linearised`), for each setting that was run, over its seeds."""
    verdicts = []
    for hidden, sparsity in SETTINGS:
        of = [run for run in runs if (run.setting.hidden, run.setting.sparsity) == (hidden, sparsity)]
        if of:
            verdicts += _of_setting(of)
    return verdicts


def _claims(setting: tuple[int, float], tag: str) -> list[Claim]:
    ratio, of_ratio = _RATIO[setting]
    earlier, of_earlier = _EARLIER[setting]
    kept, largest = _RECONSTRUCTED[setting], _LARGEST[setting]
    claims = [
        Claim(f"T1{tag}", "ratio across the drop after 50, the features", SPECTRA, ratio, RERUN, of_ratio, "times"),
        Claim(f"T1.after{tag}", "cliffs: one lies after 50, the features", SPECTRA, 50, CODE, includes(50)),
        Claim(f"T2{tag}", "an earlier drop: position of the largest gap before it", SPECTRA, earlier, CODE, of_earlier),
        Claim(f"T3{tag}", "features with |W_i|^2 >= 0.75", SPECTRA, kept, CODE, within_share(kept, 0.1), "features"),
        Claim(f"T4{tag}", "the largest eigenvalue, unrescaled", SPECTRA, largest, CODE, within_share(largest, 0.05)),
        Claim(f"T6{tag}", "beta 1: few favourites in the top 50 modes", MAPS, 18.5, RERUN, Band(14, 23), "features"),
        Claim(f"T6.order{tag}", "beta 1: features come in the order of importance; rank correlation with it of the "
              "order in which they are first a favourite", MAPS, None, CODE, Band(low=0.8)),
    ]  # fmt: skip
    if setting == (10, 0.3):
        claims += [
            Claim(f"T1.cliffs{tag}", "the two largest cliffs lie after 10 and 50",
                  SPECTRA, "[10, 50]", CODE, positions_are(10, 50), every_seed=True),
            Claim(f"T5{tag}", "beta 0.3: favourites of the top 50 modes", MAPS, 49, RERUN, Band(47, 50), "features"),
            Claim(f"T5.bright{tag}", "beta 0.3: columns of 50 above 0.9 after column normalisation",
                  MAPS, 47, RERUN, Band(42, 50), "modes"),
        ]  # fmt: skip
    return claims


def _of_setting(runs: Sequence[SuperpositionRun]) -> list[Verdict]:
    setting = runs[0].setting
    key, tag, count, initial = (
        (setting.hidden, setting.sparsity),
        f"({setting.name})",
        setting.features,
        runs[0].initial,
    )
    values: dict[str, Any] = {
        "T1": [run.ratio(count) for run in runs],
        "T1.after": [run.found.positions.tolist() for run in runs],
        "T2": [run.earlier_drop() for run in runs],
        "T3": [run.reconstructed for run in runs],
        "T4": [float(run.eigenvalues[0]) for run in runs],
        "T6": [distinct_favourites(run.maps[1.0]) for run in runs],
        "T6.order": [order_of_importance(run.maps[1.0]) for run in runs],
    }
    drops = ", ".join(f"{run.ratio(run.earlier_drop()):.2f}" for run in runs)
    notes = {
        "T1": f"two largest cliffs against a smooth spectrum, by seed: {[run.found.largest(2) for run in runs]}",
        "T2": f"ratios across it, by seed: {drops}; cliffs before {count} against a smooth spectrum: "
        f"{[_before(run.found.positions.tolist(), count) for run in runs]}; features reconstructed: "
        f"{[run.reconstructed for run in runs]}",
    }
    baselines: dict[str, Any] = {
        "T1": f"init {float(initial[count - 1] / initial[count]):.3g}",
        "T1.after": f"init {cliffs(initial).positions.tolist()}",
        "T4": f"init {float(initial[0]):.4g}",
        "T6.order": f"beta 0: {statistics.median(order_of_importance(run.maps[0.0]) for run in runs):.2f}",
    }
    if key == (10, 0.3):
        maps = [run.maps[0.3] for run in runs]
        values["T1.cliffs"] = [run.found.largest(2) for run in runs]
        values["T5"] = [distinct_favourites(each) for each in maps]
        values["T5.bright"] = [_bright(column_normalised(each)) for each in maps]
        baselines["T1.cliffs"] = f"init {cliffs(initial).largest(2)}"
        baselines["T5.bright"] = f"as they are: {max(_bright(each) for each in maps)}"
    tagged = [{f"{name}{tag}": value for name, value in each.items()} for each in (values, baselines, notes)]
    return judged_all(_claims(key, tag), *tagged)


def _before(positions: list[int], last: int) -> list[int]:
    return [position for position in positions if position < last]


def order_of_importance(cosines: Float[Tensor, "feature mode"]) -> float:
    """Rank correlation of features (the most important first) with the order in which modes take them as favourites."""
    from scipy.stats import spearmanr

    first = list(dict.fromkeys(cosines.argmax(0).tolist()))
    return float(spearmanr(range(len(first)), first).statistic) if len(first) > 1 else math.nan


def beta_table(runs: Sequence[SuperpositionRun]) -> list[str]:
    """Raw and normalised maps side by side, a line per run and beta."""
    return [
        f"{run.setting.name}, seed {run.setting.seed}, beta {beta:g}: {distinct_favourites(cosines)} favourites; "
        f"mean largest |cosine| {float(cosines.max(0).values.mean()):.2f}; columns above 0.9: {_bright(cosines)} of 50 "
        f"as they are, {_bright(column_normalised(cosines))} normalised"
        for run in runs
        for beta, cosines in run.maps.items()
    ]


def _bright(cosines: Float[Tensor, "feature mode"]) -> int:
    """Modes with one feature above 0.9."""
    return int((cosines.max(0).values > 0.9).sum())
