"""Claims tested on digits, and on a function of one variable."""

from __future__ import annotations

import math
from collections.abc import Callable

from tangentlens.measures.jackknife import Interval
from tangentlens.studies.claims import Band
from tangentlens.studies.nam2024.looking import Look
from tangentlens.studies.nam2024.questions import NEGATIVE, POSITIVE, Question, asked, only, yes
from tangentlens.studies.nam2024.results import Results

MINIMAL = "minimal feature"
TABLE = "v3 Table 1 or 2"
# per cent right of ten classes, with the spread of a thousand test examples and of the labels' own order
CHANCE = Band(5, 15)


def _not_minimal(name: object) -> bool:
    """another regime"""
    return name != MINIMAL


def _ends(results: Results, experiment: str, arm: str) -> list[Look]:
    """The last look at one arm, for every seed."""
    outcomes = getattr(results, experiment)
    return [(o[0] if isinstance(o, tuple) else o)[arm][-1] for o in outcomes]


def _starts(results: Results, experiment: str, arm: str) -> list[float]:
    outcomes = getattr(results, experiment)
    return [(o[0] if isinstance(o, tuple) else o)[arm][0].distance for o in outcomes]


def _gap(results: Results, experiment: str, more: str, less: str) -> list[float]:
    pairs = zip(_ends(results, experiment, more), _ends(results, experiment, less))
    return [high.distance - low.distance for high, low in pairs]


SHORTCUT = [
    asked("1-useless", "A network trained by full back-propagation on pictures with a shortcut is useless without it",
          "v3 Fig. 1", 10.0, Band(high=20), lambda r: [100 * o[1]["full"] for o in r.shortcut],
          baseline=10.0, unit="% test accuracy"),
    asked("1-rich", "and its dynamics were rich: D_LR is near 0", "v3 Fig. 1", 0.0087, Band(high=0.05),
          lambda r: [look.distance for look in _ends(r, "shortcut", "full")],
          baseline=lambda r: _starts(r, "shortcut", "full"), unit="D_LR; baseline: before training"),
    asked("2-better", "Training the last layer alone is better", "v3 Fig. 1", 74.4 - 10.0, POSITIVE,
          lambda r: [100 * (o[1]["last layer only"] - o[1]["full"]) for o in r.shortcut],
          unit="% test accuracy more", every_seed=True, baseline=0.0),
    asked("2-lazy", "although it is lazier", "v3 Fig. 1", 0.63 - 0.0087, POSITIVE,
          lambda r: _gap(r, "shortcut", "last layer only", "full"), unit="D_LR more", every_seed=True, baseline=0.0),
]  # fmt: skip

SHUFFLED = [
    asked("10-true", "A network trained on true labels is rich", "v3 Table 3", 0.031, Band(high=0.15),
          lambda r: [look.distance for look in _ends(r, "shuffled", "true")],
          baseline=lambda r: [look.forward.random_head for look in _ends(r, "shuffled", "true")],
          unit="D_LR; baseline: random head"),
    asked("11-rich", "and on shuffled labels as rich", "v3 Table 3", 0.034 - 0.031, Band(-0.05, 0.05),
          lambda r: _gap(r, "shuffled", "shuffled", "true"), unit="D_LR more; baseline: what training changed",
          baseline=lambda r: [b - e.distance for b, e in zip(_starts(r, "shuffled", "true"),
                                                             _ends(r, "shuffled", "true"))]),
    asked("11-useless", "while its test accuracy is chance", "v3 Table 3", 9.5, CHANCE,
          lambda r: [100 * o[1]["shuffled"] for o in r.shuffled], baseline=10.0, unit="% test accuracy"),
    asked("17-poor", "Poor performance inside the minimal-feature regime exists", "v1 abstract", MINIMAL,
          POSITIVE, lambda r: [_poor_and_minimal(r)] if r.shuffled else [], source="paper",
          unit="share of the seeds", note="existence: one network is enough"),
]  # fmt: skip


def _poor_and_minimal(results: Results) -> float:
    """Share of the networks trained on shuffled labels that are at chance and in the minimal-feature regime."""
    found = [
        arms["shuffled"][-1].forward.regime.name == MINIMAL and 100 * useful["shuffled"] in CHANCE
        for arms, useful in results.shuffled
    ]
    return sum(found) / len(found)


def _first_minimal(looks: list[Look]) -> float:
    """The first step, in quarters of the whole training, at which the regime is minimal; infinite if never."""
    steps = [look.step for look in looks if look.forward.regime.name == MINIMAL]
    return steps[0] if steps else float("inf")


FROZEN = [
    asked("c-similarity", "Control: with frozen features S_init is exactly 1", "definition", 1.0, Band(1.0, 1.0),
          lambda r: [look.forward.similarity for look in _ends(r, "frozen", "frozen")], source="independent run",
          every_seed=True),
    asked("c-features", "Control: what is said of frozen features alone stays the same to the last digit", "definition",
          0.0, Band(0.0, 0.0), lambda r: [_feature_change(arms["frozen"]) for arms in r.frozen],
          source="independent run", every_seed=True, unit="largest change of three numbers",
          note="participation, random-head level, dimension; D_LR itself moves with the head it is built from"),
    asked("c-lazier", "Frozen features stay lazier than trained ones", "v1 experiments", None, POSITIVE,
          lambda r: _gap(r, "frozen", "frozen", "full"), every_seed=True, unit="D_LR more", baseline=0.0),
    asked("15-minimal", "The minimal-feature regime is reached after a few epochs", "v1 abstract", "a few epochs",
          Band(high=5), lambda r: [_first_minimal(arms["full"]) / _epoch(arms["full"]) for arms in r.frozen],
          source="paper", unit="epochs", note="infinite: never"),
    asked("15-frozen", "and not with frozen features", "v1 abstract", None, _not_minimal,
          lambda r: [look.forward.regime.name for look in _ends(r, "frozen", "frozen")], source="independent run"),
    asked("18-faster", "Features of larger eigenvalue gain in quality faster", "v3 Fig. 5", None, POSITIVE,
          lambda r: [_early_gain(arms["full"]) for arms in r.frozen], every_seed=True,
          unit="quality gained in the first epoch by the modes 2..10 less that of 11..19", baseline=0.0),
]  # fmt: skip


def _epoch(looks: list[Look]) -> int:
    """Steps per epoch: the pauses lie at a quarter, a half, one epoch and so on."""
    return 4 * looks[1].step


def _feature_change(looks: list[Look]) -> float:
    first = looks[0].forward
    return max(
        max(abs(look.forward.paper.participation - first.paper.participation),
            abs(look.forward.random_head - first.random_head),
            abs(look.forward.eigenvalue_dimension - first.eigenvalue_dimension))
        for look in looks[1:]
    )  # fmt: skip


def _early_gain(looks: list[Look]) -> float:
    """How much more of the target moved into strong modes than into the next as many, in the first epoch."""
    gained = [_gained(looks, 1, 10), _gained(looks, 10, 19)]
    return gained[0] - gained[1]


def _gained(looks: list[Look], start: int, stop: int) -> float:
    """Quality that modes start..stop (from 0) gained in the first epoch."""
    epoch = next((look for look in looks if look.step == _epoch(looks)), looks[-1])
    before, after = looks[0].forward.cumulative_quality, epoch.forward.cumulative_quality
    assert before is not None and after is not None
    inside = [float(curve[:stop][-1] - curve[:start][-1]) for curve in (before, after)]
    return inside[1] - inside[0]


BASELINES = [
    asked("12-distance", "Weight decay changes the kernel without rich dynamics, and D_LR stays", TABLE, None,
          Band(-1, 1), lambda r: [_decayed(arms, _richness) for arms in r.weight_decay], every_seed=True,
          unit="D_LR more, over the 95 % error of the pair",
          note="how far the dynamics are rich under weight decay was not seen in the paper"),
    asked("12-norm", "while the parameter norm falls, which reads as lazier", TABLE, None, NEGATIVE,
          lambda r: [_norm_more(arms) for arms in r.weight_decay], every_seed=True, unit="norm more",
          note="a decay does that to any network"),
    asked("12-similarity", "and S_init falls, which reads as richer", TABLE, None, Band(high=-1),
          lambda r: [_decayed(arms, _similarity) for arms in r.weight_decay], every_seed=True,
          unit="S_init more, over the 95 % error of the pair"),
    asked("13-equal", "Control: targets of every size are learned equally far", "definition", None, Band(0, 0.05),
          lambda r: [max(seed.left.values()) for seed in r.downscaled], every_seed=True, source="independent run",
          unit="share of the training targets left, the most of all alpha"),
    asked("13-distance", "D_LR rises with every downscaling of the targets", TABLE, None, only("yes"),
          lambda r: [yes(_rises(_over(seed.arms, "distance"))) for seed in r.downscaled], every_seed=True),
    asked("13-tangent", "as the tangent kernel's change falls", "theory", None, only("yes"),
          lambda r: [yes(_rises([-change for change in seed.changes.values()])) for seed in r.downscaled],
          every_seed=True, source="independent run"),
    asked("13-similarity", "S_init does not follow: over all alpha it stays within a tenth of its range from 0 to 1",
          TABLE, None, Band(0, 0.1), lambda r: [_extent(_over(seed.arms, "similarity")) for seed in r.downscaled],
          every_seed=True, unit="largest less smallest"),
    asked("13-norm", "nor does the parameter norm: it stays within a tenth of itself",
          TABLE, None, Band(0, 0.1), lambda r: [_relative_extent(seed.arms) for seed in r.downscaled], every_seed=True,
          unit="largest less smallest, over the smallest"),
    asked("13-reversed", "NC1 goes the other way: it falls as D_LR rises", TABLE, None, only("yes"),
          lambda r: [yes(_rises([-v for v in _over(seed.arms, "collapse")])) for seed in r.downscaled],
          every_seed=True),
]  # fmt: skip


def _richness(look: Look) -> Interval:
    assert look.forward.interval is not None  # every look is taken in groups
    return look.forward.interval


def _similarity(look: Look) -> Interval:
    return look.similarity


def _decayed(arms: dict[str, list[Look]], of: Callable[[Look], Interval]) -> float:
    """What weight decay added to a measure, in units of the half-width of the 95 % interval of the difference."""
    without, decayed = (of(looks[-1]) for looks in arms.values())
    return (decayed.corrected - without.corrected) / math.hypot(without.half_width, decayed.half_width)


def _norm_more(arms: dict[str, list[Look]]) -> float:
    without, decayed = (looks[-1].parameter_norm for looks in arms.values())
    return decayed - without


def _over(arms: dict[str, list[Look]], name: str) -> list[float]:
    return [_of(looks[-1], name) for looks in arms.values()]


def _of(look: Look, name: str) -> float:
    return float(getattr(look.forward if name in ("similarity", "collapse") else look, name))


def _rises(values: list[float]) -> bool:
    return all(later > earlier for earlier, later in zip(values, values[1:]))


def _extent(values: list[float]) -> float:
    return max(values) - min(values)


def _relative_extent(arms: dict[str, list[Look]]) -> float:
    norms = _over(arms, "parameter_norm")
    return _extent(norms) / min(norms)


OTHER = [
    asked("20-regression", "Regression collapses in the kernel picture as well: two modes hold the learned function",
          "v1 abstract", None, Band(low=0.95), lambda r: [looks[-1].used for looks, _ in r.regression], source="paper",
          unit="Pi-hat(2); baseline: before training", baseline=lambda r: [looks[0].used for looks, _ in r.regression],
          note="an output that varies little over the inputs is in two modes untrained: this counts if D_LR falls"),
    asked("20-rich", "and D_LR ends below its start", "v1 abstract", None, NEGATIVE,
          lambda r: [looks[-1].distance - looks[0].distance for looks, _ in r.regression], source="paper",
          every_seed=True, unit="D_LR more"),
    asked("19-last", "The last layer has the strongest low-rank bias", "v3 App. I", "the last", only("the last"),
          lambda r: [_richest_layer(looks) for looks in r.layers]),
]  # fmt: skip


def _richest_layer(layers: dict[str, Look]) -> str:
    best = min(layers, key=lambda name: layers[name].distance)
    return "the last" if best == list(layers)[-1] else f"layer {best}"


QUESTIONS: list[Question] = [*SHORTCUT, *SHUFFLED, *FROZEN, *BASELINES, *OTHER]
