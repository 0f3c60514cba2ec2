"""Where a kernel first stopped being a number."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch

from tangentlens.capture.factors import formed
from tangentlens.capture.measuring import Measurement
from tangentlens.capture.probe import Probe


def first_nonfinite(measurement: Measurement, probes: Iterable[Probe]) -> str:
    """The example, output and parameter, in words; looked for example by example."""
    names = list(measurement.wanted)
    for whose, probe in zip(("", " of others="), probes):
        for n in range(probe.length):
            # what is not finite disagrees with every rule: its parameters are read on a lower rung
            pieces = measurement.retried(partial(measurement.pieces, probe.rows(n, n + 1), names))
            for piece in pieces.values():
                gradient = formed(piece.factors, piece.shape).gradient.flatten(2)
                bad = ~torch.isfinite(gradient[0]).all(-1)
                if bad.any():
                    return (
                        f"a kernel must be finite, got inf or nan first at example {n}{whose}, output "
                        f"{int(bad.nonzero()[0])}, parameter {piece.name}; check that input and the outputs there "
                        "(overflow, division by zero, log of zero), or measure with dtype=torch.float64"
                    )
    return "a kernel must be finite, got inf or nan in a product of finite gradients; use dtype=torch.float64"
