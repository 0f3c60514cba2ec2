"""The modular-addition Transformer: how the sum grew in its read-out, and what each parameter tensor carries."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.decay import decay
from tangentlens.report.figures.maps import step_map
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import Lines, Trees, lines_panel, named, per_run, run_table


def present(tree: xr.DataTree) -> bool:
    return "sum_overlap_rate" in _data(tree).data_vars


def section(trees: Trees) -> Section:
    panels = (_overlap(trees), _rate(trees), _spectra(trees), _tensors(trees))
    return Section(
        "modular_transformer",
        "Modular addition, Transformer",
        "Which tensor's kernel carries the features of the sum, and since when?",
        tuple(panel for panel in panels if panel),
    )


def _data(tree: xr.DataTree) -> xr.Dataset:
    node = tree.children.get("modular_transformer")
    return xr.Dataset() if node is None else node.to_dataset()


def _line(tree: xr.DataTree, variable: str) -> xr.DataArray:
    values = _data(tree)[variable]
    return values.rename(kernel_step="step") if "kernel_step" in values.dims else values


def _overlap(trees: Trees) -> Panel | None:
    def draw(tree: xr.DataTree) -> tuple[Lines, dict[str, Any]]:
        lines = {
            "a+b in the read-out's top five modes": _line(tree, "sum_overlap") / 100,
            "training accuracy": _line(tree, "train_accuracy"),
            "test accuracy": _line(tree, "test_accuracy"),
        }
        return lines, {"y": "share", "share": True, "range_y": (-0.02, 1.04)}

    return lines_panel(
        trees,
        draw,
        name="overlap",
        title="When does the read-out carry the sum?",
        reading="The share of the family a+b, at the frequencies the finished embedding uses, in the five strongest "
        "modes of the read-out's kernel, beside the accuracies.",
        misleads="The frequencies come from the finished run, and an overlap that rises with the training accuracy is "
        "no sign yet that the network generalises.",
        null="Five random modes of 841 rows hold 0.6 %.",
    )


def _rate(trees: Trees) -> Panel | None:
    return lines_panel(
        trees,
        lambda tree: ({"a+b, rate": _line(tree, "sum_overlap_rate")}, {"y": "points per 20 epochs"}),
        name="rate",
        title="When does it rise fastest?",
        reading="The derivative of the overlap above.",
        misleads="A maximum is known only when the run is over; late in training the kernel was read more rarely, and "
        "the rate there is a mean over longer stretches.",
        null="Zero: the overlap does not change.",
    )


def _spectra(trees: Trees) -> Panel:
    def figure(tree: xr.DataTree) -> go.Figure:
        values = _data(tree)["eigenvalues"]
        lines = {str(layer): values.sel(layer=layer).values[None] for layer in values["layer"].values}
        return decay(lines, [0], y="eigenvalue", log_x=False)

    rows = [
        (run, str(layer), *(float(one.isel(mode=i) / one.isel(mode=i + 1)) for i in (4, 8)))
        for run, tree in trees.items()
        for layer, one in zip(_data(tree)["layer"].values, _data(tree)["eigenvalues"])
    ]
    return Panel(
        "spectra",
        "Where do the tensors' spectra fall?",
        per_run(trees, figure),
        "One line a parameter tensor, at the end of training, and one for all together.",
        "These falls are shown by size and not tested against a smooth spectrum.",
        "No reference is drawn; the falls of the table are ratios of neighbouring eigenvalues.",
        run_table(trees, ("run", "tensor", "fall after 5", "fall after 9"), rows),
    )


def _tensors(trees: Trees) -> Panel:
    figures: dict[str, go.Figure] = {}
    for run, tree in trees.items():
        values = _data(tree)["overlap"].transpose("window", "layer", "family") / 100
        for window in values["window"].values:
            figures[named(trees, run, str(window))] = step_map(
                values.sel(window=window).values[None],
                [0],
                [str(layer) for layer in values["layer"].values],
                [str(family) for family in values["family"].values],
                x="",
                y="",
                colour="share of the family",
                high=1.0,
                share=True,
                height=380,
            )
    rows = []
    for run, tree in trees.items():
        values = _data(tree)["overlap"]
        for layer in values["layer"].values:
            for window in values["window"].values:
                one = values.sel(layer=layer, window=window)
                best = one.isel(family=int(one.argmax("family")))
                rows.append((run, str(layer), str(window), str(best["family"].values), float(best)))
    return Panel(
        "tensors",
        "Which tensor carries which family?",
        figures,
        "A map a window of modes: a row is a parameter tensor's own kernel, a column a family at the key frequencies.",
        "The windows are the paper's, told beforehand, and families at few frequencies overlap each other.",
        "A random window of five modes holds 0.6 % of any family.",
        run_table(trees, ("run", "tensor", "window", "strongest family", "per cent"), rows, "At the end of training."),
    )
