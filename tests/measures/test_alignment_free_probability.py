from __future__ import annotations

import itertools
import math

import pytest
import torch

from tangentlens.measures.alignment import ansatz_correlation
from tangentlens.measures.early_time import ptk_covariance_of, velocity_of
from tangentlens.measures.free_probability import (
    free_moment,
    kreweras_complement,
    non_crossing_partitions,
    quadratic_early_limit,
)
from tests.reference.beaglehole2024 import power_law_inputs, product_of_projections, quadratic_gradients


def crosses(partition: tuple[tuple[int, ...], ...]) -> bool:
    for first, second in itertools.permutations(partition, 2):
        for (a, c), (b, d) in itertools.product(itertools.combinations(first, 2), itertools.combinations(second, 2)):
            if a < b < c < d:
                return True
    return False


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_non_crossing_partitions_are_counted_by_the_catalan_numbers(size: int) -> None:
    partitions = {frozenset(frozenset(block) for block in p) for p in non_crossing_partitions(size)}
    assert len(partitions) == len(list(non_crossing_partitions(size))) == math.comb(2 * size, size) // (size + 1)
    assert not any(crosses(tuple(tuple(sorted(block)) for block in partition)) for partition in partitions)


@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_partition_and_its_complement_have_one_block_more_than_elements_and_do_not_cross(size: int) -> None:
    for partition in non_crossing_partitions(size):
        complement = kreweras_complement(partition)
        assert len(partition) + len(complement) == size + 1
        # elements at even places, the places after them at odd ones: together they must not cross
        merged = [tuple(2 * i for i in sorted(block)) for block in partition]
        merged += [tuple(2 * i + 1 for i in sorted(block)) for block in complement]
        assert not crosses(tuple(merged))


def test_two_factors_give_the_known_mixed_moment() -> None:
    first, second = torch.randn(2, 5, 5, dtype=torch.float64)
    tau = lambda matrix: matrix.trace() / 5  # noqa: E731
    r1, r2 = 0.7, 1.9
    ours = free_moment({1: r1, 2: r2 - r1**2}.__getitem__, (first, second))
    assert abs(ours - (tau(first @ second) * r1**2 + tau(first) * tau(second) * (r2 - r1**2))) < 1e-12


def test_moments_of_a_wishart_matrix_among_fixed_ones_are_predicted() -> None:
    size, width = 400, 800
    fixed = [torch.diag(torch.linspace(0.2, 2, size).double() ** power) for power in (1, -1, 0.5, 2)]
    weight = torch.randn(width, size, dtype=torch.float64) / width**0.5
    wishart = weight.T @ weight
    product = torch.eye(size, dtype=torch.float64)
    for matrix in fixed:
        product = product @ wishart @ matrix
    predicted = free_moment(lambda order: (size / width) ** (order - 1), fixed)
    assert abs(product.trace() / size / predicted - 1) < 0.02


@pytest.mark.parametrize(("alpha", "listed"), [(0.0, 0.968), (0.25, 0.960)])
def test_the_prediction_for_nearly_isotropic_data_is_the_listed_one(alpha: float, listed: float) -> None:
    predictions = []
    for _ in range(8):
        inputs = power_law_inputs(512, 128, alpha, rotated=True)
        predictions.append(quadratic_early_limit(inputs, product_of_projections(inputs), width=256))
    assert abs(torch.stack(predictions).mean() - listed) < 0.01


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0, 1.5])
def test_the_prediction_is_within_a_hundredth_of_simulated_networks_on_the_same_data(alpha: float) -> None:
    inputs = power_law_inputs(512, 128, alpha, rotated=True)
    targets = product_of_projections(inputs)
    limits = []
    for _ in range(12):
        gradients = quadratic_gradients(inputs, 256)[:, None]
        limits.append(
            ansatz_correlation(velocity_of(gradients, inputs, targets[:, None]), ptk_covariance_of(gradients))
        )
    assert abs(torch.stack(limits).mean() - quadratic_early_limit(inputs, targets, width=256)) < 0.01


def test_infinite_width_is_the_limit_of_finite_widths() -> None:
    inputs = power_law_inputs(300, 40, 0.5, rotated=True)
    targets = product_of_projections(inputs)
    infinite = quadratic_early_limit(inputs, targets, width=None)
    gaps = [abs(quadratic_early_limit(inputs, targets, width=width) - infinite) for width in (50, 500, 50_000)]
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 1e-3


def test_unequal_readout_weights_change_the_prediction_as_they_change_simulated_networks() -> None:
    inputs = power_law_inputs(400, 80, 0.0, rotated=True)
    targets = product_of_projections(inputs)
    readout = torch.randn(100, dtype=torch.float64)
    limits = []
    for _ in range(12):
        weight = torch.randn(100, 80, dtype=torch.float64)
        gradients = (2 * (inputs @ weight.T) * readout)[:, None]
        limits.append(
            ansatz_correlation(velocity_of(gradients, inputs, targets[:, None]), ptk_covariance_of(gradients))
        )
    unequal = quadratic_early_limit(inputs, targets, width=100, readout=readout)
    equal = quadratic_early_limit(inputs, targets, width=100)
    simulated = torch.stack(limits).mean()
    assert abs(simulated - unequal) < 0.02 < abs(simulated - equal)
