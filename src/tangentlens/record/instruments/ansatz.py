"""The neural feature ansatz along the run: does what a layer's weights look at agree with what the function feels?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from zlib import crc32

import torch
from torch import Tensor

from tangentlens.kernels import LayerMoments
from tangentlens.measures.alignment import Centering
from tangentlens.measures.alignment_readings import ansatz_readings, rows_of
from tangentlens.measures.alignment_view import alignment_view, kernel_drift
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

EXAMPLES, UNITS = 256, 64
"""Examples of the probe, and the largest input side whose matrices are kept whole."""
DRAWS = 39
"""Random bases a layer and step: the band's top is the second largest of them, above which chance lies 1 time in 20."""
Readings = dict[str, dict[str, Tensor]]
Parts = Mapping[str, Callable[[int], Mapping[str, slice]]]


def ansatz(
    layers: Iterable[str] | None = None,
    *,
    parts: Parts | None = None,
    examples: int | None = EXAMPLES,
    draws: int = DRAWS,
    units: int = UNITS,
    alignment: bool = False,
    initial_kernel: bool = False,
    centering: Centering = "none",
    agop_power: float = 1.0,
) -> list[Measure]:
    """Measures of the group `ansatz`: per layer the correlations with their nulls, and small layers' matrices.

    Without `layers` all hidden linear maps. Read-outs are left out, and embeddings tied to them: they agree whatever
    was learned, as every layer does whose outputs are felt alike in all directions.
    `parts` reads packed weights part by part, each a layer of its own: globs of layers, and of each the function from
    its number of rows to named ranges, as in `{"*.in_proj_weight": partial(head_rows, heads=4)}` for attention heads.
    `draws` random bases, others at every step and in every layer, make the null and its band; below 19 there is no
    band, and without any the analytic null stays: neither can be said to be exceeded. Layers of at most `units` inputs
    keep their matrices, and with `alignment` the overlaps of their singular vectors with the tangent kernel's
    eigenvectors, and how the kernel's leading eigenvectors drift (decompositions of the output side).
    `initial_kernel` adds W - W0 with the kernel at the start and with its change; `centering` and `agop_power` choose
    the correlation (`measures.alignment.ansatz_correlation`).
    """
    if draws < 0:
        raise ValueError(f"draws is a number of random bases, at least 0, got {draws}")
    if centering not in ("none", "entries"):
        raise ValueError(f"centering is 'none' (cosine) or 'entries' (Pearson over the entries), got {centering!r}")
    asked = _Asked(None if layers is None else tuple(layers), tuple((parts or {}).items()))
    how = _How(draws, centering, agop_power, alignment, initial_kernel)

    def readings(snapshot: Snapshot) -> Readings:
        return snapshot.subset(examples).reading(_readings, asked, how)

    def row(name: str, key: str, long_name: str, **attrs: object) -> Measure:
        return Measure(f"ansatz/{name}", ("layer",), lambda s: {k: v[key] for k, v in readings(s).items()},
                       needs=frozenset({"initial"}), attrs={"long_name": long_name, "units": "", **attrs})  # fmt: skip

    measures = []
    kinds = {"uncentred": "W^T W", "centred": "the same of W - W0"}
    if initial_kernel:
        kinds["centred_initial_kernel"] = "the same of W - W0, with the initial tangent kernel,"
        kinds["centred_kernel_change"] = "the same of W - W0, with the change of the tangent kernel,"
    for name, what in kinds.items():
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
        row("ptk_scale", "ptk_scale", "trace of the tangent covariance over the initial one"),
    ]
    if alignment:
        measures.append(
            row(
                "ptk_top_overlap",
                "ptk_top_overlap",
                "share of the kernel's five leading directions kept since the start",
                bounds=[0.0, 1.0],
                chance="ptk_top_overlap_chance",
            )
        )
        measures.append(row("ptk_top_overlap_chance", "ptk_top_overlap_chance", "the same of unrelated directions"))
    matrices: dict[str, tuple[str, ...]] = {
        "nfm": ("unit", "other"),
        "agop": ("unit", "other"),
        **({"alignment": ("mode", "feature"), "alignment_chance": ()} if alignment else {}),
    }
    names = {
        "nfm": "W^T W",
        "agop": "average gradient outer product",
        "alignment": "overlap of W with its tangent kernel",
        "alignment_chance": "overlap of unrelated directions: one over the layer's units",
    }
    levels = {"alignment": {"chance": "alignment_chance"}}
    for name, dims in matrices.items():
        measures.append(
            Measure(f"ansatz/layers/*/{name}", dims, lambda s, name=name: {  # type: ignore[misc]
                layer: found[name]
                for layer, found in s.subset(examples).reading(_matrices, asked, units, alignment).items()},
                attrs={"long_name": names[name], "units": "", **levels.get(name, {})})
        )  # fmt: skip
    return measures


@dataclass(frozen=True)
class _Asked:
    """Which layers are read, and which of them part by part."""

    layers: tuple[str, ...] | None
    parts: tuple[tuple[str, Callable[[int], Mapping[str, slice]]], ...]


@dataclass(frozen=True)
class _How:
    """How a layer is read."""

    draws: int
    centering: Centering
    agop_power: float
    alignment: bool
    initial_kernel: bool


def _chosen(snapshot: Snapshot, asked: _Asked) -> dict[str, LayerMoments]:
    moments = snapshot.layer_moments()
    if asked.layers is not None:
        missing = [layer for layer in asked.layers if layer not in moments]
        if missing:
            raise ValueError(f"no linear map named {', '.join(missing)}; the model has {', '.join(moments)}")
        chosen = {layer: moments[layer] for layer in asked.layers}
    else:
        silent = snapshot.beginning.reading(_readouts)
        chosen = {name: found for name, found in moments.items() if name not in silent} or moments
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


def _readouts(snapshot: Snapshot) -> frozenset[str]:
    """Layers whose correlation is 1 whatever was learned: the head, by its parameter, for an embedding may be tied to
    it; and those whose outputs are felt alike in all directions, K = c I, as under every linear read-out."""
    named = dict(snapshot.model.named_parameters(remove_duplicate=False))
    try:
        head = snapshot.features().layer
    except (ValueError, TypeError):
        head = None  # no head to be found
    tied = named.get(f"{head}.weight")
    silent = set()
    for name, found in snapshot.layer_moments().items():
        kernel = found.ptk_covariance.double()
        uneven = kernel - kernel.diagonal().mean() * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device)
        is_head = tied is not None and found.layout is not None and named.get(found.layout.parameter) is tied
        if name == head or is_head or (kernel.norm() > 0 and uneven.norm() < 1e-5 * kernel.norm()):
            silent.add(name)
    return frozenset(silent)


def _readings(snapshot: Snapshot, asked: _Asked, how: _How) -> Readings:
    beginning = snapshot.beginning.layer_moments()
    before = {
        part: found for name, whole in beginning.items() for part, found in _taken_apart(name, whole, asked).items()
    }
    found: Readings = {}
    for layer, now in _chosen(snapshot, asked).items():
        kernel, initial = now.ptk_covariance.double(), before[layer].ptk_covariance.double()
        readings = ansatz_readings(
            now.weight, before[layer].weight, kernel, initial if how.initial_kernel else None,
            centering=how.centering, agop_power=how.agop_power, draws=how.draws,
            # the same bases throughout would put the error of their mean on the whole curve
            seed=crc32(f"{layer} {snapshot.step}".encode()),
        )  # fmt: skip
        readings["ptk_drift"] = 1 - (kernel * initial).sum() / (kernel.norm() * initial.norm())
        readings["ptk_scale"] = kernel.trace() / initial.trace()
        if how.alignment:
            modes = min(5, len(kernel))
            readings["ptk_top_overlap"] = kernel_drift(kernel, initial, modes=modes)["top_overlap"]
            readings["ptk_top_overlap_chance"] = torch.tensor(modes / len(kernel))
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
                found[layer]["alignment_chance"] = torch.tensor(1 / len(weight))
    return found
