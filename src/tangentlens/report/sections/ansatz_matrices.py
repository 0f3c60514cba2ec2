"""The matrices of the ansatz by layer: WᵀW beside the AGOP on one scale, and the alignment of their directions."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from tangentlens.report.figures.maps import step_map
from tangentlens.report.figures.style import DIVERGING
from tangentlens.report.labelled import last, reference, steps_of, variable
from tangentlens.report.section import Panel
from tangentlens.report.sections.facets import Trees, named, run_table

MATRICES = 6  # layers whose matrices are drawn


def layer_paths(tree: xr.DataTree) -> dict[str, str]:
    """Layers that have matrices of their own: {layer: path of its group}. A layer's name may itself be a path."""
    if "ansatz" not in tree.children or "layers" not in tree["ansatz"].children:
        return {}
    root = tree["ansatz/layers"]
    return {
        node.path.removeprefix(root.path).strip("/"): node.path.strip("/") for node in root.subtree if node.data_vars
    }


def matrices_panel(trees: Trees) -> Panel | None:
    figures: dict[str, go.Figure] = {}
    rows: list[tuple[object, ...]] = []
    left_out = 0
    for run, tree in trees.items():
        paths = {layer: path for layer, path in layer_paths(tree).items() if _pair(tree, path) is not None}
        left_out = max(left_out, len(paths) - MATRICES)
        for layer, path in list(paths.items())[:MATRICES]:
            pair = _pair(tree, path)
            assert pair is not None  # only such layers are here
            scaled = [_by_norm(values) for values in pair]
            largest = max(float(np.nanquantile(np.abs(part), 0.995)) for part in scaled) or 1.0
            for word, values, part in zip(("WᵀW", "AGOP"), pair, scaled, strict=True):
                where = f"{layer}: {word}"
                figures[named(trees, run, where)] = _matrix(values, part, largest)
                rows.append((run, layer, word, float(np.linalg.norm(values.values[-1])), values.sizes["unit"]))
    if not figures:
        return None
    return Panel(
        "matrices",
        "What do weights look at, what is the function sensitive to?",
        figures,
        "Each pair shows one layer's input side. Both matrices are divided by their Frobenius norm, so that they "
        "share one scale: alike pictures are a high uncentred correlation.",
        "Alike pictures are not enough: a strong diagonal alone looks alike. The correlation's null above tells.",
        "Zero is white; blue is negative, vermilion positive. Move to the first step for the untrained layer.",
        run_table(trees, ("run", "layer", "matrix", "Frobenius norm", "units"), rows, "At the last step."),
        notes=(f"Matrices of {left_out} more layers are in the record.",) if left_out > 0 else (),
    )


def _pair(tree: xr.DataTree, path: str) -> tuple[xr.DataArray, xr.DataArray] | None:
    nfm, agop = variable(tree, f"{path}/nfm"), variable(tree, f"{path}/agop")
    if nfm is None or agop is None or nfm.ndim != 3 or agop.ndim != 3:
        return None
    return nfm, agop


def _by_norm(values: xr.DataArray) -> np.ndarray:
    norms = np.linalg.norm(values.values, axis=(1, 2), keepdims=True)
    return values.values / np.where(norms > 0, norms, 1)


def _matrix(values: xr.DataArray, scaled: np.ndarray, largest: float) -> go.Figure:
    units = list(range(values.shape[2]))
    figure = step_map(
        scaled,
        steps_of(values),
        range(values.shape[1]),
        units,
        x="input unit",
        y="input unit",
        colour="entry / norm",
        low=-largest,
        high=largest,
        height=340,
    )
    figure.update_traces(colorscale=DIVERGING)
    figure.update_yaxes(title_text="")
    return figure


def alignment_panel(trees: Trees) -> Panel | None:
    figures: dict[str, go.Figure] = {}
    rows: list[tuple[object, ...]] = []
    for run, tree in trees.items():
        for layer, path in list(layer_paths(tree).items())[:MATRICES]:
            values = variable(tree, f"{path}/alignment")
            if values is None or values.ndim != 3:
                continue
            figures[named(trees, run, layer)] = step_map(
                values.values,
                steps_of(values),
                range(1, values.shape[1] + 1),
                list(range(1, values.shape[2] + 1)),
                x="direction of the sensitivity",
                y="direction of the weights",
                colour="overlap",
                height=320,
            )
            # the picture may be cut short, so its size is not the number of units
            chance = last(reference(tree, f"{path}/alignment", "chance"))
            rows.append((run, layer, float(values.values[-1, 0, 0]), chance))
    if not figures:
        return None
    return Panel(
        "alignment",
        "Do the strongest directions line up?",
        figures,
        "Rows: left singular vectors of the weights, strongest first; columns: eigenvectors of the tangent "
        "covariance. A bright upper left corner means the layer writes where the function listens.",
        "Directions of equal strength are interchangeable, which smears the picture without any misalignment.",
        "A random direction overlaps each of the layer's k unit directions by about 1 / k; the table gives it.",
        run_table(trees, ("run", "layer", "strongest with strongest", "chance"), rows, "At the last step."),
    )
