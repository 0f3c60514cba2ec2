"""The tangent kernel along the run: its spectrum, where it falls, and which known features its blocks of modes span."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from tangentlens.measures.cliffs import Cliffs, blocks, cliffs
from tangentlens.measures.drift import Drift, drift
from tangentlens.measures.effective_dimension import effective_dimension
from tangentlens.measures.families import indicators
from tangentlens.measures.overlaps import orthonormal_span
from tangentlens.record.measure import Measure
from tangentlens.record.snapshot import Snapshot

BLOCKS = 8
"""Cliffs kept at a step, and the blocks of modes above them; of a spectrum with more cliffs the largest."""
EXAMPLES, MODES = 256, 128
PERMUTATIONS = 19
"""Shuffles of the examples behind `overlap_null`: the largest of 19 is exceeded by chance once in 20 times."""
Families = Mapping[str, Float[Tensor, "example feature"]]
Singles = Mapping[str, Float[Tensor, "example column"]]


class Tangent:
    """The settings of the instrument, and readings of a snapshot under them: `examples` of the probe, `modes` kept.

    `families` are matrices of known features on the whole probe, and so are the single `features` that modes are
    mapped to. One kernel a step serves every measure; it costs one capture and N^3 for its modes.
    """

    def __init__(
        self, families: Families | None, examples: int | None, modes: int, features: Singles | None = None
    ) -> None:
        self.families, self.features = dict(families or {}), dict(features or {})
        self.examples, self.modes = examples, modes
        self._spans: dict[tuple[str, str], Tensor] = {}
        self._rungs = ""

    def parts(self, snapshot: Snapshot) -> dict[str, Tensor]:
        return snapshot.subset(self.examples).entk_by_layer()

    def kernel(self, snapshot: Snapshot) -> Float64[Tensor, "example example"]:
        return snapshot.reading(self._kernel)

    def _kernel(self, snapshot: Snapshot) -> Tensor:
        self._note_rungs(snapshot.subset(self.examples))
        kernel = torch.stack([part.double() for part in self.parts(snapshot).values()]).sum(0)
        return (kernel + kernel.T) / 2

    def _note_rungs(self, snapshot: Snapshot) -> None:
        """How the engine serves each parameter, said once for the run."""
        if not self._rungs:
            from tangentlens.kernels import plan

            rows = plan(snapshot.model, snapshot.inputs, outputs=snapshot.select).rows
            self._rungs = json.dumps({row.name: row.rung for row in rows})
        snapshot.notes.setdefault("", {})["rungs"] = self._rungs

    def spectrum(self, snapshot: Snapshot) -> tuple[Float64[Tensor, "mode"], Float64[Tensor, "example mode"]]:
        return snapshot.reading(self._spectrum)

    def _spectrum(self, snapshot: Snapshot) -> tuple[Tensor, Tensor]:
        from tangentlens.kernels import spectrum

        found = spectrum(self.kernel(snapshot))
        return found.eigenvalues, found.eigenvectors

    def drift(self, snapshot: Snapshot) -> Drift:
        return snapshot.reading(self._drift)

    def _drift(self, snapshot: Snapshot) -> Drift:
        return drift(self.kernel(snapshot), self.kernel(snapshot.beginning))

    def cliffs(self, snapshot: Snapshot) -> Cliffs:
        return snapshot.reading(self._cliffs)

    def _cliffs(self, snapshot: Snapshot) -> Cliffs:
        return cliffs(self._beside_the_first(snapshot), floor=self._floor(snapshot)).only_largest(BLOCKS)

    def learned(self, snapshot: Snapshot) -> Float64[Tensor, "cliff"]:
        """For each cliff kept, 1 where the initial network has none, 0 where it has."""
        now, initial = (self._beside_the_first(each) for each in (snapshot, snapshot.beginning))
        found = cliffs(now, initial, floor=self._floor(snapshot)).only_largest(BLOCKS)
        assert found.learned is not None  # an initial spectrum was given
        return found.learned.double()

    def _beside_the_first(self, snapshot: Snapshot) -> Float64[Tensor, "mode"]:
        # read to a little beyond the modes kept: a cliff is judged by the slopes on both of its sides
        values = self.spectrum(snapshot)[0][: 2 * self.modes]
        return values / values[0] if bool(values[0] > 0) else values

    def _floor(self, snapshot: Snapshot) -> float:
        """What rounding leaves of a float32 kernel's smallest modes, beside the first one."""
        return len(self.kernel(snapshot)) * torch.finfo(torch.float32).eps

    def blocks(self, snapshot: Snapshot) -> list[tuple[int, int]]:
        """Stretches of modes between cliffs, without the unbounded last one."""
        return blocks(self.cliffs(snapshot).positions, 2 * self.modes + 1)[:-1]

    def share(self, snapshot: Snapshot) -> Float64[Tensor, "mode family"]:
        return snapshot.reading(self._share)

    def _share(self, snapshot: Snapshot) -> Tensor:
        vectors = self.spectrum(snapshot)[1]
        spans = self._spanned("families", self._known(snapshot), snapshot)
        return torch.stack([(span.T @ vectors).square().sum(0) / span.shape[1] for span in spans], dim=1)

    def permuted(self, snapshot: Snapshot) -> Float64[Tensor, "block family"]:
        """The largest share of each family that a block holds in `PERMUTATIONS` shuffles of its examples."""
        vectors, places = self.spectrum(snapshot)[1], self.blocks(snapshot)
        spans = self._spanned("families", self._known(snapshot), snapshot)
        highest = torch.zeros(len(places), len(spans), dtype=torch.float64)
        last = places[-1][1] if places else 0
        generator = torch.Generator().manual_seed(0)
        for _ in range(PERMUTATIONS if places else 0):
            order = torch.randperm(len(vectors), generator=generator).to(vectors.device)
            for i, span in enumerate(spans):
                share = (span[order].T @ vectors[:, :last]).square().sum(0) / span.shape[1]
                held = torch.stack([share[first:end].sum() for first, end in places])
                highest[:, i] = torch.maximum(highest[:, i], held.to(highest))
        return highest

    def map(self, snapshot: Snapshot) -> Float64[Tensor, "mode feature"]:
        """How far each mode projects on each single feature: 1 where it lies in it."""
        vectors = self.spectrum(snapshot)[1][:, : self.modes]
        spans = self._spanned("features", self.features, snapshot)
        return torch.stack([(span.T @ vectors).norm(dim=0) for span in spans], dim=1)

    def _spanned(self, kind: str, known: Families, snapshot: Snapshot) -> list[Float64[Tensor, "row direction"]]:
        """What each matrix spans on the examples read, centred; features do not move: found once for the run."""
        for name, matrix in known.items():
            if (kind, name) not in self._spans:
                self._spans[kind, name] = self._span(name, matrix, snapshot)
        return [self._spans[kind, name] for name in known]

    def _span(
        self, name: str, matrix: Float[Tensor, "example feature"], snapshot: Snapshot
    ) -> Float64[Tensor, "row direction"]:
        if matrix.ndim != 2 or len(matrix) != snapshot.probe.length:
            raise ValueError(
                f"features are a matrix with a row for each of the {snapshot.probe.length} examples of the probe, "
                f"got shape {tuple(matrix.shape)} for {name!r}; one vector v goes in as v[:, None]"
            )
        chosen = snapshot.subset(self.examples).chosen
        rows = (matrix if chosen is None else matrix[chosen.to(matrix.device)]).to(self.spectrum(snapshot)[1])
        span = orthonormal_span(rows - rows.mean(0))
        if span.shape[1] == 0:
            raise ValueError(f"{name!r} is constant over the {len(rows)} examples read; pass features that vary")
        return span

    def _known(self, snapshot: Snapshot) -> Families:
        if self.families or snapshot.targets is None:
            return self.families
        return {"labels": indicators(snapshot.targets.reshape(-1).cpu())}


def tangent(
    families: Families | None = None,
    *,
    examples: int | None = EXAMPLES,
    modes: int = MODES,
    labels: bool = False,
    features: Singles | None = None,
) -> list[Measure]:
    """Measures of the group `tangent`; with `families` (or `labels`: the classes of integer targets) also overlaps.

    With `features`, a matrix each (one column, or a wave's cosine and sine), also the map of modes by features.
    """
    of = Tangent(families, examples, modes, features)

    def variable(
        name: str, dims: tuple[str, ...], value: Callable[[Snapshot], Any], long_name: str, **attrs: Any
    ) -> Measure:
        coords = {"family": list(families) if families else ["labels"]} if "family" in dims else {}
        coords |= {"feature": list(features or {})} if "feature" in dims else {}
        needs = frozenset({"initial"}) if name.startswith(("kernel", "cliff_learned")) else frozenset()
        return Measure(f"tangent/{name}", dims, value, coords, {"long_name": long_name, "units": "", **attrs}, needs)

    unit, log = {"bounds": [0.0, 1.0]}, {"scale": "log"}
    measures = [
        variable("eigenvalues", ("mode",), lambda s: of.spectrum(s)[0][:modes], "eigenvalue of the kernel", **log,
                 question="How strongly does the network move along each of its tangent features?"),
        variable("trace", (), lambda s: of.kernel(s).trace(), "trace of the tangent kernel"),
        variable("layer_share", ("layer",), lambda s: _shares_of_trace(of.parts(s)), "share of the trace", **unit),
        variable("effective_dimension", (), lambda s: effective_dimension(of.spectrum(s)[0]), "effective dimension"),
        variable("kernel_growth", (), lambda s: of.drift(s).growth, "size of the kernel beside the initial one", **log),
        variable("kernel_drift", (), lambda s: 1 - of.drift(s).alignment, "1 - cosine with the initial kernel", **unit,
                 question="Has the kernel turned, that is, has the network learned features?"),
        variable("block_first", ("block",), lambda s: _numbers(first for first, _ in of.blocks(s)), "first mode"),
        variable("block_last", ("block",), lambda s: _numbers(last for _, last in of.blocks(s)), "past the last mode"),
        variable("cliff_ratio", ("block",), lambda s: _padded(of.cliffs(s).sizes.exp()), "fall at the end of the block",
                 **log, null="cliff_null"),
        variable("cliff_null", ("block",), lambda s: _padded(of.cliffs(s).null_sizes.exp()), "smooth spectrum"),
        variable("cliff_learned", ("block",), lambda s: _padded(of.learned(s)), "1: not in the initial network"),
    ]  # fmt: skip
    if families or labels:
        measures += [
            variable("share", ("mode", "family"), lambda s: of.share(s)[:modes], "share along the mode", **unit,
                     chance="share_chance"),
            variable("share_chance", (), lambda s: 1 / len(of.kernel(s)), "chance", **unit),
            variable("captured", ("mode", "family"), lambda s: of.share(s)[:modes].cumsum(0), "share so far", **unit),
            variable("overlap", ("block", "family"), lambda s: _overlaps(of, s), "share of the family in the block",
                     **unit, chance="overlap_chance", null_high="overlap_null",
                     question="Which known features does each block of modes carry?"),
            variable("overlap_chance", ("block",), lambda s: _chances(of, s), "share in a random block", **unit),
            variable("overlap_null", ("block", "family"), lambda s: _padded(of.permuted(s)),
                     f"largest share of {PERMUTATIONS} shuffles of the examples", **unit),
        ]  # fmt: skip
    if features:
        measures.append(
            variable("mode_feature", ("mode", "feature"), of.map, "projection of the mode on the feature", **unit)
        )
    return measures


def _shares_of_trace(parts: dict[str, Tensor]) -> dict[str, float]:
    traces = {layer: part.double().trace().item() for layer, part in parts.items()}
    return {layer: trace / sum(traces.values()) for layer, trace in traces.items()}


def _numbers(values: object) -> Float64[Tensor, "block"]:
    return _padded(torch.tensor(list(values), dtype=torch.float64))  # type: ignore[call-overload]


def _padded(rows: Float64[Tensor, "found *family"]) -> Float64[Tensor, "block *family"]:
    """As many rows at every step: cliffs come and go."""
    found = rows[:BLOCKS]
    return torch.cat([found, torch.full((BLOCKS - len(found), *rows.shape[1:]), torch.nan, dtype=rows.dtype)])


def _overlaps(of: Tangent, snapshot: Snapshot) -> Float64[Tensor, "block family"]:
    """Modes are orthonormal, so a block's overlap is the sum over its modes."""
    share = of.share(snapshot)
    found = [share[first:last].sum(0) for first, last in of.blocks(snapshot)]
    return _padded(torch.stack(found) if found else share[:0])


def _chances(of: Tangent, snapshot: Snapshot) -> Float64[Tensor, "block"]:
    rows = len(of.kernel(snapshot))
    return _numbers((last - first) / rows for first, last in of.blocks(snapshot))
