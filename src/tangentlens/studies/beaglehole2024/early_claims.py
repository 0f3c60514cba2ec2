"""What is said of the start of training: exact identities, the limit as t -> 0, and its predictions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from tangentlens.kernels import layer_moments
from tangentlens.measures.free_probability import quadratic_early_limit
from tangentlens.optimizers import SpeedLimited
from tangentlens.studies.beaglehole2024.chain import Chain
from tangentlens.studies.beaglehole2024.chain_runs import SPEED_LIMITS
from tangentlens.studies.beaglehole2024.early import Early, power_law, residual_and_target_limits
from tangentlens.studies.beaglehole2024.networks import relu_network
from tangentlens.studies.claims import Band, Claim, Verdict, around, judged

ABSTRACT = "arXiv 2402.05271 v4, abstract"
DERIVED = "derived from the definitions"
BASELINE = "the baseline puts the chance level in place of the prediction"
IDENTITY = Claim(
    "1",
    "AGOP = W^T K W exactly: relative distance from the outer product of input gradients",
    "author's code and the chain rule", 0.0, "author's code", Band(high=1e-10), every_seed=True,
)  # fmt: skip
SPEEDS = Claim(
    "7",
    "Speed limits 500, 0.002, 0.002: largest relative distance of a layer's gradient norm from its speed",
    "a summary of the paper, section 4.2", "500, 0.002, 0.002", "second-hand", Band(high=1e-6), every_seed=True,
)  # fmt: skip
QUADRATIC = Claim(
    "9.quadratic",
    "The quadratic network's early correlation follows from its data: largest distance over exponents",
    ABSTRACT, None, "paper", Band(high=0.01), every_seed=True,
)  # fmt: skip
LISTED = Claim(
    "9.listed",
    "For isotropic data the quadratic prediction is the one of the independent run",
    "a small run of our own before this study", 0.968, "independent run", around(0.968, 0.01),
)  # fmt: skip
STEP = Claim(
    "9.step",
    "The limit from one batch is the centred correlation after one tiny step",
    DERIVED, 0.0, "independent run", Band(high=1e-3), every_seed=True,
)  # fmt: skip
EASY = Claim(
    "10.easy",
    "For isotropic data, many examples and infinite width the quadratic limit is 1",
    "an easy case of the theorem, whose statement was not seen", 1.0, "independent run", Band(low=0.99),
    every_seed=True,
)  # fmt: skip


RELU_GAPS = {1: statistics.fmean((0.000, 0.030, 0.004)), 2: statistics.fmean((0.009, 0.035, 0.013))}
"""Gaps of prediction and simulation in the independent run, by hidden layers: width 256, exponents 0, 0.5 and 1."""


def relu_claim(hidden: int) -> Claim:
    """The infinite-width prediction for that many hidden layers, judged by the mean gap of a narrower network."""
    plural = "s" * (hidden > 1)
    sentence = f"So does that of {hidden} hidden ReLU layer{plural} on the chain task (width 1024; mean distance)"
    accept = Band(high=round(RELU_GAPS[hidden], 3))
    return Claim(f"9.relu {hidden}", sentence, ABSTRACT, None, "paper", accept, every_seed=True)


def early_verdicts(quadratic: Sequence[Early], relu: Mapping[int, Sequence[Early]], seeds: int) -> list[Verdict]:
    """Claims 1, 7, 9 and the easy case of 10; each prediction is held against simulation on the same data."""
    infinite = max(abs(one.simulated - one.infinite_width) for one in quadratic)
    rows = [
        judged(IDENTITY, [_identity_error(seed) for seed in range(seeds)]),
        judged(SPEEDS, [_speed_error(seed) for seed in range(seeds)]),
        judged(
            QUADRATIC,
            _by_seed(quadratic, max),
            baseline=statistics.median(_by_seed(quadratic, max, "null")),
            note=f"{_pairs(quadratic)}; {BASELINE}; infinite width is off by up to {infinite:.3f}",
        ),
    ]
    isotropic = [one.predicted for one in quadratic if one.exponent == 0]
    rows.append(judged(LISTED, isotropic, note="with other exponents it belongs to a data set, and ranges over 0.1"))
    for hidden, found in relu.items():
        by_chance = statistics.median(_by_seed(found, statistics.fmean, "null"))
        distances = _by_seed(found, statistics.fmean)
        rows.append(judged(relu_claim(hidden), distances, baseline=by_chance, note=f"{_pairs(found)}; {BASELINE}"))
    limits = [residual_and_target_limits(seed) for seed in range(seeds)]
    wrong = max(abs(one["target"] - one["tiny step"]) for one in limits)
    steps = [abs(one["residual"] - one["tiny step"]) for one in limits]
    rows.append(judged(STEP, steps, baseline=wrong, note="the baseline puts y in place of y - f_0"))
    rows.append(judged(EASY, [_easy_case(seed) for seed in range(seeds)]))
    return rows


def _by_seed(
    found: Sequence[Early], of_exponents: Callable[[Iterable[float]], float], level: str = "predicted"
) -> list[float]:
    """Distances of prediction (or of the chance level in its place) and simulation, one number per data seed."""
    seeds = sorted({one.seed for one in found})
    return [
        of_exponents(abs(one.simulated - getattr(one, level)) for one in found if one.seed == seed) for seed in seeds
    ]


def _pairs(found: Sequence[Early]) -> str:
    pairs = []
    for exponent in sorted({one.exponent for one in found}):
        sets = [one for one in found if one.exponent == exponent]
        levels = (statistics.fmean(getattr(one, name) for one in sets) for name in ("predicted", "simulated", "null"))
        pairs.append(f"{exponent:g}: " + " ".join(f"{level:.3f}" for level in levels))
    return f"exponent: predicted, simulated, by chance = {', '.join(pairs)}"


def _identity_error(seed: int) -> float:
    chain = Chain()
    inputs = chain.draw(64, torch.Generator().manual_seed(seed))[0].double().requires_grad_(True)
    network = relu_network(chain.inputs, seed=seed).double()
    (gradients,) = torch.autograd.grad(network(inputs).sum(), inputs)
    true = gradients.T @ gradients
    found = layer_moments(network, inputs.detach(), layers=["0"])["0"].agop
    return float((found - true).norm() / true.norm())


def _speed_error(seed: int) -> float:
    chain = Chain()
    inputs, targets = chain.draw(512, torch.Generator().manual_seed(seed))
    network = relu_network(chain.inputs, seed=seed)
    optimizer = SpeedLimited(torch.optim.SGD(network.parameters(), lr=1e-4), network, dict(SPEED_LIMITS))
    (network(inputs) - targets).square().mean().backward()
    optimizer.limit()
    norms = optimizer.gradient_norms()
    return max(abs(norms[layer] / speed - 1) for layer, speed in SPEED_LIMITS)


def _easy_case(seed: int) -> float:
    torch.manual_seed(seed)
    data = power_law(40_000, 16, 0.0)
    first, second = torch.randn(2, 16, dtype=torch.float64)
    return float(quadratic_early_limit(data, (data @ first) * (data @ second), width=None))
