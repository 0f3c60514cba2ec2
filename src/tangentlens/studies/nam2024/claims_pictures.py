"""Claims tested on colour pictures and on modular addition."""

from __future__ import annotations

import itertools
import math
import random

import torch

from tangentlens.studies.claims import Band
from tangentlens.studies.nam2024.grokking import Moment
from tangentlens.studies.nam2024.looking import Look
from tangentlens.studies.nam2024.questions import NEGATIVE, POSITIVE, Question, asked, only

EXTENDED, MINIMAL = "extended feature", "minimal feature"
# per cent right from which examples count as known
KNOWN = Band(low=95)
# orders of sizes within seeds that are all gone through; more are drawn
ORDERS = 50_000


PICTURES = [
    asked("6-known", "Control: at every learning rate the training pictures are known in the end", "definition", None,
          KNOWN, lambda r: [_least_known(arms) for arms in r.learning_rate], every_seed=True, source="independent run",
          unit="% training accuracy, the least of the rates"),
    asked("6-rate", "Of three learning rates the one that generalises best has the lowest D_LR", "v3 Table 3",
          "the best", only("the best"), lambda r: [_richest_rate(arms) for arms in r.learning_rate]),
    asked("5-slow", "The smallest learning rate is lazier than the best", "v3 Table 3", 0.053 - 0.025, POSITIVE,
          lambda r: [_ends(arms)[0].distance - _best(arms).distance for arms in r.learning_rate], unit="D_LR more"),
    asked("7-fast", "and so is the largest", "v3 Table 3", 0.039 - 0.025, POSITIVE,
          lambda r: [_ends(arms)[-1].distance - _best(arms).distance for arms in r.learning_rate], unit="D_LR more"),
    asked("9-known", "Control: with and without batch norm the training pictures are known in the end", "definition",
          None, KNOWN, lambda r: [_least_known(arms) for arms in r.batch_norm], every_seed=True,
          source="independent run", unit="% training accuracy, the less of the two",
          note="a network that learned little is lazy for that reason, too; the one of the paper has 21.7 % in test"),
    asked("9-batch-norm", "Without batch norm a VGG is lazier", "v3 Table 3", 0.66 - 0.073, POSITIVE,
          lambda r: [_ends(arms)[0].distance - _ends(arms)[1].distance for arms in r.batch_norm], every_seed=True,
          unit="D_LR more", baseline=0.0),
    asked("9-accuracy", "and generalises worse", "v3 Table 3", 21.7 - 72.0, NEGATIVE,
          lambda r: [100 * (_ends(arms)[0].accuracy - _ends(arms)[1].accuracy) for arms in r.batch_norm],
          every_seed=True, unit="% test accuracy more", baseline=0.0),
    asked("14-size", "The number of training pictures changes how lazy training is", "v2 abstract", None,
          Band(high=0.05), lambda r: [_share_as_far_apart(r.training_size)] if r.training_size else [],
          source="paper", unit="p of sizes reordered within every seed",
          note="whatever the order of the sizes; three seeds can show p = 0.03 at best, fewer nothing"),
    asked("16-known", "Control: both networks know their training pictures in the end", "definition", None, KNOWN,
          lambda r: [_least_known(arms) for arms in r.fully_connected], every_seed=True, source="independent run",
          unit="% training accuracy, the less of the two"),
    asked("16-extended", "A fully connected network on CIFAR-10 is in the extended-feature regime", "v1 abstract",
          EXTENDED, only(EXTENDED),
          lambda r: [arms["fully connected"][-1].forward.regime.name for arms in r.fully_connected], source="paper",
          note="looked at on its training pictures"),
    asked("16-contrast", "where a residual network is in the minimal one after the same training", "v1 abstract",
          MINIMAL, only(MINIMAL),
          lambda r: [arms["residual"][-1].forward.regime.name for arms in r.fully_connected],
          source="independent run"),
    asked("17-best", "The best network of the tuned ones is in the minimal-feature regime", "v1 abstract", MINIMAL,
          only(MINIMAL), lambda r: [_best(arms).forward.regime.name for arms in r.learning_rate], source="paper",
          note="tuned is the learning rate"),
]  # fmt: skip

ADDITION = [
    asked("3-early", "Early, at the 200th step, the pairs left out are not known", "v3 Table 3", 5.2, Band(high=20),
          lambda r: [100 * moments[1].test_accuracy for moments in r.grokking], unit="% test accuracy", every_seed=True,
          note="the 200th at learning rate 1e-3, the 67th at 3e-3",
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


def _least_known(arms: dict[str, list[Look]]) -> float:
    return min(100 * look.known for look in _ends(arms))


def _richest_rate(arms: dict[str, list[Look]]) -> str:
    alive = {name: looks for name, looks in arms.items() if not math.isnan(looks[-1].distance)}
    if not alive:
        return "none has a D_LR"
    richest = min(alive, key=lambda name: alive[name][-1].distance)
    best = max(arms, key=lambda name: arms[name][-1].accuracy)
    return "the best" if richest == best else f"{richest}, best is {best}"


def _share_as_far_apart(seeds: list[dict[str, list[Look]]]) -> float:
    """A permutation test without a direction: how often sizes dealt out anew within every seed differ as much.

    The statistic is the variance of the sizes' means over seeds. It stays the same when all seeds are reordered alike,
    so the first one keeps its order.
    """
    table = torch.tensor([[look.distance for look in _ends(arms)] for arms in seeds], dtype=torch.float64)
    if len(table) < 2 or bool(table.isnan().any()):
        return math.nan
    count = table.shape[1]
    every = list(itertools.permutations(range(count)))
    if len(every) ** (len(table) - 1) <= ORDERS:
        orders = [((*range(count),), *rest) for rest in itertools.product(every, repeat=len(table) - 1)]
    else:
        generator = random.Random(0)
        orders = [tuple(generator.choice(every) for _ in table) for _ in range(ORDERS)]
    dealt = table[None].expand(len(orders), -1, -1).gather(2, torch.tensor(orders))
    apart, seen = dealt.mean(1).var(1), table.mean(0).var()
    return float((apart >= seen - 1e-12).double().mean())


def _memorised(moments: list[Moment]) -> Moment:
    """The first look at which the training pairs are known."""
    return next((moment for moment in moments if 100 * moment.train_accuracy in KNOWN), moments[-1])


QUESTIONS: list[Question] = [*PICTURES, *ADDITION]
