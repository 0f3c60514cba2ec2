"""What lin2025 says about the modular-addition MLP, and what we add about its control.

The printed tables of the paper could not be read by us; numbers are from the author's code and its executed notebooks,
or from an independent reproduction, and say so. Tolerances of the paper's claims were fixed before the runs; those of
our own (D) and of M8.80, M9.70, M9.100, M10.490 and M12.all after a first look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tangentlens.studies.claims import Band, Claim, Source, around, positions_are, within_share

CODE: Source = "author's code"
RERUN: Source = "independent run"
FIG1, FIG2, TABLE1 = "Fig. 1 (v4), epoch 500", "Fig. 2 (v4)", "Table 1 (v4), epoch 500"
SPECTRA, LAYERS = "spectra over epochs (v1)", "layerwise spectra (v1, v4)"
BEFORE = "before training, no figure seen"
CONTROL, OURS = "control: trained on 30 % of the pairs", "ours, not in the paper"


def begins_with(*expected: str) -> Callable[[Any], bool]:
    """Accept a ranking whose first entries are the expected ones, in any order."""

    def accept(found: Any) -> bool:
        return set(list(found)[: len(expected)]) == set(expected)

    accept.__doc__ = f"{' and '.join(expected)} first"
    return accept


def nothing_after(last: int) -> Callable[[Any], bool]:
    """Accept positions of which none lies beyond the last one."""

    def accept(found: Any) -> bool:
        return max(found, default=0) <= last

    accept.__doc__ = f"nothing after {last}"
    return accept


def only_beyond_the_constant(*expected: int) -> Callable[[Any], bool]:
    """Accept exactly the expected positions, whether or not the constant mode (after 1) stands apart too."""

    def accept(found: Any) -> bool:
        return [position for position in found if position > 1] == list(expected)

    accept.__doc__ = f"{list(expected)} beyond the constant mode"
    return accept


def never(step: Any) -> bool:
    """never."""
    return bool(step == "never")


def _eigenvalue(index: int, value: float) -> Claim:
    return Claim(f"M2.{index}", f"eigenvalue {index}, off the plot", FIG1, value, CODE, within_share(value, 0.15))


SPECTRUM = (
    Claim(
        "M1", "the three largest cliffs of the full kernel lie after 1, 57 and 113",
        FIG1, "[1, 57, 113]", CODE, positions_are(1, 57, 113), every_seed=True,
    ),
    _eigenvalue(1, 0.58), _eigenvalue(2, 0.020), _eigenvalue(57, 0.016),
    _eigenvalue(58, 0.0075), _eigenvalue(113, 0.0042), _eigenvalue(114, 0.0029),
    Claim("M7", "cliff 1 is there at initialisation: ratio across it", SPECTRA, 4.5, RERUN, Band(4, 5), "times"),
    Claim("M8.60", "no second cliff at epoch 60: ratio at 113", SPECTRA, 1.0, RERUN, Band(high=1.02), "times"),
    Claim("M8.80", "hardly one at epoch 80: ratio at 113", SPECTRA, 1.02, RERUN, Band(high=1.05), "times"),
    Claim("M8.100", "it begins by epoch 100: ratio at 113", SPECTRA, 1.15, RERUN, Band(1.05, 1.25), "times"),
    Claim("M8.500", "the second cliff at epoch 500: ratio at 113", SPECTRA, 1.43, RERUN, Band(1.23, 1.63), "times"),
    Claim("M12", "growth of the top eigenvalue from epoch 0 to 100", SPECTRA, 300, CODE, Band(100, 1000), "times"),
    Claim("M12.all", "so do all 200 read: the least growth of one", SPECTRA, None, CODE, Band(low=10), "times"),
)  # fmt: skip

BLOCKS = (
    Claim("M5.a", "the first block carries the Fourier family of a", TABLE1, 98.4, RERUN, Band(low=98), "%"),
    Claim("M5.b", "the first block carries the Fourier family of b", TABLE1, 98.4, RERUN, Band(low=98), "%"),
    Claim("M7.a", "it does so at initialisation already: a", BEFORE, 98.3, RERUN, Band(low=98), "%"),
    Claim("M7.b", "it does so at initialisation already: b", BEFORE, 98.3, RERUN, Band(low=98), "%"),
    Claim("M6.a+b", "the second block carries the family of a+b", TABLE1, 94.5, CODE, Band(92, 96), "%"),
    Claim("M6.a-b", "the second block carries the family of a-b", TABLE1, 90.0, CODE, Band(86, 91), "%"),
    Claim("M6.low", "the smallest cosine of a-b with the second block", TABLE1, 0.909, CODE, around(0.909, 0.03)),
    Claim("M6.high", "the largest cosine of a-b with the second block", TABLE1, 0.973, CODE, around(0.973, 0.02)),
    Claim(
        "M6.scan", "a scan over nine families names those two in the second block without being told",
        OURS, None, RERUN, begins_with("a+b", "a-b"), every_seed=True,
    ),
)  # fmt: skip

BY_LAYER = (
    Claim("M3.cliff", "layer 1 alone: one cliff, after 57", LAYERS, "[57]", CODE, only_beyond_the_constant(57)),
    Claim("M3.ratio", "layer 1: ratio across it", LAYERS, 12, RERUN, Band(10, 14), "times"),
    Claim("M3.a", "layer 1's block carries a", LAYERS, 99.8, RERUN, Band(low=99), "%"),
    Claim("M3.b", "layer 1's block carries b", LAYERS, 99.8, RERUN, Band(low=99), "%"),
    Claim("M3.a+b", "layer 1's block carries no a+b", LAYERS, 0.0, RERUN, Band(high=1), "%"),
    Claim("M3.a-b", "layer 1's block carries no a-b", LAYERS, 0.0, RERUN, Band(high=1), "%"),
    Claim("M4.cliff", "layer 2 alone: no sharp cliff", LAYERS, "[]", CODE, only_beyond_the_constant()),
    Claim("M4.a+b", "layer 2's modes 1-56 carry mostly a+b", LAYERS, 82.5, RERUN, Band(78, 87), "%"),
    Claim("M4.a-b", "layer 2's modes 1-56 carry mostly a-b", LAYERS, 68.5, RERUN, Band(64, 73), "%"),
    Claim("M4.a", "layer 2's modes 1-56 carry little a", LAYERS, 17.5, RERUN, Band(13, 22), "%"),
    Claim("M4.b", "layer 2's modes 1-56 carry little b", LAYERS, 17.5, RERUN, Band(13, 22), "%"),
)

COURSE = (
    Claim("M9.train", "training accuracy 100 %, first recorded", FIG2, 40, CODE, Band(30, 50), "epoch"),
    Claim("M9.onset", "test accuracy 50 %, first recorded", FIG2, 80, CODE, Band(70, 90), "epoch"),
    Claim("M9.70", "test accuracy at epoch 70: hardly any", FIG2, 9.5, CODE, Band(high=30), "%"),
    Claim("M9.100", "test accuracy at epoch 100: nearly all", FIG2, 93.7, CODE, Band(low=80), "%"),
    Claim("M9.end", "test accuracy 100 %, first recorded", FIG2, 130, CODE, Band(100, 180), "epoch"),
    Claim("M10.init", "second window, a+b at initialisation", FIG2, 7, CODE, Band(6, 9), "%"),
    Claim("M10.100", "second window, a+b at epoch 100", FIG2, 87, CODE, Band(80, 92), "%"),
    Claim("M10.490", "second window, a+b at epoch 490", FIG2, 94.5, CODE, Band(92, 96), "%"),
    Claim("M11", "the a+b overlap rises fastest at", FIG2, 70, CODE, Band(60, 80), "epoch"),
    Claim("M11.rate", "its rate there", FIG2, 11, CODE, Band(9, 13.5), "points per 10 epochs"),
    Claim("M11.lag", "that peak minus the onset (drawn by hand at 75)", FIG2, -5, CODE, Band(-25, 5), "epochs"),
)

MEMORISED = (
    Claim("C1.train", "the control fits its training pairs", CONTROL, 1.0, RERUN, Band(low=0.99)),
    Claim("C1.test", "and does not generalise", CONTROL, 0.01, RERUN, Band(high=0.05)),
    Claim("C1.sum", "its second window holds little of a+b", CONTROL, 19.5, RERUN, Band(high=25), "%"),
    Claim("C1.rate", "which never rises fast: largest rate", CONTROL, 1.9, RERUN, Band(high=4), "points per 10 epochs"),
    Claim("C1.ratio", "it ends without a second cliff: ratio at 113", CONTROL, 1.005, RERUN, Band(high=1.02), "times"),
    Claim("C1.cliff", "it has no second cliff at any epoch", CONTROL, "none", RERUN, nothing_after(57)),
    Claim("C1.first", "its first block looks as if it had learned", CONTROL, 98.5, RERUN, Band(low=98), "%"),
    Claim(
        "D1", "first epoch with a cliff the initial network lacks, held for two records: no labels, no hindsight",
        OURS, None, RERUN, Band(80, 200), "epoch",
    ),
    Claim("D2", "the control never shows such a cliff", OURS, None, RERUN, never, "epoch"),
)  # fmt: skip

CLAIMS = (*SPECTRUM, *BLOCKS, *BY_LAYER, *COURSE, *MEMORISED)
