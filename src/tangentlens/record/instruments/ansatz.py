"""The neural feature ansatz along the run: does what a layer's weights look at agree with what the function feels?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from torch import Tensor

from tangentlens.kernels import LayerMoments
from tangentlens.measures.alignment_readings import ansatz_readings, rows_of
from tangentlens.measures.alignment_view import alignment_view
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

EXAMPLES, UNITS = 256, 64
"""Examples of the probe, and the largest input side whose matrices are kept whole."""
DRAWN = 256
"""Widest smaller side of a layer whose random bases are drawn: each draw is a QR of it."""
Readings = dict[str, dict[str, Tensor]]
Parts = Mapping[str, Callable[[int], Mapping[str, slice]]]


def ansatz(
    layers: Iterable[str] | None = None,
    *,
    parts: Parts | None = None,
    examples: int | None = EXAMPLES,
    draws: int = 8,
    units: int = UNITS,
    alignment: bool = False,
) -> list[Measure]:
    """Measures of the group `ansatz`: per layer the correlations with their nulls, and small layers' matrices.

    Without `layers` all hidden linear maps, read-outs left out: under one output they agree whatever was learned.
    `parts` reads packed weights part by part, each a layer of its own: globs of layers, and of each the function from
    its number of rows to named ranges, as in `{"*.in_proj_weight": partial(head_rows, heads=4)}` for attention heads.
    `draws` random bases make the band of the null; without any, and in layers wider than 256 units on both sides, the
    analytic null stays. Layers of at most `units` inputs keep their matrices, and with `alignment` the overlaps of
    their singular vectors with the tangent kernel's eigenvectors (one decomposition of the output side).
    """
    asked = _Asked(None if layers is None else tuple(layers), tuple((parts or {}).items()))

    def readings(snapshot: Snapshot) -> Readings:
        return snapshot.subset(examples).reading(_readings, asked, draws)

    def row(name: str, key: str, long_name: str, **attrs: object) -> Measure:
        return Measure(f"ansatz/{name}", ("layer",), lambda s: {k: v[key] for k, v in readings(s).items()},
                       needs=frozenset({"initial"}), attrs={"long_name": long_name, "units": "", **attrs})  # fmt: skip

    measures = []
    for name, what in (("uncentred", "W^T W"), ("centred", "the same of W - W0")):
        band = {"null": f"{name}_null", "null_low": f"{name}_null_low", "null_high": f"{name}_null_high"}
        measures += [
            row(name, name, f"correlation of {what} with the AGOP", bounds=[-1.0, 1.0], **band,
                question="Do the weights look at what the function is sensitive to?"),
            row(f"{name}_null", f"{name}_null", "the same in a random basis"),
            row(f"{name}_null_low", f"{name}_low", "5 % quantile in random bases"),
            row(f"{name}_null_high", f"{name}_high", "95 % quantile in random bases"),
            row(f"{name}_adjusted", f"{name}_adjusted", "0 at chance, 1 at full agreement"),
        ]  # fmt: skip
    measures += [
        row("ratio", "centred_share", "unnormalised centred over uncentred alignment"),
        row("weight_change", "relative_change", "change of the weights beside their size"),
        row("ptk_drift", "ptk_drift", "1 - cosine of the tangent covariance with the initial one", bounds=[0.0, 1.0]),
    ]
    matrices = {
        "nfm": ("unit", "other"),
        "agop": ("unit", "other"),
        **({"alignment": ("mode", "feature")} if alignment else {}),
    }
    names = {
        "nfm": "W^T W",
        "agop": "average gradient outer product",
        "alignment": "overlap of W with its tangent kernel",
    }
    for name, dims in matrices.items():
        measures.append(
            Measure(f"ansatz/layers/*/{name}", dims, lambda s, name=name: {  # type: ignore[misc]
                layer: found[name]
                for layer, found in s.subset(examples).reading(_matrices, asked, units, alignment).items()},
                attrs={"long_name": names[name], "units": ""})
        )  # fmt: skip
    return measures


@dataclass(frozen=True)
class _Asked:
    """Which layers are read, and which of them part by part."""

    layers: tuple[str, ...] | None
    parts: tuple[tuple[str, Callable[[int], Mapping[str, slice]]], ...]


def _chosen(snapshot: Snapshot, asked: _Asked) -> dict[str, LayerMoments]:
    moments = snapshot.layer_moments()
    if asked.layers is not None:
        missing = [layer for layer in asked.layers if layer not in moments]
        if missing:
            raise ValueError(f"no linear map named {', '.join(missing)}; the model has {', '.join(moments)}")
        chosen = {layer: moments[layer] for layer in asked.layers}
    else:
        head = snapshot.reading(_head)
        chosen = {name: found for name, found in moments.items() if name != head} or moments
    for glob, _ in asked.parts:
        if not any(fnmatchcase(layer, glob) for layer in chosen):
            raise ValueError(f"parts are given of {glob!r}, which matches no layer; the layers are {', '.join(chosen)}")
    return {name: part for layer, found in chosen.items() for name, part in _taken_apart(layer, found, asked).items()}


def _taken_apart(layer: str, moments: LayerMoments, asked: _Asked) -> dict[str, LayerMoments]:
    """A packed layer's parts by the first glob that matches it; any other layer whole."""
    for glob, ranges in asked.parts:
        if fnmatchcase(layer, glob):
            parts = {}
            for part, rows in ranges(len(moments.weight)).items():
                weight, kernel = rows_of(moments.weight, moments.ptk_covariance, rows)
                parts[f"{layer} {part}"] = replace(moments, weight=weight, ptk_covariance=kernel)
            return parts
    return {layer: moments}


def _head(snapshot: Snapshot) -> str | None:
    try:
        return snapshot.features().layer
    except (ValueError, TypeError):
        return None  # no head to be found: every map is hidden


def _readings(snapshot: Snapshot, asked: _Asked, draws: int) -> Readings:
    beginning = snapshot.beginning.layer_moments()
    before = {
        part: found for name, whole in beginning.items() for part, found in _taken_apart(name, whole, asked).items()
    }
    found: Readings = {}
    for layer, now in _chosen(snapshot, asked).items():
        start = before[layer]
        kernel, initial = now.ptk_covariance.double(), start.ptk_covariance.double()
        drawn = draws if min(now.weight.shape) <= DRAWN else 0
        readings = ansatz_readings(now.weight, start.weight, kernel, draws=drawn)
        readings["ptk_drift"] = 1 - (kernel * initial).sum() / (kernel.norm() * initial.norm())
        found[layer] = readings
    return found


def _matrices(snapshot: Snapshot, asked: _Asked, units: int, alignment: bool) -> Readings:
    found: Readings = {}
    for layer, now in _chosen(snapshot, asked).items():
        weight = now.weight
        if weight.shape[1] <= units:
            found[layer] = {"nfm": now.nfm.float(), "agop": now.agop.float() / now.rows}
            if alignment:
                found[layer]["alignment"] = alignment_view(weight, now.ptk_covariance).overlaps[:units, :units].float()
    return found
