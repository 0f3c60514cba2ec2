"""The modular-addition MLP over its seeds: how the sum family grew, how fast, and in which layer it lives."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from tangentlens.report.figures.curves import Null
from tangentlens.report.figures.decay import decay
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import Lines, Trees, lines_panel, per_run, run_table

SUM = "a+b"


def present(tree: xr.DataTree) -> bool:
    return "second_block_rate" in _data(tree).data_vars


def section(trees: Trees) -> Section:
    panels = (_overlap(trees), _rate(trees), _layers(trees), _layer_spectra(trees))
    return Section(
        "modular_mlp",
        "Modular addition, MLP",
        "When do the modes of the tangent kernel become the features of the sum?",
        tuple(panel for panel in panels if panel),
    )


def _data(tree: xr.DataTree, group: str = "modular_mlp") -> xr.Dataset:
    node = tree.children.get(group)
    return xr.Dataset() if node is None else node.to_dataset()


def _of(tree: xr.DataTree, variable: str, group: str = "modular_mlp") -> xr.DataArray | None:
    """A variable for the family of the sum, if this record has it."""
    data = _data(tree, group)
    return data[variable].sel(family=SUM, drop=True) if variable in data.data_vars else None


def _seeds(values: xr.DataArray | None, words: str) -> Lines:
    """A line a seed, without the seeds that have no value."""
    if values is None:
        return {}
    lines = {f"{words}, seed {int(seed)}": values.sel(seed=seed, drop=True) for seed in values["seed"].values}
    return {name: line for name, line in lines.items() if np.isfinite(line.values).any()}


def _control(tree: xr.DataTree, variable: str) -> list[Null]:
    """The network that memorises: the median over its seeds, and their range."""
    values = _of(tree, variable, "modular_mlp_control")
    return [] if values is None else [Null("memorising", values.median("seed"), values.min("seed"), values.max("seed"))]


def _marks(tree: xr.DataTree) -> dict[str, int]:
    data = _data(tree)
    onsets = data["onset"].values
    found = onsets[np.isfinite(onsets)]
    return {f"test accuracy {data.attrs['onset_at']:.0%}": int(np.median(found))} if found.size else {}


def _overlap(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        fixed, found = _of(tree, "second_block_overlap"), _of(tree, "learned_block_overlap")
        lines = _seeds(fixed, "window") | _seeds(found, "block found")
        options = {"y": "share of the family a+b", "share": True, "range_y": (-0.02, 1.04), "marks": _marks(tree)}
        nulls = [_scaled(null) for null in _control(tree, "second_block_overlap")]
        return {name: line / 100 for name, line in lines.items()}, {**options, "nulls": nulls}

    return lines_panel(
        trees,
        draw,
        name="overlap",
        title="When do the modes become features of the sum?",
        reading="Two readings: the window of modes after the first block, as wide as the families a+b and a-b, told "
        "beforehand; and the block that the cliffs mark out at the end, followed back by its content.",
        misleads="Both need the finished run: one knows the width of the answer, the other its place.",
        null="Grey: the same network trained on 30 % of the pairs, which memorises them; median and range over its "
        "seeds.",
    )


def _scaled(null: Null) -> Null:
    assert isinstance(null.level, xr.DataArray) and null.low is not None and null.high is not None
    return Null(null.name, null.level / 100, null.low / 100, null.high / 100)


def _rate(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        lines = _seeds(_of(tree, "second_block_rate"), "window")
        return lines, {
            "y": "points per 10 epochs", "nulls": _control(tree, "second_block_rate"), "marks": _marks(tree)
        }  # fmt: skip

    return lines_panel(
        trees,
        draw,
        name="rate",
        title="When does the overlap rise fastest?",
        reading="The derivative of the figure above; compare its peak with the epoch at which half of the test pairs "
        "are right.",
        misleads="A maximum is known only when the run is over, and it is a broad one: the epoch it falls on depends "
        "on the grid of recorded epochs.",
        null="Grey: the memorising network; median and range over its seeds.",
    )


def _layers(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        if "layer_overlap" not in (data := _data(tree)).data_vars:
            return {}, {}
        values = data["layer_overlap"].median("seed").rename(layer_step="step") / 100
        lines = {
            f"{layer}: {family}": values.sel(layer=layer, family=family, drop=True)
            for layer in map(str, values["layer"].values)
            for family in map(str, values["family"].values)
        }
        return lines, {"y": "share of the family", "share": True, "range_y": (-0.02, 1.04), "marks": _marks(tree)}

    return lines_panel(
        trees,
        draw,
        name="layers",
        title="Which layer carries which family, and since when?",
        reading="Each layer's own kernel: what its modes after the first, as many as a and b span, hold of each "
        "family. Median over the seeds.",
        misleads="The first layer's share of a and b is a property of one-hot inputs: it is there before training.",
        null="A random block of as many modes holds 4 ⌊p/2⌋ / p² of any family, 7 % for p = 29.",
    )


def _layer_spectra(trees: Trees) -> Panel | None:
    def values(tree: xr.DataTree) -> xr.DataArray | None:
        data = _data(tree)
        return data["layer_eigenvalues"].isel(seed=0) if "layer_eigenvalues" in data.data_vars else None

    def figure(tree: xr.DataTree) -> Any:
        found = values(tree)
        if found is None:
            return None
        lines = {str(layer): found.sel(layer=layer).values for layer in found["layer"].values}
        return decay(lines, [int(step) for step in found["layer_step"].values], y="eigenvalue")

    figures = per_run(trees, figure)
    if not figures:
        return None
    rows = [
        (run, str(layer), *(float(found.sel(layer=layer).values[-1, mode]) for mode in (0, 1, 56, 57)))
        for run in figures
        if (found := values(trees[run])) is not None and found.sizes["mode"] > 57
        for layer in found["layer"].values
    ]
    return Panel(
        "layer-spectra",
        "How do the layers' spectra fall?",
        figures,
        "The layers' kernels add up to the whole. The first seed, at the epochs the layers were read.",
        "Eigenvalues of a sum are no sums of eigenvalues: a cliff of the whole need not be one of a layer.",
        "Move to epoch 0 for the network before training.",
        run_table(trees, ("run", "layer", "eigenvalue 1", "2", "57", "58"), rows, "At the last epoch, modulo 29."),
    )
