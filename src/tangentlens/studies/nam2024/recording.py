"""Three trainings as recorded runs: the report draws the panels, richness over time and the eigenfunctions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.measures.eigenfunctions import eigenfunctions
from tangentlens.measures.forward_moments import forward_moments
from tangentlens.record.instruments.forward import forward
from tangentlens.record.instruments.training import training as training_measures
from tangentlens.record.measure import Measure
from tangentlens.record.recorder import Recorder
from tangentlens.record.schedule import every
from tangentlens.record.snapshot import Snapshot
from tangentlens.studies.nam2024.digits import seeded
from tangentlens.studies.nam2024.material import CLASSES, Material
from tangentlens.studies.nam2024.models import convolutional, fully_connected
from tangentlens.studies.nam2024.regression import SHOWN
from tangentlens.studies.nam2024.training import Training, trained


def kept(folder: Path, records: Mapping[str, Any], material: Material) -> str:
    """The study's numbers as one zarr store and three runs for the report; how to see them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        record.to_zarr(folder / "nam2024.zarr", group=name, mode="a", consolidated=False)
    runs = [
        record_digits(folder / name, material, head_only) for name, head_only in (("full", False), ("frozen", True))
    ]
    runs.append(record_regression(folder / "sine", material))
    return "see them: tangentlens report " + " ".join(f"'{run}'" for run in runs)


def record_digits(run: Path, material: Material, head_only: bool) -> Path:
    """The convolutional network on digits, looked at with test digits."""
    sizes, train, test = material.sizes, material.digits.rows(0, material.sizes.train), material.digits_test
    model = seeded(0, material, lambda: convolutional(sizes.digits_channels, sizes.digits_units, CLASSES))
    how = replace(sizes.digits, head_only=head_only)
    _record(run, model, (train.inputs, train.targets), (test.inputs, test.labels), how, [])
    return run


def record_regression(run: Path, material: Material) -> Path:
    """sin(2 pi x), with the strongest eigenfunctions on the grid."""
    sizes = material.sizes
    x = torch.linspace(-1, 1, sizes.regression_points, device=material.device)[:, None]
    y = torch.sin(2 * math.pi * x)
    model = seeded(0, material, lambda: fully_connected(1, sizes.regression_widths, 1))
    pictures = Measure(
        "eigenfunctions/eigenfunction", ("mode", "point"), _pictures, coords={"point": x[:, 0].tolist()},
        attrs={"long_name": "eigenfunction", "units": "", "question": "Which functions are the strongest features?"},
    )  # fmt: skip
    _record(run, model, (x, y), (x, y), sizes.regression, [pictures])
    return run


def _pictures(snapshot: Snapshot) -> Float[Tensor, "mode example"]:
    """The strongest modes; a sign means nothing, so each is turned to agree with exp(x)."""
    values = snapshot.features().values
    modes = eigenfunctions(forward_moments(values))(values)[:, :SHOWN]
    turned = modes * torch.sign((modes * snapshot.inputs.exp()).sum(0))
    return torch.cat([turned, turned.new_zeros(len(turned), SHOWN - turned.shape[1])], 1).T


def _record(
    run: Path, model: nn.Module, train: tuple[Tensor, Tensor], probe: tuple[Tensor, Tensor], how: Training,
    measures: Sequence[Measure],
) -> None:  # fmt: skip
    recorder = Recorder(
        run, model, probe, [*training_measures(), *forward(), *measures], every(1), seed=how.seed, title=run.name,
        settings=asdict(how),
    )  # fmt: skip
    for step in trained(model, *train, how, _log_spaced(how.steps)):
        recorder.observe(step)
    recorder.close()


def _log_spaced(steps: int, count: int = 24) -> list[int]:
    return sorted({0, *(round(steps ** (place / count)) for place in range(count))})
