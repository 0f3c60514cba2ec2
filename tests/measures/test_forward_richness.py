"""D_LR: its closed forms, what it must not depend on, and its traps."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tangentlens.measures.forward_moments import forward_moments, one_hot
from tangentlens.measures.richness import richness
from tests.measures.forward_examples import collapsed, isotropic, lazy_network

BOTH = pytest.mark.parametrize("convention", ["paper", "robust"])


def distance(features: torch.Tensor, outputs: torch.Tensor, convention: str = "paper", **choices: object) -> float:
    return richness(forward_moments(features, outputs), convention, **choices).distance


@BOTH
@pytest.mark.parametrize("classes", [2, 10, 30])
def test_perfect_collapse_is_richest(classes: int, convention: str) -> None:
    features, targets, _ = collapsed(classes=classes)
    assert distance(features, targets, convention) == pytest.approx(0, abs=1e-12)
    assert distance(features, 3 * targets, convention, classification=True) == pytest.approx(0, abs=1e-12)


@BOTH
@pytest.mark.parametrize(("units", "rank", "level"), [(512, 10, 0.860), (512, 100, 0.558), (128, 97, 0.1295)])
def test_isotropic_features_score_one_minus_the_root_of_the_used_share(
    units: int, rank: int, level: float, convention: str
) -> None:
    found = richness(forward_moments(*isotropic(units, rank)), convention, classification=False)
    assert found.distance == pytest.approx(1 - math.sqrt(rank / units), abs=1e-10)
    assert found.distance == pytest.approx(level, abs=5e-4)
    assert (found.rank, found.participation) == (rank, pytest.approx(units))


def test_centring_before_projecting_would_call_perfect_collapse_lazy() -> None:
    features, targets, _ = collapsed(classes=10)
    noise = 1e-9 * torch.randn(targets.shape, dtype=torch.float64)  # the direction that centring promotes
    outputs = targets + noise
    wrong_order, _ = torch.linalg.qr(outputs - outputs.mean(0))
    centred = features - features.mean(0)
    norm = torch.linalg.matrix_norm
    inside = norm(centred.T @ wrong_order) ** 2
    wrong = 1 - inside / (norm(centred.T @ centred) * norm(wrong_order.T @ wrong_order))
    assert float(wrong) == pytest.approx(1 - math.sqrt(0.9), abs=1e-6)
    assert distance(features, outputs) == pytest.approx(0, abs=1e-6)


@BOTH
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3), shift=st.floats(-5, 5))
def test_richness_ignores_rotation_scale_and_shift_of_features(
    convention: str, seed: int, scale: float, shift: float
) -> None:
    features, outputs, _, _ = lazy_network(rows=80, units=9, outputs=3, seed=seed)
    rotation, _ = torch.linalg.qr(torch.randn(9, 9, dtype=torch.float64))
    moved = scale * (features @ rotation + shift)
    assert distance(moved, outputs, convention) == pytest.approx(distance(features, outputs, convention), abs=1e-8)


@BOTH
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_richness_ignores_invertible_linear_maps_of_the_outputs(convention: str, seed: int) -> None:
    features, outputs, _, _ = lazy_network(rows=80, units=9, outputs=3, seed=seed)
    mixing = torch.eye(3, dtype=torch.float64) + 0.5 * torch.randn(3, 3, dtype=torch.float64).tanh()
    mixed = outputs @ mixing
    before = distance(features, outputs, convention, classification=False)
    assert distance(features, mixed, convention, classification=False) == pytest.approx(before, abs=1e-8)


def test_only_the_robust_convention_ignores_offsets_of_the_outputs() -> None:
    features, outputs, _, _ = lazy_network()
    offset = torch.tensor([3.0, -1.0, 0.0, 2.0], dtype=torch.float64)
    robust = [distance(features, o, "robust") for o in (outputs, outputs + offset)]
    assert robust[0] == pytest.approx(robust[1], abs=1e-12)
    assert abs(distance(features, outputs + offset) - distance(features, outputs)) > 1e-3


def test_richness_depends_on_linear_maps_of_features_that_are_no_rotation() -> None:
    features, outputs, _, _ = lazy_network()
    stretched = features * torch.linspace(1, 5, features.shape[1], dtype=torch.float64)
    assert abs(distance(stretched, outputs) - distance(features, outputs)) > 1e-2


def test_richness_whitens_the_outputs_where_plain_alignment_does_not() -> None:
    # a balanced linear network of singular values 1, 0.5, 0.25: features U sqrt(s), outputs U s
    strengths = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    functions, _ = isotropic(units=3, rank=3)
    features, outputs = functions * strengths.sqrt(), functions * strengths
    assert distance(features, outputs) == pytest.approx(0.118, abs=5e-4)
    first, second = features @ features.T, outputs @ outputs.T
    plain = 1 - (first * second).sum() / (torch.linalg.matrix_norm(first) * torch.linalg.matrix_norm(second))
    assert float(plain) == pytest.approx(0.036, abs=5e-4)


@BOTH
def test_share_participation_and_rank_multiply_to_the_value(convention: str) -> None:
    for features, outputs in (lazy_network()[:2], collapsed()[:2], isotropic(20, 3)):
        found = richness(forward_moments(features, outputs), convention)
        product = found.share * math.sqrt(found.participation / found.centred_rank)
        assert 1 - found.distance == pytest.approx(product, abs=1e-12)
        assert 0 <= found.share <= 1 + 1e-12
        assert 1 <= found.participation <= features.shape[1] + 1e-9


def test_the_split_tells_unused_features_from_unequal_ones() -> None:
    functions, _ = isotropic(units=12, rank=4)
    used = functions[:, :4]
    unused = richness(forward_moments(functions, used))
    unequal = richness(forward_moments(used * torch.tensor([8.0, 4.0, 2.0, 1.0]), used))
    assert unused.share == pytest.approx(4 / 12) and unused.participation == pytest.approx(12)
    assert unequal.share == pytest.approx(1) and unequal.participation < 2


@pytest.mark.parametrize("offset", [0.0, 0.5])
@pytest.mark.parametrize("residual", [0.0, 1e-6, 1e-3])
def test_a_residual_in_the_sum_of_logits_moves_the_paper_convention_only(residual: float, offset: float) -> None:
    """Near-collapsed centred logits: the literal value hangs on a direction no classifier uses."""
    features, targets, _ = collapsed(classes=10, copies=40)
    noise = torch.Generator().manual_seed(3)
    features = features + 0.01 * torch.randn(features.shape, generator=noise, dtype=torch.float64)
    logits = targets - 0.1 + 0.001 * torch.randn(targets.shape, generator=noise, dtype=torch.float64)
    logits = logits - logits.mean(1, keepdim=True) + residual + offset
    settled = distance(features, logits, "robust", classification=True)
    assert settled == pytest.approx(0, abs=2e-3)
    bare = distance(features, logits - residual - offset, "robust", classification=True)
    assert settled == pytest.approx(bare, abs=1e-12)


def test_dead_features_and_constant_outputs_have_no_richness() -> None:
    features, outputs, _, _ = lazy_network()
    assert math.isnan(distance(torch.ones_like(features), outputs))
    for convention in ("paper", "robust"):
        assert math.isnan(distance(features, torch.ones_like(outputs), convention))
        assert math.isnan(distance(features, torch.zeros_like(outputs), convention))


def test_an_unknown_convention_is_refused() -> None:
    features, outputs, _, _ = lazy_network()
    with pytest.raises(ValueError, match="'paper' or 'robust'"):
        getattr(richness, "__wrapped__", richness)(forward_moments(features, outputs), "literal")


def test_one_hot_targets_switch_the_gauge_on_by_themselves() -> None:
    features, outputs, targets, _ = lazy_network()
    asked = richness(forward_moments(features, outputs), "robust", classification=True).distance
    found = richness(forward_moments(features, outputs, targets), "robust").distance
    regression = richness(forward_moments(features, outputs, targets + 0.1 * outputs), "robust").distance
    assert found == asked
    assert regression == richness(forward_moments(features, outputs), "robust", classification=False).distance
    assert one_hot(torch.tensor([0, 1]), 2).dtype == torch.float64
