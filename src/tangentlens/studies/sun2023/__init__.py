"""How text models turn co-occurrence into decisions (sun2023, arXiv 2310.16350).

Reading order: `models` and `synthetic` (what is trained on what), `formulas` (closed-form kernels against networks),
`lazy` and `lazy_claims` (flow against training), `imbalance` (the feature bias), `order` and `order_claims` (n-grams,
negation), `text`, `reviews` and `reviews_claims` (SST-2, IMDB, AG News), `language_model`, `language` and
`language_claims`, `followed` (runs for the report), `sizes`, `records`, `whole` (all of it in order).
"""

from __future__ import annotations

from tangentlens.studies.sun2023.whole import STUDY

__all__ = ["STUDY"]
