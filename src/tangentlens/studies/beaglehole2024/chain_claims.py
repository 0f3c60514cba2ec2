"""What the paper says of the chain task, and what an independent run of it found, each beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from tangentlens.studies.beaglehole2024.chain_runs import ChainRun
from tangentlens.studies.claims import Band, Claim, Source, Verdict, around, judged

Runs = Mapping[str, Sequence[ChainRun]]
ABSTRACT = "arXiv 2402.05271 v4, abstract"
SUMMARY = "a summary of the paper, section 4"
INDEPENDENT = "a small run of our own before this study, three seeds"
NEAR = 0.05
"""How close two runs of three seeds should be on a correlation, a share or a relative error; a quarter if small."""
WORDS = {
    "uncentred": "uncentred correlation",
    "centred": "centred correlation",
    "quality": "NFM-EGOP cosine",
    "test_error": "test error over variance",
    "relative_change": "relative change of the weights",
    "centred_share": "centred share of the alignment",
}
NUMBERS = {
    "plain": (0.527, 0.755, 0.425, 0.406, 0.16, 0.012),
    "half init": (0.714, 0.862, 0.684, 0.238, 0.40, 0.147),
    "quarter init": (0.926, 0.947, 0.901, 0.188, 0.75, 0.428),
    "speed-limited": (0.946, 0.960, 0.914, 0.234, None, 0.807),
    "frozen above": (0.946, 0.961, None, 0.233, None, 0.808),
}
"""Means over three seeds of the independent run at the end of training, in the order of WORDS."""


def chain_verdicts(runs: Runs) -> list[Verdict]:
    """All rows of the chain task, in the order of the paper's argument."""
    return [*_rise(runs), *_scales(runs), *_limits(runs), *_baselines(runs), *_random_kernel(runs), *_numbers(runs)]


def _rise(runs: Runs) -> list[Verdict]:
    """Judged by the median: the start is one random network, whose correlation and chance level scatter by 0.1."""
    rows = []
    for name, independent in (("quarter init", 0.38), ("half init", 0.16), ("plain", -0.03)):
        rises, chance = (
            _differences(_values(runs, name, reading), _values(runs, name, reading, "first"))
            for reading in ("uncentred", "uncentred_null")
        )
        place = f"({name}, first step to last)"
        sentence = f"The correlation of NFM and AGOP rises in training {place}"
        claim = Claim(f"2.{name}", sentence, ABSTRACT, None, "paper", Band(low=0))
        note = f"the independent run saw {independent:+.2f}; the baseline is the rise of the chance level"
        rows.append(judged(claim, rises, baseline=statistics.median(chance), note=note))
        sentence = f"It rises above its chance level {place}"
        above = Claim(f"2.{name}.chance", sentence, INDEPENDENT, None, "independent run", Band(low=0))
        rows.append(judged(above, _differences(rises, chance)))
    return rows


def _scales(runs: Runs) -> list[Verdict]:
    rows = []
    for reading, better in {"uncentred": 1, "centred": 1, "quality": 1, "test_error": -1, "centred_share": 1}.items():
        chance = None
        if reading in ("uncentred", "centred", "quality"):
            chance = statistics.median(_lesser_gains(runs, f"{reading}_null", better))
        direction = "higher" if better > 0 else "lower"
        sentence = f"Smaller initialisation gives a {direction} {WORDS[reading]} (the lesser gain of two halvings)"
        number = "4" if reading == "centred_share" else f"3.{reading}"
        claim = _every_seed(number, sentence, f"{SUMMARY}.1", None, "second-hand", Band(low=0))
        note = "the baseline is the same of the chance levels" if chance is not None else ""
        rows.append(judged(claim, _lesser_gains(runs, reading, better), baseline=chance, note=note))
    larger, level = (
        _differences(_values(runs, "double init", reading), _values(runs, "plain", reading))
        for reading in ("uncentred", "uncentred_null")
    )
    sentence = "The ordering is not monotone: at twice torch's scale the uncentred correlation is higher again"
    claim = _every_seed("3.above", sentence, INDEPENDENT, 0.704 - 0.527, "independent run", Band(low=0))
    note = "the baseline is the difference of the chance levels"
    rows.append(judged(claim, larger, baseline=statistics.median(level), note=note))
    return rows


def _lesser_gains(runs: Runs, reading: str, better: int) -> list[float]:
    """By seed, the lesser of what a reading gains from torch's scale to half of it, and from there to a quarter."""
    by_scale = zip(*(_values(runs, name, reading) for name in ("plain", "half init", "quarter init")))
    return [min(better * (half - whole), better * (quarter - half)) for whole, half, quarter in by_scale]


def _limits(runs: Runs) -> list[Verdict]:
    limited, plain = "speed-limited", "plain"
    share = _every_seed(
        "5",
        "Speed limits bring the centred share close to 1",
        f"{SUMMARY}.2",
        "close to 1",
        "second-hand",
        around(1, 0.1),
    )
    rows = [judged(share, _values(runs, limited, "centred_share"), baseline=_middle(runs, plain, "centred_share"))]
    for reading in ("uncentred", "quality"):
        sentence = f"Speed limits dramatically raise the {WORDS[reading]} over plain training from the same start"
        claim = _every_seed(f"6.{reading}", sentence, ABSTRACT, "dramatically", "paper", Band(low=0.2))
        chance = ", ".join(f"{name} {_middle(runs, name, f'{reading}_null'):.3f}" for name in (limited, plain))
        gains = _differences(_values(runs, limited, reading), _values(runs, plain, reading))
        rows.append(judged(claim, gains, note=f"chance levels: {chance}"))
    gains = _differences(_values(runs, plain, "test_error"), _values(runs, limited, "test_error"))
    claim = _every_seed("6.test", "Speed limits lower the test error", SUMMARY, None, "second-hand", Band(low=0))
    return [*rows, judged(claim, gains, baseline=_middle(runs, plain, "test_error"))]


def _baselines(runs: Runs) -> list[Verdict]:
    limited, rows = "speed-limited", []
    for name in ("frozen above", "layer-wise rates"):
        readings = ("uncentred", "quality", "test_error", "centred_share")
        both = [(_values(runs, limited, reading), _values(runs, name, reading)) for reading in readings]
        gaps = [max(map(abs, of_seed)) for of_seed in zip(*(_differences(*pair) for pair in both))]
        sentence = f"Speed limits do no more than the baseline '{name}' (largest gap of four readings)"
        claimed = "equal" if name == "frozen above" else None
        claim = _every_seed(f"6.{name}", sentence, INDEPENDENT, claimed, "independent run", Band(high=NEAR))
        rows.append(judged(claim, gaps))
    behind = _differences(_values(runs, limited, "test_error"), _values(runs, "quarter init", "test_error"))
    sentence = "A quarter of the initial scale, unlimited, generalises better than speed limits"
    claim = _every_seed("6.small init", sentence, INDEPENDENT, 0.234 - 0.188, "independent run", Band(low=0))
    return [*rows, judged(claim, behind)]


def _random_kernel(runs: Runs) -> list[Verdict]:
    """The control at several times: where the source puts it in training is not known."""
    rows = []
    for name in ("quarter init", "speed-limited", "plain"):
        for reading in ("uncentred", "centred"):
            drops = [_drops(run, reading) for run in runs[name]]
            value, single, analytic = (
                _middle(runs, name, f"{reading}{end}") for end in ("", "_random_kernel", "_analytic_null")
            )
            sentence = f"With K in random bases the {WORDS[reading]} drops ({name}, at the end; mean over bases)"
            claim = _every_seed(f"8.{reading}.{name}", sentence, SUMMARY, None, "second-hand", Band(low=NEAR))
            note = (
                f"value {value:.3f}, in one random basis {single:.3f}, analytic null {analytic:.3f}; {_by_step(drops)}"
            )
            rows.append(judged(claim, [by_step[max(by_step)] for by_step in drops], note=note))
    for reading, every_seed, independent in (("centred", True, -0.02), ("uncentred", False, 0.04)):
        sentence = f"After one step the {WORDS[reading]} is hardly above its mean over random bases (plain)"
        claim = Claim(
            f"8.{reading}.one step", sentence, INDEPENDENT, independent, "independent run", Band(high=NEAR),
            every_seed=every_seed,
        )  # fmt: skip
        ends = [_middle(runs, "plain", f"{reading}_{end}", "first") for end in ("low", "high")]
        note = f"nine in ten random bases give {ends[0]:.3f} .. {ends[1]:.3f}"
        rows.append(judged(claim, [_drops(run, reading)[1] for run in runs["plain"]], note=note))
    return rows


def _drops(run: ChainRun, reading: str) -> dict[int, float]:
    """How far the correlation lies above its mean over random bases, by step."""
    looks = zip(run.steps[1:], run.readings[1:])  # a weight that has not moved has no centred value
    return {step: look[reading] - look[f"{reading}_null"] for step, look in looks}


def _by_step(drops: Sequence[Mapping[int, float]]) -> str:
    medians = (f"{step}: {statistics.median(one[step] for one in drops):+.2f}" for step in drops[0])
    return f"median drop by step {', '.join(medians)}"


def _numbers(runs: Runs) -> list[Verdict]:
    rows = []
    for name, numbers in NUMBERS.items():
        for reading, number in zip(WORDS, numbers):
            if number is None:
                continue
            values = _values(runs, name, reading)
            sentence = f"{WORDS[reading][0].upper()}{WORDS[reading][1:]} at the end of training ({name})"
            # within 0.05 says nothing of a number smaller than that
            accept = around(number, round(min(NEAR, number / 4), 4))
            claim = Claim(f"n.{reading}.{name}", sentence, INDEPENDENT, number, "independent run", accept)
            baseline = (
                _middle(runs, name, f"{reading}_null") if reading in ("uncentred", "centred", "quality") else None
            )
            rows.append(judged(claim, values, baseline=baseline))
    return rows


def _values(runs: Runs, name: str, reading: str, when: Literal["first", "last"] = "last") -> list[float]:
    return [run.at(reading, when) for run in runs[name]]


def _middle(runs: Runs, name: str, reading: str, when: Literal["first", "last"] = "last") -> float:
    return statistics.median(_values(runs, name, reading, when))


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(first, second)]


def _every_seed(
    number: str, sentence: str, where: str, claimed: float | str | None, source: Source, accept: Band
) -> Claim:
    return Claim(number, sentence, where, claimed, source, accept, every_seed=True)
