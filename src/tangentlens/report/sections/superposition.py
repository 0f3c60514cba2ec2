"""Toy models of superposition: where their spectra fall, and which feature each mode is, as it is and normalised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.decay import decay
from tangentlens.report.figures.maps import step_map
from tangentlens.report.section import Panel, Section
from tangentlens.report.sections.facets import Trees, named, on_one_scale, run_table

MAPS = {"mode_feature": "as they are", "mode_feature_normalised": "each mode's column scaled to one"}


def present(tree: xr.DataTree) -> bool:
    return "mode_feature_normalised" in _data(tree).data_vars


def section(trees: Trees) -> Section:
    return Section(
        "superposition",
        "Toy models of superposition",
        "Does the spectrum of the tangent kernel count the features, and are its modes the features?",
        (_spectra(trees), _maps(trees)),
    )


def _data(tree: xr.DataTree) -> xr.Dataset:
    node = tree.children.get("superposition")
    return xr.Dataset() if node is None else node.to_dataset()


def _settings(tree: xr.DataTree) -> Iterator[tuple[str, xr.Dataset]]:
    """One network of each setting, its first seed."""
    data, seen = _data(tree), set()
    for row, name in enumerate(map(str, data["run"].values)):
        setting = name.rpartition(", seed")[0] or name
        if setting not in seen:
            seen.add(setting)
            yield name, data.isel(run=row)


def _spectra(trees: Trees) -> Panel:
    figures: dict[str, go.Figure] = {}
    for run, tree in trees.items():
        for name, one in _settings(tree):
            figures[named(trees, run, name)] = decay(
                {"eigenvalues": one["eigenvalues"].values[None]},
                [0],
                y="eigenvalue",
                references={"before training": one["initial_eigenvalues"].values},
                gaps={0: _positions(one)},
                log_x=False,
                height=300,
            )
    rows = [
        (run, str(name), ", ".join(map(str, _positions(one))) or "none", float(one["reconstructed"]))
        for run, tree in trees.items()
        for name, one in zip(_data(tree)["run"].values, _each(tree), strict=True)
    ]
    return Panel(
        "spectra",
        "Where does the spectrum break?",
        on_one_scale(figures),
        "A fall after as many modes as there are features (50) says that the kernel has one strong direction a "
        "feature; an earlier one splits the features into those the network reconstructs and the others.",
        "Of sparse inputs (S = 0.9) the modes before the earlier fall are the features that are not reconstructed.",
        "Grey dashed: the same network before training. Dotted vertical lines: cliffs beside a smooth spectrum.",
        run_table(trees, ("run", "network", "cliffs after modes", "features reconstructed"), rows),
    )


def _each(tree: xr.DataTree) -> list[xr.Dataset]:
    data = _data(tree)
    return [data.isel(run=row) for row in range(data.sizes["run"])]


def _positions(one: xr.Dataset) -> tuple[int, ...]:
    values = one["cliff"].values
    return tuple(int(position) for position in values[np.isfinite(values)])


def _maps(trees: Trees) -> Panel:
    figures: dict[str, go.Figure] = {}
    rows = []
    for run, tree in trees.items():
        for name, one in _settings(tree):
            for beta in one["beta"].values[one["beta"].values > 0]:
                of = one.sel(beta=beta)
                for variable, words in MAPS.items():
                    values = of[variable].values
                    figures[named(trees, run, f"{name}, beta {beta:g}: {words}")] = step_map(
                        values[None],
                        [0],
                        list(range(1, values.shape[0] + 1)),
                        list(range(1, values.shape[1] + 1)),
                        x="mode",
                        y="feature",
                        colour="|cosine|" if variable == "mode_feature" else "normalised",
                        high=1.0,
                        height=320,
                    )
                best, normal = (float((of[variable].max("feature") > 0.9).sum()) for variable in MAPS)
                rows.append((run, name, f"{beta:g}", float(of["mode_feature"].max("feature").mean()), best, normal))
    columns = ("run", "network", "beta", "mean of each mode's largest |cosine|", "modes above 0.9", "normalised")
    return Panel(
        "maps",
        "Is each mode a feature?",
        figures,
        "A row is one feature, a column one mode of the kernel whose outputs were scaled by importance^(beta/2). A "
        "bright diagonal: modes come in the order of the features.",
        "The normalised map says which feature a mode prefers among those listed, and looks sharp however weak the "
        "cosines are: read it beside the map as it is.",
        "A cosine of 1 is identity; a random mode has about 1/√rows with each feature.",
        run_table(trees, columns, rows),
    )
