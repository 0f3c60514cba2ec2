"""Forward features along a run: held-out quality, levels of one convention, settings kept, any targets survived."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

from tangentlens.measures.regimes import RegimeThresholds
from tangentlens.record.instruments.forward import forward
from tangentlens.record.measure import Measure
from tangentlens.record.open import errors, open_record
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import every


class Language(nn.Module):
    """A token model with outputs of its own at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(7, 12), nn.Linear(12, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(tokens)))


def dense(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, outputs))


def recorded(
    folder: Path, model: nn.Module, probe: tuple[Tensor, Tensor], measures: list[Measure] | None
) -> xr.DataTree:
    recorder = Recorder(folder / "run", model, probe, measures, every(1), strict=measures is not None)
    for step in range(2):
        recorder.observe(step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1).add_(0.01)
    recorder.close()
    return open_record(folder / "run")


X = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
TOKENS = torch.arange(150).view(30, 5) % 7


@pytest.mark.parametrize(
    ("model", "inputs", "targets", "kept"),
    [
        (lambda: dense(1), X, (X[:, 0] > 0).long(), True),
        (lambda: dense(1), X, (X[:, :1] > 0), True),
        (lambda: dense(1), X, (20 + 5 * X[:, 0]).long(), True),
        (lambda: dense(3), X, torch.arange(200)[:, None] % 3, True),
        (Language, TOKENS, (TOKENS + 1) % 7, True),
        (Language, TOKENS, torch.full((30, 5), -100), False),
    ],
)
def test_whatever_the_targets_are_the_features_are_recorded(
    tmp_path: Path, model: Callable[[], nn.Module], inputs: Tensor, targets: Tensor, kept: bool
) -> None:
    torch.manual_seed(0)
    tree = recorded(tmp_path, model(), (inputs, targets), forward())
    data = tree["forward"].to_dataset()
    assert np.isfinite(data["richness"]).all() and np.isfinite(data["initial_alignment"]).all()
    assert bool(np.isfinite(data["cumulative_quality"]).any()) == kept
    assert ("targets" in tree["forward"].attrs) != kept
    if not kept:
        assert "leave rows without a class out" in tree["forward"].attrs["cautions"]


@pytest.mark.filterwarnings("ignore:measure")  # other instruments may refuse such targets
@pytest.mark.parametrize(
    ("model", "inputs", "targets"), [(lambda: dense(1), X, (X[:, 0] > 0).long()), (Language, TOKENS, (TOKENS + 1) % 7)]
)
def test_a_recorder_without_chosen_measures_reads_their_quality(
    tmp_path: Path, model: Callable[[], nn.Module], inputs: Tensor, targets: Tensor
) -> None:
    torch.manual_seed(0)
    tree = recorded(tmp_path, model(), (inputs, targets), None)
    assert [failed for failed in errors(tree) if failed["measure"].startswith("forward")] == []
    assert np.isfinite(tree["forward/cumulative_quality"][0]).any()


def test_quality_is_also_judged_on_the_half_it_was_not_fitted_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    unrelated = torch.randint(3, (200,), generator=generator)
    wide = nn.Sequential(nn.Linear(6, 60), nn.ReLU(), nn.Linear(60, 3))
    data = recorded(tmp_path, wide, (X, unrelated), forward())["forward"].to_dataset()
    inside = data["cumulative_quality"][0].dropna("mode")
    outside = data["cumulative_quality_held_out"][0].dropna("mode")
    assert data["cumulative_quality"].attrs["held_out"] == "cumulative_quality_held_out"
    # centred targets of three classes: their constant part is a third of them, and the only one features can know
    assert float(inside[-1]) > 0.45 and float(outside[-1]) < 0.34
    related = (X[:, :1] * torch.tensor([1.0, 0, -1])).argmax(1)
    good = recorded(tmp_path / "good", dense(3), (X, related), forward())["forward"].to_dataset()
    assert float(good["cumulative_quality_held_out"][0].dropna("mode")[-1]) > 0.5


def test_every_line_names_levels_of_its_own_convention(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data = recorded(tmp_path, dense(3), (X, torch.arange(200) % 3), forward())["forward"].to_dataset()
    for name in ("richness", "richness_robust"):
        at_start = data[data[name].attrs["initial"]]
        assert np.allclose(data[name][0], at_start) and np.ptp(at_start.values) == 0
    assert not np.allclose(data["richness"][0], data["richness_robust"][0])
    assert (data["richness_random_head"] != data["richness_random_head_robust"]).all()
    assert data["richness_robust"].attrs["chance"] == "richness_random_head_robust"
    parts = data["inside_share"] * np.sqrt(data["participation_ratio"] / data["output_rank"])
    assert np.allclose(1 - parts, data["richness_robust"])


def test_settings_decide_and_stand_in_the_record(tmp_path: Path) -> None:
    torch.manual_seed(0)
    loose = RegimeThresholds(unmoved_similarity=2.0, minimal_utilisation=0.0, minimal_dimension=100.0)
    measures = forward(normalisation="variance", tolerance=0.9, thresholds=loose)
    data = recorded(tmp_path, dense(3), (X, torch.arange(200) % 3), measures)["forward"].to_dataset()
    assert data["regime"].values.tolist() == [1, 1]
    assert json.loads(data["regime"].attrs["thresholds"])["minimal_dimension"] == 100
    assert data["cumulative_quality"].attrs["normalisation"] == "variance"
    assert data["cumulative_utilisation"].attrs["normalisation"] == "variance"
    assert data["richness_robust"].attrs["tolerance"] == 0.9 and (data["output_rank"] == 1).all()


def test_dead_features_are_recorded_as_in_no_regime(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = dense(3)
    with torch.no_grad():
        model[0].bias.fill_(-100)
    data = recorded(tmp_path, model, (X, torch.arange(200) % 3), forward())["forward"].to_dataset()
    assert data["regime"].isnull().all() and data["nc1"].isnull().all()
