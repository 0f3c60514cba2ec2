"""Feature learning as alignment (beaglehole2024, arXiv 2402.05271): the ansatz, its cause, its start and its optimiser.

Reading order: `chain` (the task), `networks`, `chain_readings`, `chain_runs` and `chain_claims` (claims 2-8), `early`
and `early_claims` (1, 7, 9, 10), `images` and `image_claims` (11, 12), `transformer` (beyond the paper), `sizes`,
`records`, `recording` (for the report), `whole` (all of it in order).
"""

from __future__ import annotations

from tangentlens.studies.beaglehole2024.whole import STUDY

__all__ = ["STUDY"]
