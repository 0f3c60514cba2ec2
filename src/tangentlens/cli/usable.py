"""Whether what a target function returned can be measured at all: said before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

from tangentlens.capture.probe import probe
from tangentlens.cli.target import Target
from tangentlens.kernels import plan
from tangentlens.record import Measure
from tangentlens.record.asked import check_finite
from tangentlens.record.quiet import observed
from tangentlens.record.snapshot import Snapshot


def refuse_unusable(asked: Target, measures: Iterable[Measure]) -> None:
    """Outputs with inf or nan, and, where a tangent kernel will be read, a model that has none.

    In a training run a measure that fails costs that measure only; here nothing but the measures is wanted.
    """
    frozen = not any(parameter.requires_grad for parameter in asked.model.parameters())
    if frozen or any(measure.name.startswith("tangent/") for measure in measures):
        plan(asked.model, asked.inputs, outputs=asked.outputs)
    with observed(asked.model) as model:
        check_finite(Snapshot(0, model, probe(asked.inputs), outputs=asked.outputs).outputs)
