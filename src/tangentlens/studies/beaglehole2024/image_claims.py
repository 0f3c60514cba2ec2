"""What is said of images: alignment grows over training, layer by layer, and speed limits strengthen it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tangentlens.studies.beaglehole2024.images import Curves
from tangentlens.studies.claims import Band, Claim, Source, Verdict, judged

ABSTRACT = "arXiv 2402.05271 v4, abstract; the author's code measures it and releases no values"
SUMMARY = "a summary of the paper, section 4.3; speeds and accuracies not seen"


def depth_verdicts(network: str, dataset: str, runs: Sequence[Curves], size: str = "") -> list[Verdict]:
    """The two correlations over depth: their rise in the least layer, raw and above chance."""
    rows = []
    for reading in ("uncentred", "centred"):
        number, place = f"11.{network}.{dataset}.{reading}", f"{network} on {dataset}{size}; least layer"
        raw = f"Over training the {reading} correlation rises in every hidden layer ({place})"
        excess = f"Over training the {reading} correlation rises above its chance level in every hidden layer ({place})"
        chance = statistics.median(value for run in runs for value in run.change(f"{reading}_null"))
        rises = [min(run.change(reading)) for run in runs]
        note = f"the baseline is the rise of the chance level; medians by layer: {_by_layer(runs, reading)}"
        rows.append(judged(_positive(number, raw, ABSTRACT, "paper"), rises, baseline=chance, note=note))
        above = [min(_above_chance(run, reading)) for run in runs]
        where = "the same, read against its null"
        rows.append(judged(_positive(f"{number}.chance", excess, where, "independent run"), above))
    return rows


def limited_verdicts(dataset: str, runs: Mapping[str, Sequence[Curves]]) -> list[Verdict]:
    """Speed limits on the first layer against plain training, at equal epochs; the baselines are in the note."""
    pairs = list(zip(runs["speed-limited"], runs["plain"]))
    correlation = [one.readings[-1]["uncentred"][0] - other.readings[-1]["uncentred"][0] for one, other in pairs]
    accuracy = [one.test_accuracy[-1] - other.test_accuracy[-1] for one, other in pairs]
    ends = ways_compared(runs)
    first = f"Speed limits raise the first layer's uncentred correlation on {dataset}"
    second = f"Speed limits raise the test accuracy on {dataset}"
    return [
        judged(_positive(f"12.{dataset}.uncentred", first, SUMMARY, "second-hand"), correlation, note=ends),
        judged(_positive(f"12.{dataset}.accuracy", second, SUMMARY, "second-hand"), accuracy),
    ]


def ways_compared(runs: Mapping[str, Sequence[Curves]]) -> str:
    """Each way of training by its first layer and its accuracy, medians over seeds."""
    return "; ".join(
        f"{name}: {_first_layer(found, 'uncentred'):.2f} (chance {_first_layer(found, 'uncentred_null'):.2f}), "
        f"accuracy {statistics.median(run.test_accuracy[-1] for run in found):.3f}"
        for name, found in runs.items()
    )


def _above_chance(run: Curves, reading: str) -> list[float]:
    return [rise - chance for rise, chance in zip(run.change(reading), run.change(f"{reading}_null"))]


def _by_layer(runs: Sequence[Curves], reading: str) -> str:
    ends = ((run.readings[0][reading], run.readings[-1][reading]) for run in runs)
    starts, stops = zip(*ends)
    medians = [[statistics.median(values) for values in zip(*side)] for side in (starts, stops)]
    return ", ".join(f"{start:.2f} to {stop:.2f}" for start, stop in zip(*medians))


def _first_layer(runs: Sequence[Curves], reading: str) -> float:
    return statistics.median(run.readings[-1][reading][0] for run in runs)


def _positive(number: str, sentence: str, where: str, source: Source) -> Claim:
    return Claim(number, sentence, where, None, source, Band(low=0), every_seed=True)
