"""tangentlens: what a network has learned, read through its exact tangent kernels.

This file is the table of contents. A name is imported when it is first used, so that importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_STAGES = ("capture", "kernels", "measures", "record", "report", "studies")
_CONTENTS: dict[str, tuple[str, ...]] = {
    "tangentlens.errors": (
        "BadInput", "ClaimOutsideTolerance", "DifferentRun", "NonDeterministicModel", "NonFiniteKernel", "RankFailed",
        "RefusedForMemory",
    ),
    "tangentlens.capture.precision": ("lower_precision",),
    "tangentlens.kernels": (
        "Features", "LayerMoments", "Plan", "Product", "Spectrum", "StoredKernel", "agop", "entk", "entk_by_layer",
        "entk_full", "entk_mean_output", "entk_product", "features", "forward_kernel", "jacobian_gram", "layer_moments",
        "nfm", "open_kernel", "plan", "ptk", "ptk_covariance", "spectrum",
    ),
    "tangentlens.kernels.top_spectrum": ("top_spectrum",),
    "tangentlens.record": (
        "Measure", "Recorder", "Snapshot", "at", "either", "every", "log_spaced", "open_record", "when",
        "when_changed",
    ),
    "tangentlens.report": ("verdict", "watch", "write_report"),
}  # fmt: skip
_HOME = {name: module for module, names in _CONTENTS.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:  # the same names for type checkers and editors; a test keeps the two lists equal
    from tangentlens.capture.precision import lower_precision as lower_precision
    from tangentlens.errors import (
        BadInput as BadInput,
        ClaimOutsideTolerance as ClaimOutsideTolerance,
        DifferentRun as DifferentRun,
        NonDeterministicModel as NonDeterministicModel,
        NonFiniteKernel as NonFiniteKernel,
        RankFailed as RankFailed,
        RefusedForMemory as RefusedForMemory,
    )  # fmt: skip
    from tangentlens.kernels import (
        Features as Features,
        LayerMoments as LayerMoments,
        Plan as Plan,
        Product as Product,
        Spectrum as Spectrum,
        StoredKernel as StoredKernel,
        agop as agop,
        entk as entk,
        entk_by_layer as entk_by_layer,
        entk_full as entk_full,
        entk_mean_output as entk_mean_output,
        entk_product as entk_product,
        features as features,
        forward_kernel as forward_kernel,
        jacobian_gram as jacobian_gram,
        layer_moments as layer_moments,
        nfm as nfm,
        open_kernel as open_kernel,
        plan as plan,
        ptk as ptk,
        ptk_covariance as ptk_covariance,
        spectrum as spectrum,
    )  # fmt: skip
    from tangentlens.kernels.top_spectrum import top_spectrum as top_spectrum
    from tangentlens.record import (
        Measure as Measure,
        Recorder as Recorder,
        Snapshot as Snapshot,
        at as at,
        either as either,
        every as every,
        log_spaced as log_spaced,
        open_record as open_record,
        when as when,
        when_changed as when_changed,
    )  # fmt: skip
    from tangentlens.report import verdict as verdict, watch as watch, write_report as write_report


def __getattr__(name: str) -> Any:
    if name in _STAGES:
        return import_module(f"tangentlens.{name}")
    if name not in _HOME:
        raise AttributeError(f"tangentlens has no {name!r}; it has {', '.join((*__all__, *_STAGES))}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_STAGES})
