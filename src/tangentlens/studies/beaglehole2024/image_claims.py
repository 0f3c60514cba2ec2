"""What is said of images: alignment grows over training, layer by layer, and speed limits strengthen it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tangentlens.studies.beaglehole2024.images import Curves
from tangentlens.studies.claims import Band, Claim, Source, Verdict, judged

ABSTRACT = "arXiv 2402.05271 v4, abstract; the author's code measures it and releases no values"
SUMMARY = "a summary of the paper, section 4.3; speeds and accuracies not seen"
NULL = "the same, read against its null"


def depth_verdicts(network: str, dataset: str, runs: Sequence[Curves], size: str = "") -> list[Verdict]:
    """The correlations over depth: the rise of the raw uncentred one, and of both above chance, in the least layer.

    That the raw centred one rises nobody says: the first change of a weight is nearly of rank one, and starts near 1.
    """
    place = f"{network} on {dataset}{size}; least layer"
    chance = statistics.median(value for run in runs for value in run.change("uncentred_null"))
    sentence = f"Over training the uncentred correlation rises in every hidden layer ({place})"
    claim = _positive(f"11.{network}.{dataset}.uncentred", sentence, ABSTRACT, "paper")
    note = f"the baseline is the rise of the chance level; {_by_layer(runs, 'uncentred')}"
    rows = [judged(claim, [min(run.change("uncentred")) for run in runs], baseline=chance, note=note)]
    for reading in ("uncentred", "centred"):
        sentence = (
            f"Over training the {reading} correlation rises above its chance level in every hidden layer ({place})"
        )
        claim = _positive(f"11.{network}.{dataset}.{reading}.chance", sentence, NULL, "independent run")
        note = f"{_by_layer(runs, reading)}; chance, {_by_layer(runs, f'{reading}_null')}"
        rows.append(judged(claim, [min(_above_chance(run, reading)) for run in runs], note=note))
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
    return "first layer to last: " + ", ".join(f"{start:.2f} to {stop:.2f}" for start, stop in zip(*medians))


def _first_layer(runs: Sequence[Curves], reading: str) -> float:
    return statistics.median(run.readings[-1][reading][0] for run in runs)


def _positive(number: str, sentence: str, where: str, source: Source) -> Claim:
    return Claim(number, sentence, where, None, source, Band(low=0), every_seed=True)
