"""What is read of a network on the chain task: the ansatz, its cause, and how right its features are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from tangentlens.kernels import LayerMoments, layer_moments
from tangentlens.measures.alignment_null import ansatz
from tangentlens.measures.alignment_readings import ansatz_readings
from tangentlens.measures.alignment_turns import in_random_basis
from tangentlens.measures.alignment_view import alignment_view, kernel_drift, top_overlap
from tangentlens.measures.egop import feature_quality
from tangentlens.measures.feature_machine import feature_machine
from tangentlens.studies.beaglehole2024.chain import Chain

LAYER = "0"
"""The layer that is read: the first, whose input the target is a function of."""
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Drawn:
    """One data set of the task, and what a recursive feature machine makes of it."""

    chain: Chain
    train: Batch
    test: Batch
    machine_metric: Tensor
    machine_test_error: float


@lru_cache(maxsize=8)
def drawn(chain: Chain, examples: int, seed: int) -> Drawn:
    """The data of a seed, the same for every way of training."""
    generator = torch.Generator().manual_seed(1000 + seed)
    train, test = chain.draw(examples, generator), chain.draw(4000, generator)
    machine = feature_machine(*train)
    test_error = (machine(test[0]) - test[1]).square().mean() / test[1].var()
    return Drawn(chain, train, test, machine.metric, float(test_error))


def first_layer(network: nn.Module, data: Drawn) -> LayerMoments:
    """The first layer and its tangent covariance on the training inputs."""
    return layer_moments(network, data.train[0], layers=[LAYER])[LAYER]


def error(network: nn.Module, batch: Batch) -> Tensor:
    """Mean squared error."""
    inputs, targets = batch
    return (network(inputs) - targets).square().mean()


def chain_readings(
    network: nn.Module, data: Drawn, initial_weight: Tensor, initial_kernel: Tensor, draws: int, step: int
) -> dict[str, float]:
    """One look at a network: every number by name."""
    moments = first_layer(network, data)
    weight, kernel = moments.weight, moments.ptk_covariance
    readings = ansatz_readings(weight, initial_weight, kernel, initial_kernel, draws=draws, seed=step)
    for name, matrix in (("uncentred", weight), ("centred", weight - initial_weight)):
        # the paper's own control: the same spectrum, once, in a random basis (the null is its mean over many)
        readings[f"{name}_random_kernel"] = ansatz(matrix, in_random_basis(kernel, seed=step), draws=0).value
        by_entries = ansatz(matrix, kernel, centering="entries", draws=draws, seed=step)
        readings |= {f"{name}_entries": by_entries.value, f"{name}_entries_null": by_entries.null}
    readings |= _features(moments, data)
    readings |= {f"kernel_{name}": value for name, value in kernel_drift(kernel, initial_kernel).items()}
    readings["top_overlap"] = top_overlap(alignment_view(weight, kernel), data.chain.length)
    with torch.no_grad():
        readings["train_error"] = error(network, data.train) / data.train[1].var()
        readings["test_error"] = error(network, data.test) / data.test[1].var()
    return {name: float(value) for name, value in readings.items()}


def _features(moments: LayerMoments, data: Drawn) -> dict[str, Tensor]:
    """NFM and AGOP beside the target's EGOP and beside the metric of a recursive feature machine on the same data."""
    egop = data.chain.egop()
    pairs = {
        "quality": (moments.nfm, egop),
        "agop_quality": (moments.agop, egop),
        "machine_quality": (data.machine_metric, egop),
        "machine_nfm": (moments.nfm, data.machine_metric),
        "machine_agop": (moments.agop, data.machine_metric),
    }
    readings = {"machine_test_error": torch.tensor(data.machine_test_error)}
    for name, pair in pairs.items():
        found = feature_quality(*pair)
        readings |= {name: found.value, f"{name}_null": found.null}
        readings |= {f"{name}_low": found.low, f"{name}_high": found.high}
    return readings
