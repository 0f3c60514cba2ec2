"""The MLP's runs read claim by claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tangentlens.measures.cliffs import largest_gaps
from tangentlens.measures.tracking import change_points, first_learned_cliff, lag_of_peak, onset, rate_of_change
from tangentlens.studies.claims import Verdict, judged_all
from tangentlens.studies.lin2025.mlp_claims import CLAIMS
from tangentlens.studies.lin2025.modular_mlp import FAMILIES, ONSET, MLPRun


def mlp_verdicts(runs: Sequence[MLPRun], controls: Sequence[MLPRun], perfect: Sequence[float] = ()) -> list[Verdict]:
    """Every claim about the MLP, one value per run, beside initialisation, chance and the memorising control.

    `perfect`: the epochs of `first_perfect_epoch` for seeds beyond those of the runs. The last wrong test pair decides
    that epoch, so it scatters over a factor of three, and the median of three seeds says little.
    """
    values = {**_spectra(runs), **_blocks(runs), **_layers(runs), **_course(runs), **_control(runs, controls)}
    values["M9.end"] = [*map(_perfect, runs), *perfect]
    return judged_all(CLAIMS, values, _baselines(runs, controls), _notes(runs, controls))


def _spectra(runs: Sequence[MLPRun]) -> dict[str, Any]:
    last = {f"M2.{i}": [float(run.eigenvalues[-1][i - 1]) for run in runs] for i in (1, 2, 57, 58, 113, 114)}
    return last | {
        "M1": [run.found[-1].largest(3) for run in runs],
        "M7": [run.ratio(57, 0) for run in runs],
        "M8.60": [run.ratio(113, 60) for run in runs],
        "M8.80": [run.ratio(113, 80) for run in runs],
        "M8.100": [run.ratio(113, 100) for run in runs],
        "M8.500": [run.ratio(113, 500) for run in runs],
        "M12": [float(_growth(run)[0]) for run in runs],
        "M12.all": [float(_growth(run).min()) for run in runs],
    }


def _blocks(runs: Sequence[MLPRun]) -> dict[str, Any]:
    return {
        "M5.a": [run.first_block["a"][-1] for run in runs],
        "M5.b": [run.first_block["b"][-1] for run in runs],
        "M7.a": [run.first_block["a"][0] for run in runs],
        "M7.b": [run.first_block["b"][0] for run in runs],
        "M6.a+b": [run.second_block["a+b"][-1] for run in runs],
        "M6.a-b": [run.second_block["a-b"][-1] for run in runs],
        "M6.low": [_cosine(run, min) for run in runs],
        "M6.high": [_cosine(run, max) for run in runs],
        "M6.scan": [run.learned.carried if run.learned else [] for run in runs],
    }


def _layers(runs: Sequence[MLPRun]) -> dict[str, Any]:
    hidden, readout = ([run.layers[name][-1] for run in runs] for name in ("hidden", "readout"))
    return {
        "M3.cliff": [each.positions for each in hidden],
        "M3.ratio": [each.ratio for each in hidden],
        **{f"M3.{family}": [each.block[family] for each in hidden] for family in FAMILIES},
        "M4.cliff": [each.positions for each in readout],
        **{f"M4.{family}": [each.block[family] for each in readout] for family in FAMILIES},
    }


def _course(runs: Sequence[MLPRun]) -> dict[str, Any]:
    sums = [run.second_block["a+b"] for run in runs]
    lags = [lag_of_peak(run.steps, series, run.test_accuracy, threshold=ONSET) for run, series in zip(runs, sums)]
    return {
        "M9.train": [onset(run.steps, run.train_accuracy, 1.0) for run in runs],
        "M9.onset": [each.onset for each in lags],
        "M9.70": [100 * run.test_accuracy[run.at(70)] for run in runs],
        "M9.100": [100 * run.test_accuracy[run.at(100)] for run in runs],
        "M10.init": [series[0] for series in sums],
        "M10.100": [series[run.at(100)] for run, series in zip(runs, sums)],
        "M10.490": [series[run.at(490)] for run, series in zip(runs, sums)],
        "M11": [each.peak for each in lags],
        "M11.rate": [_fastest(run) for run in runs],
        "M11.lag": [each.lag for each in lags],
    }


def _control(runs: Sequence[MLPRun], controls: Sequence[MLPRun]) -> dict[str, Any]:
    return {
        "C1.train": [run.train_accuracy[-1] for run in controls],
        "C1.test": [run.test_accuracy[-1] for run in controls],
        "C1.sum": [run.second_block["a+b"][-1] for run in controls],
        "C1.rate": [_fastest(run) for run in controls],
        "C1.ratio": [run.ratio(113, run.steps[-1]) for run in controls],
        "C1.cliff": [sorted({int(p) for found in run.found for p in found.positions}) for run in controls],
        "C1.first": [run.first_block["a"][-1] for run in controls],
        "D1": [_first_learned(run) for run in runs],
        "D2": [_first_learned(run) for run in controls],
    }


def _baselines(runs: Sequence[MLPRun], controls: Sequence[MLPRun]) -> dict[str, float | str]:
    first, chance = runs[0], _chance(runs[0])
    fastest = [_fastest(run) for run in controls]

    def beside(block: dict[str, list[float]], family: str) -> str:
        return f"chance {chance:.1f}, init {block[family][0]:.1f}"

    return {
        "M1": f"init {first.found[0].largest(3)}",
        **{f"M2.{i}": float(first.eigenvalues[0][i - 1]) for i in (1, 2, 57, 58, 113, 114)},
        **{f"M8.{epoch}": first.ratio(113, 0) for epoch in (60, 80, 100, 500)},
        **{f"M5.{family}": beside(first.first_block, family) for family in ("a", "b")},
        **{f"M6.{family}": beside(first.second_block, family) for family in ("a+b", "a-b")},
        **dict.fromkeys(("M7.a", "M7.b", "M10.init", "M10.100", "M10.490"), chance),
        **dict.fromkeys([f"{layer}.{family}" for layer in ("M3", "M4") for family in FAMILIES], chance),
        "M11.rate": f"control {min(fastest):.1f} .. {max(fastest):.1f}",
        "C1.test": 1 / first.task.modulus,
        "C1.rate": f"grokking run {_fastest(first):.1f}",
        "C1.ratio": f"grokking run {first.ratio(113, first.steps[-1]):.3g}",
        "C1.sum": f"grokking run {first.second_block['a+b'][-1]:.1f}",
        "C1.first": f"grokking run {first.first_block['a'][-1]:.1f}",
    }


def _notes(runs: Sequence[MLPRun], controls: Sequence[MLPRun]) -> dict[str, str]:
    alarms = "; ".join(_effective_dimension_alarms(run) for run in (*runs, *controls))
    found = _blocks_found(runs)
    return {
        "M6.a+b": f"the window 57-112; in the block above the largest learned cliff: {found('a+b', -1)}",
        "M6.a-b": f"the window 57-112; in the block above the largest learned cliff: {found('a-b', -1)}",
        "M6.scan": f"the block above the largest learned cliff, no width told: {found(None, -1)}",
        "M10.init": f"the final block followed back by content: {found('a+b', 0)}, a maximum over windows",
        "C1.sum": f"in the window 57-112; blocks above a learned cliff: {_blocks_found(controls)(None, -1)}",
        "M1": "cliffs against a smooth spectrum, error rate 0.01; the largest gaps by size alone: "
        f"{', '.join(str(largest_gaps(run.eigenvalues[-1], 3)) for run in runs)}",
        "M9.end": "one wrong test pair of 253 decides it; judged on more seeds, these trained without kernels",
        "M11": "retrospective: a maximum needs the whole run; of the block found and followed back: "
        f"{', '.join(map(_followed_peak, runs))}",
        "M11.lag": f"onset: test accuracy >= {ONSET}; epochs recorded every {runs[0].steps[1] - runs[0].steps[0]}",
        "D1": f"beside it, change points of the effective dimension, from the past alone: {alarms}",
    }


def _growth(run: MLPRun) -> Float[Tensor, "mode"]:
    """How many times larger each eigenvalue, by rank, is at epoch 100 than before training."""
    return run.eigenvalues[run.at(100)] / run.eigenvalues[0]


def _fastest(run: MLPRun) -> float:
    """The largest rate of the second window's a+b, in points per 10 epochs."""
    return 10 * float(rate_of_change(run.steps, run.second_block["a+b"]).max())


def _cosine(run: MLPRun, which: Callable[[list[float]], float]) -> float | None:
    return None if run.difference_cosines is None else which(run.difference_cosines.tolist())


def _blocks_found(runs: Sequence[MLPRun]) -> Callable[[str | None, int], str]:
    """What to say of the learned blocks, run by run: their place or a family's share in them, at one of the records."""

    def said(run: MLPRun, family: str | None, row: int) -> str:
        if run.learned is None:
            return "none"
        if family is None:
            first, end = run.learned.places[row]
            return f"modes {first}-{end - 1}"
        return f"{run.learned.overlaps[family][row]:.1f}"

    return lambda family, row: ", ".join(said(run, family, row) for run in runs)


def _followed_peak(run: MLPRun) -> str:
    if run.learned is None:
        return "none"
    return f"{run.steps[int(rate_of_change(run.steps, run.learned.overlaps['a+b']).argmax())]}"


def _perfect(run: MLPRun) -> float:
    epoch = onset(run.steps, run.test_accuracy, 1.0)
    return math.inf if epoch is None else epoch


def _first_learned(run: MLPRun) -> float | str:
    step = first_learned_cliff(run.steps, run.found)
    return "never" if step is None else step


def _effective_dimension_alarms(run: MLPRun) -> str:
    """Alarms of the generic detector on exp of the entropy of the spectrum without its constant mode."""
    shares = [values[1:] / values[1:].sum() for values in run.eigenvalues]
    series = [float(torch.exp(-(share * share.log()).sum())) for share in shares]
    found = [f"{each.noticed:g} (dated {each.dated:g})" for each in change_points(run.steps, series)]
    return f"{run.task.train_share:.0%} seed {run.task.seed}: {', '.join(found) or 'none'}"


def _chance(run: MLPRun) -> float:
    """The mean share of any family held by a random block of the same size, in per cent."""
    return 100 * 4 * (run.task.modulus // 2) / run.task.modulus**2
