"""Ready-made measures, one file an instrument; each is a function that returns a list of Measure."""

from __future__ import annotations

from tangentlens.record.instruments.ansatz import ansatz
from tangentlens.record.instruments.applicable import applicable
from tangentlens.record.instruments.forward import forward
from tangentlens.record.instruments.tangent import tangent
from tangentlens.record.instruments.token_theory import kernel_prediction, negation, token_kernel
from tangentlens.record.instruments.tokens import tokens
from tangentlens.record.instruments.training import training

__all__ = [
    "ansatz",
    "applicable",
    "forward",
    "kernel_prediction",
    "negation",
    "tangent",
    "token_kernel",
    "tokens",
    "training",
]
