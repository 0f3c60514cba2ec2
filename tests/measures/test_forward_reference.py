"""Every forward-feature measure agrees with its n x n definition to 1e-10."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tangentlens.measures.collapse import collapse
from tangentlens.measures.eigenfunctions import eigenfunctions
from tangentlens.measures.feature_change import initial_similarity
from tangentlens.measures.forward_moments import forward_moments, one_hot
from tangentlens.measures.quality import held_out_quality, quality, utilisation
from tangentlens.measures.richness import richness
from tests.measures.forward_examples import collapsed, lazy_network
from tests.reference import nam2024 as reference


def near_collapsed(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    features, targets, labels = collapsed(classes=4, copies=40, units=24, seed=seed)
    noise = torch.Generator().manual_seed(seed + 100)
    features = features + 0.1 * torch.randn(features.shape, generator=noise, dtype=torch.float64)
    head = torch.randn(24, 4, generator=noise, dtype=torch.float64)
    return features, features @ (torch.linalg.pinv(features) @ targets + 0.01 * head), targets, labels


CASES = {
    "lazy": lambda seed: lazy_network(seed=seed),
    "near collapse": near_collapsed,
    "one output": lambda seed: (*lazy_network(seed=seed)[:1], *(part[:, :1] for part in lazy_network(seed=seed)[1:3]),
                                lazy_network(seed=seed)[3]),
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_every_measure_agrees_with_the_operators_of_the_paper(case: str, seed: int) -> None:
    features, outputs, targets, labels = CASES[case](seed)
    moments = forward_moments(features, outputs, targets)
    f, o, t = features.numpy(), outputs.numpy(), targets.numpy()
    rho, modes = reference.eigenpairs(f)
    found = eigenfunctions(moments)
    np.testing.assert_allclose(found.eigenvalues.numpy(), rho, rtol=1e-10, atol=1e-12)
    aligned = np.abs(np.mean(found(features).numpy() * modes, axis=0))
    np.testing.assert_allclose(aligned, 1, atol=1e-8)
    shares = {"subspace": reference.subspace_shares, "variance": reference.variance_shares}
    for rule, share in shares.items():
        np.testing.assert_allclose(quality(moments, normalisation=rule).numpy(), share(f, t), atol=1e-10)
        np.testing.assert_allclose(utilisation(moments, normalisation=rule).numpy(), share(f, o), atol=1e-10)
    assert richness(moments, "paper").distance == pytest.approx(reference.richness_distance(f, o), abs=1e-10)
    for classification in (False, True) if outputs.shape[1] > 1 else (False,):
        ours = richness(moments, "robust", classification=classification).distance
        assert ours == pytest.approx(reference.robust_distance(f, o, classification), abs=1e-10)


@pytest.mark.parametrize("case", ["lazy", "near collapse"])
def test_baselines_agree_with_their_definitions(case: str) -> None:
    features, outputs, targets, labels = CASES[case](0)
    initial = CASES["lazy"](7)[0][: len(features)]
    moments = forward_moments(features, outputs, targets, initial=initial)
    expected = reference.initial_similarity(features.numpy(), initial.numpy())
    assert initial_similarity(moments) == pytest.approx(expected, abs=1e-10)
    expected = reference.collapse(features.numpy(), labels.numpy())
    assert collapse(moments) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("subspace", [False, True])
def test_held_out_quality_is_the_share_predicted_by_fitted_modes(subspace: bool) -> None:
    features, _, targets, _ = near_collapsed(0)
    fitted, held_out = slice(0, None, 2), slice(1, None, 2)
    ours = held_out_quality(
        forward_moments(features[fitted], targets=targets[fitted]),
        forward_moments(features[held_out], targets=targets[held_out]),
        normalisation="subspace" if subspace else "variance",
    )
    numpy = [part.numpy() for part in (features[fitted], targets[fitted], features[held_out], targets[held_out])]
    np.testing.assert_allclose(ours.numpy(), reference.held_out_shares(*numpy, subspace=subspace), atol=1e-10)


def test_the_weights_of_the_minimum_projection_operator_cancel() -> None:
    features, outputs, _, _ = lazy_network()
    once = reference.richness_distance(features.numpy(), outputs.numpy())
    again = reference.richness_distance(features.numpy(), outputs.numpy(), a1=17.0, a2=0.3)
    assert once == pytest.approx(again, abs=1e-12)


def test_class_labels_give_the_paper_value_for_every_class_count() -> None:
    features = torch.randn(60, 5, dtype=torch.float64)
    labels = torch.arange(60) % 3
    moments = forward_moments(features, one_hot(labels, 3), labels)
    expected = reference.richness_distance(features.numpy(), one_hot(labels, 3).numpy())
    assert richness(moments).distance == pytest.approx(expected, abs=1e-12)
