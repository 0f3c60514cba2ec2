"""Claims tested on colour pictures and on modular addition."""

from __future__ import annotations

import math
import statistics

from tangentlens.studies.claims import Band
from tangentlens.studies.nam2024.grokking import Moment
from tangentlens.studies.nam2024.looking import Look
from tangentlens.studies.nam2024.questions import NEGATIVE, POSITIVE, Question, asked, only

EXTENDED = "extended feature"


def _far_from_zero(ratio: float) -> bool:
    """|ratio| >= 3"""
    return abs(ratio) >= 3


PICTURES = [
    asked("6-rate", "Of three learning rates the one that generalises best has the lowest D_LR", "v3 Table 3",
          "the best", only("the best"), lambda r: [_richest_rate(arms) for arms in r.learning_rate]),
    asked("5-slow", "The smallest learning rate is lazier than the best", "v3 Table 3", 0.053 - 0.025, POSITIVE,
          lambda r: [_ends(arms)[0].distance - _best(arms).distance for arms in r.learning_rate], unit="D_LR more"),
    asked("7-fast", "and so is the largest", "v3 Table 3", 0.039 - 0.025, POSITIVE,
          lambda r: [_ends(arms)[-1].distance - _best(arms).distance for arms in r.learning_rate], unit="D_LR more"),
    asked("9-batch-norm", "Without batch norm a VGG is lazier", "v3 Table 3", 0.66 - 0.073, POSITIVE,
          lambda r: [_ends(arms)[0].distance - _ends(arms)[1].distance for arms in r.batch_norm], every_seed=True,
          unit="D_LR more", baseline=0.0),
    asked("9-accuracy", "and generalises worse", "v3 Table 3", 21.7 - 72.0, NEGATIVE,
          lambda r: [100 * (_ends(arms)[0].accuracy - _ends(arms)[1].accuracy) for arms in r.batch_norm],
          every_seed=True, unit="% test accuracy more", baseline=0.0),
    asked("14-size", "The number of training pictures changes how lazy training is", "v2 abstract", None,
          _far_from_zero, lambda r: [_paired(r.training_size)] if r.training_size else [], source="paper",
          unit="D_LR with the most less with the fewest pictures, paired by seed: mean / standard error", baseline=0.0,
          note="the seeds share their initial network"),
    asked("16-extended", "A fully connected network on CIFAR-10 is in the extended-feature regime", "v1 abstract",
          EXTENDED, only(EXTENDED),
          lambda r: [arms["fully connected"][-1].forward.regime.name for arms in r.fully_connected], source="paper"),
]  # fmt: skip

ADDITION = [
    asked("3-early", "At the 200th step the pairs left out are not known", "v3 Table 3", 5.2, Band(high=20),
          lambda r: [100 * moments[1].test_accuracy for moments in r.grokking], unit="% test accuracy",
          baseline=lambda r: [100 / m[0].look.forward.outputs for m in r.grokking]),
    asked("4-grokked", "and after grokking they are", "v3 Table 3", 99.8, Band(low=95),
          lambda r: [100 * moments[-1].test_accuracy for moments in r.grokking], unit="% test accuracy",
          baseline=lambda r: [100 / m[0].look.forward.outputs for m in r.grokking]),
    asked("4-richer", "while D_LR has fallen", "v3 Table 3", 0.11 - 0.51, NEGATIVE,
          lambda r: [m[-1].look.distance - m[1].look.distance for m in r.grokking], every_seed=True,
          unit="D_LR more", baseline=0.0),
    asked("4-after", "and still falls once the training pairs are known", "v3 Table 3", None, NEGATIVE,
          lambda r: [m[-1].look.distance - _memorised(m).look.distance for m in r.grokking], every_seed=True,
          unit="D_LR more", baseline=0.0, source="independent run"),
    asked("4-below", "to below the isotropic level", "v3 Table 3", "0.11 < 0.13",
          NEGATIVE, lambda r: [m[-1].look.distance - m[-1].look.forward.isotropic for m in r.grokking],
          unit="D_LR less isotropic level"),
]  # fmt: skip


def _ends(arms: dict[str, list[Look]]) -> list[Look]:
    return [looks[-1] for looks in arms.values()]


def _best(arms: dict[str, list[Look]]) -> Look:
    return max(_ends(arms), key=lambda look: look.accuracy)


def _richest_rate(arms: dict[str, list[Look]]) -> str:
    alive = {name: looks for name, looks in arms.items() if not math.isnan(looks[-1].distance)}
    richest = min(alive, key=lambda name: alive[name][-1].distance)
    best = max(arms, key=lambda name: arms[name][-1].accuracy)
    return "the best" if richest == best else f"{richest}, best is {best}"


def _paired(seeds: list[dict[str, list[Look]]]) -> float:
    """Mean over standard error of the change between the first and the last arm."""
    changes = [_ends(arms)[-1].distance - _ends(arms)[0].distance for arms in seeds]
    if len(changes) < 2:
        return math.nan
    return statistics.mean(changes) / (statistics.stdev(changes) / math.sqrt(len(changes)))


def _memorised(moments: list[Moment]) -> Moment:
    """The first look at which the training pairs are known."""
    return next((moment for moment in moments if moment.train_accuracy > 0.95), moments[-1])


QUESTIONS: list[Question] = [*PICTURES, *ADDITION]
