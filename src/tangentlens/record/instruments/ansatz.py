"""The neural feature ansatz along the run: does what a layer's weights look at agree with what the function feels?"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from tangentlens.kernels import LayerMoments
from tangentlens.measures.alignment_readings import ansatz_readings
from tangentlens.measures.alignment_view import alignment_view
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

EXAMPLES, UNITS = 256, 64
"""Examples of the probe, and the largest input side whose matrices are kept whole."""
Readings = dict[str, dict[str, Tensor]]


def ansatz(
    layers: Iterable[str] | None = None,
    *,
    examples: int | None = EXAMPLES,
    draws: int = 8,
    units: int = UNITS,
    alignment: bool = False,
) -> list[Measure]:
    """Measures of the group `ansatz`: per layer the correlations with their nulls, and small layers' matrices.

    Without `layers` all hidden linear maps, read-outs left out: under one output they agree whatever was learned.
    `draws` random bases make the band of the null; without any the analytic null stays. Layers of at most `units`
    inputs keep their matrices, and with `alignment` the overlaps of their singular vectors with the tangent kernel's
    eigenvectors (one decomposition of the output side).
    """
    chosen = None if layers is None else tuple(layers)

    def readings(snapshot: Snapshot) -> Readings:
        return snapshot.subset(examples).reading(_readings, chosen, draws)

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
                for layer, found in s.subset(examples).reading(_matrices, chosen, units, alignment).items()},
                attrs={"long_name": names[name], "units": ""})
        )  # fmt: skip
    return measures


def _chosen(snapshot: Snapshot, layers: tuple[str, ...] | None) -> dict[str, LayerMoments]:
    moments = snapshot.layer_moments()
    if layers is not None:
        missing = [layer for layer in layers if layer not in moments]
        if missing:
            raise ValueError(f"no linear map named {', '.join(missing)}; the model has {', '.join(moments)}")
        return {layer: moments[layer] for layer in layers}
    head = snapshot.reading(_head)
    return {name: found for name, found in moments.items() if name != head} or moments


def _head(snapshot: Snapshot) -> str | None:
    try:
        return snapshot.features().layer
    except (ValueError, TypeError):
        return None  # no head to be found: every map is hidden


def _readings(snapshot: Snapshot, layers: tuple[str, ...] | None, draws: int) -> Readings:
    before = snapshot.beginning.layer_moments()
    found: Readings = {}
    for layer, now in _chosen(snapshot, layers).items():
        start = before[layer]
        kernel, initial = now.ptk_covariance.double(), start.ptk_covariance.double()
        readings = ansatz_readings(now.weight, start.weight, kernel, draws=draws)
        readings["ptk_drift"] = 1 - (kernel * initial).sum() / (kernel.norm() * initial.norm())
        found[layer] = readings
    return found


def _matrices(snapshot: Snapshot, layers: tuple[str, ...] | None, units: int, alignment: bool) -> Readings:
    found: Readings = {}
    for layer, now in _chosen(snapshot, layers).items():
        weight = now.weight
        if weight.shape[1] <= units:
            found[layer] = {"nfm": now.nfm.float(), "agop": now.agop.float() / now.rows}
            if alignment:
                found[layer]["alignment"] = alignment_view(weight, now.ptk_covariance).overlaps[:units, :units].float()
    return found
