"""The whole study, in reading order: superposition, modular addition, the Transformer, the linearised network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar

from tqdm import tqdm

from tangentlens.studies.claims import StudyOptions, StudyResult
from tangentlens.studies.lin2025.labelled import mlp_dataset, superposition_dataset, transformer_dataset
from tangentlens.studies.lin2025.linearised import FEW, linearised_run, linearised_verdicts
from tangentlens.studies.lin2025.mlp_verdicts import mlp_verdicts
from tangentlens.studies.lin2025.modular_mlp import first_perfect_epoch, mlp_run
from tangentlens.studies.lin2025.modular_transformer import transformer_run
from tangentlens.studies.lin2025.superposition import SETTINGS, superposition_run
from tangentlens.studies.lin2025.superposition_model import Superposition
from tangentlens.studies.lin2025.superposition_verdicts import beta_table, superposition_verdicts
from tangentlens.studies.lin2025.transformer_model import ModularTransformer
from tangentlens.studies.lin2025.transformer_verdicts import transformer_verdicts
from tangentlens.studies.modular_addition import ModularAddition

Each = TypeVar("Each")
PERFECT_SEEDS = 10  # for the epoch of the last wrong test pair, whose spread over seeds is a factor of three
CONTROL = 0.3  # share of the pairs the memorising control trains on
QUICK_SETTINGS = SETTINGS[:1]
NOT_RUN = "not part of this study: the v3 Transformer at its seed 0 (four key frequencies), and Gemma-3-270M of v4"


def run(options: StudyOptions) -> StudyResult:
    """Superposition and the MLP over `seeds` seeds; the Transformer at the paper's seed 2; the linearised network.

    `quick`: the first superposition setting, the MLP and its control; no Transformer, no linearised network.
    A `run` folder receives all numbers, and records of a grokking and a memorising MLP, whose report shows the figures.
    """
    seeds = range(options.seeds)
    settings = QUICK_SETTINGS if options.quick else SETTINGS
    toys = [
        superposition_run(Superposition(hidden, sparsity, seed=seed))
        for hidden, sparsity, seed in _shown([(*each, seed) for each in settings for seed in seeds], "superposition")
    ]
    tasks = [ModularAddition(seed=seed, device=options.device) for seed in seeds]
    grokked = [mlp_run(task) for task in _shown(tasks, "modular addition")]
    controls = [ModularAddition(seed=seed, train_share=CONTROL, device=options.device) for seed in seeds]
    memorised = [mlp_run(task, layers_every=None) for task in _shown(controls, "its control")]
    more = range(options.seeds, options.seeds if options.quick else PERFECT_SEEDS)
    perfect = [first_perfect_epoch(ModularAddition(seed=seed, device=options.device)) for seed in more]
    verdicts = superposition_verdicts(toys) + mlp_verdicts(grokked, memorised, perfect)
    records = {
        "superposition": superposition_dataset(toys),
        "modular_mlp": mlp_dataset(grokked),
        "modular_mlp_control": mlp_dataset(memorised),
    }
    notes = ["raw and column-normalised maps of modes by features (normalisation makes weak maps look sharp):"]
    notes += beta_table([each for each in toys if each.setting.seed == 0])
    notes.append(NOT_RUN)
    if options.quick:
        notes.append("quick: left out are two superposition settings, the Transformer and the linearised network")
    else:
        (task,) = _shown([ModularTransformer(seed=2)], "transformer")
        transformer = transformer_run(task)
        good = [linearised_run(Superposition(10, 0.9, seed=seed)) for seed in _shown(list(seeds), "linearised")]
        bad = [linearised_run(Superposition(5, 0.9, seed=seed)) for seed in _shown(list(seeds), "linearised, m=5")]
        few = [linearised_run(Superposition(5, 0.9, examples=FEW, seed=seed)) for seed in seeds]
        verdicts += transformer_verdicts(transformer) + linearised_verdicts(good, bad, few)
        records["modular_transformer"] = transformer_dataset(transformer)
    if options.run is not None:
        from tangentlens.studies.lin2025.recording import kept

        notes.append(kept(options.run, records, {"grokking": tasks[0], "memorising": controls[0]}))
    return StudyResult("lin2025", verdicts, records, tuple(notes))


def _shown(items: list[Each], what: str) -> Iterator[Each]:
    return iter(tqdm(items, desc=what, file=sys.stderr, disable=None))
