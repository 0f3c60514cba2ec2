"""The instruments a recorder uses when nobody chose: those that apply to the model and probe, and are cheap on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tangentlens.capture.outputs import Outputs, selected_outputs
from tangentlens.capture.probe import Probe
from tangentlens.kernels.features import features
from tangentlens.record.asked import check_finite
from tangentlens.record.instruments.ansatz import ansatz
from tangentlens.record.instruments.forward import forward
from tangentlens.record.instruments.tangent import EXAMPLES, tangent
from tangentlens.record.instruments.training import training
from tangentlens.record.measure import Measure
from tangentlens.record.quiet import observed

OPERATIONS = 5e10
"""Flops that one step's output gradients may take; a second or two of one core."""
UNITS = 2048
"""Widest features of which a decomposition a step is taken."""
LEAST_EXAMPLES = 16
CLASSES = 64


def applicable(model: nn.Module, probe: Probe, targets: Tensor | None, outputs: Outputs | None) -> list[Measure]:
    """Training always, forward features where there is a head, tangent kernel and ansatz where gradients are cheap."""
    count = _output_count(model, probe, outputs)
    measures = training(targets is not None)
    rows, units = _features_shape(model, probe, outputs)
    if units <= UNITS:
        measures += forward(targets is not None and _are_targets_of(targets, count, rows))
    trainable = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    examples = min(EXAMPLES, probe.length, int(OPERATIONS / max(1, 6 * trainable * count)))
    if trainable and examples >= min(LEAST_EXAMPLES, probe.length):
        measures += tangent(examples=examples, labels=_few_classes(targets)) + ansatz(examples=examples)
    return measures


def _output_count(model: nn.Module, probe: Probe, outputs: Outputs | None) -> int:
    with observed(model) as plain, torch.no_grad():
        few = probe.rows(0, 2)
        return selected_outputs(few.call(plain), outputs, few.length).shape[1]


def _features_shape(model: nn.Module, probe: Probe, outputs: Outputs | None) -> tuple[float, float]:
    """Rows an example (several where every place has outputs of its own) and width of the head's input.

    The width is infinite when the outputs do not come from a linear map, or are not finite.
    """
    try:
        with observed(model) as plain:
            few = probe.rows(0, 2)
            check_finite(selected_outputs(few.call(plain), outputs, few.length).detach())
            values = features(plain, few.inputs, outputs=outputs).values
            return len(values) / few.length, values.shape[1]
    except (ValueError, TypeError):
        return 1, float("inf")


def _are_targets_of(targets: Tensor, outputs: int, rows: float) -> bool:
    each = targets.numel() // max(1, len(targets))
    return each == outputs or (not targets.is_floating_point() and each == rows) or each == 1


def _few_classes(targets: Tensor | None) -> bool:
    whole_numbers = targets is not None and not targets.is_floating_point() and targets.numel() == len(targets)
    return whole_numbers and 2 <= len(torch.unique(targets)) <= CLASSES
