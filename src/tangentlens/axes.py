"""The one vocabulary of axis words, for shapes in annotations, dimensions of a record and axes of a figure alike."""

from __future__ import annotations

from types import MappingProxyType

AXES = MappingProxyType(
    {
        "example": "rows: what the model was given, one entry per input",
        "other": "columns: examples of a second set, when it is not the first",
        "output": "components of the model's output after outputs= chose them",
        "other_output": "outputs along the columns, where both output axes of a kernel are kept",
        "parameter": "scalar parameters, flattened in the order of named_parameters()",
        "unit": "components of a hidden layer",
        "layer": "named modules, in the order of named_modules()",
        "mode": "eigen-directions, largest eigenvalue first",
        "feature": "members of a named family of known features",
        "family": "named families of known features",
        "block": "runs of neighbouring modes between two cliffs of a spectrum",
        "group": "sets of examples or tokens that are compared",
        "class": "classes the examples belong to, where they are not the labels of tokens",
        "measure": "the measures of a recorded run",
        "point": "places on a grid at which a curve is evaluated",
        "step": "training steps, the first dimension of everything recorded",
        "token": "entries of a vocabulary",
        "label": "classes of the task",
        "position": "places inside one example: sequence, pixels or patches, and repeated uses of one parameter",
        "seed": "repetitions of a run that differ in their random seed only",
    }
)
"""Each axis word with what runs along it."""
