"""Feature identification via the empirical NTK (J. Lin, arXiv 2510.00468, v1 October 2025 to v4 May 2026)."""

from __future__ import annotations

from tangentlens.studies.claims import Study
from tangentlens.studies.lin2025.experiment import run

STUDY = Study(
    name="lin2025",
    title="Feature Identification via the Empirical NTK",
    paper="J. Lin, arXiv 2510.00468 (toy models of superposition: v1-v3; modular addition: v1-v4; Transformer: v3, v4)",
    run=run,
    quick_seeds=1,
)
