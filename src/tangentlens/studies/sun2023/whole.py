"""The whole study in order: formulas, flow, bias, order and negation, reviews and news, language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tangentlens.studies.claims import Study, StudyOptions, StudyResult, Verdict
from tangentlens.studies.datasets import MissingData
from tangentlens.studies.sun2023 import reviews_claims
from tangentlens.studies.sun2023.formulas import ARCHITECTURES, formula_verdicts, pair_verdicts, ratios
from tangentlens.studies.sun2023.imbalance import (
    SETTINGS,
    BiasRun,
    attention_verdict,
    bias_run,
    bias_verdicts,
    deeper,
    disjoint_verdicts,
)
from tangentlens.studies.sun2023.language import TEXTS, language_run
from tangentlens.studies.sun2023.language_claims import language_verdicts
from tangentlens.studies.sun2023.lazy import lazy_run
from tangentlens.studies.sun2023.lazy_claims import lazy_verdicts
from tangentlens.studies.sun2023.made_up_language import made_up_verdicts
from tangentlens.studies.sun2023.order import KERNELS, TASKS, by_kernel, by_network
from tangentlens.studies.sun2023.order_claims import (
    beside,
    edge_verdicts,
    flow_verdicts,
    length_note,
    network_verdicts,
)
from tangentlens.studies.sun2023.records import bias_record, lazy_record, order_record, ratio_record, review_record
from tangentlens.studies.sun2023.reviews import RECIPES, flow_on_reviews, released, topics
from tangentlens.studies.sun2023.sizes import FULL, QUICK, Sizes
from tangentlens.studies.sun2023.text import news, reviews, sst

LEFT_OUT = (
    "--quick leaves out: epochs beyond 200 on SST-2 (so the ranges of claim 1), GeLU at s_v=.1 and self-attention on "
    "SST-2, AG News, IMDB, WikiText-2, PTB, a text of one's own, step 1000 of S2, and the trained networks MV, L-RNN "
    "and SA+MLP on order and negation"
)

LONGER = 6  # words of a text, beside the four of S4

Part = tuple[list[Verdict], dict[str, Any], list[str]]


def run(options: StudyOptions) -> StudyResult:
    """Measure everything and judge it; a dataset that is not there is said to be missing, and nothing else changes."""
    sizes = QUICK if options.quick else FULL
    parts = [measured(name, options, sizes) for name in PARTS]
    verdicts = [verdict for found, _, _ in parts for verdict in found]
    records = {name: record for _, found, _ in parts for name, record in found.items()}
    notes = [note for _, _, found in parts for note in found]
    if options.quick:
        notes.append(LEFT_OUT)
    if options.run is not None:
        notes += _kept(options, records)
    return StudyResult("sun2023", verdicts, records, tuple(notes))


def measured(name: str, options: StudyOptions, sizes: Sizes) -> Part:
    """One part of the study by its name in PARTS: verdicts, records, notes."""
    try:
        return PARTS[name](options, sizes)
    except MissingData as missing:
        return [], {}, [f"{name} was left out: {missing}"]


def _formulas(options: StudyOptions, sizes: Sizes) -> Part:
    found = [
        ratios(architecture, width, sizes.networks)
        for architecture in ARCHITECTURES
        for width in sizes.widths_for(architecture.name)
    ]
    verdicts = formula_verdicts(found) + pair_verdicts() + disjoint_verdicts(sizes.disjoint_width, options.seeds)
    return verdicts, {"formulas": ratio_record(found)}, []


def _flow(options: StudyOptions, sizes: Sizes) -> Part:
    runs = [
        lazy_run(activation, width, seed)
        for activation in ("relu", "gelu", "tanh")
        for width in sizes.lazy_widths
        for seed in range(min(options.seeds, sizes.costly_seeds))
    ]
    verdicts = [*lazy_verdicts(runs, max(sizes.lazy_widths)), *made_up_verdicts(range(options.seeds))]
    return verdicts, {"flow": lazy_record(runs)}, []


def _bias(options: StudyOptions, sizes: Sizes) -> Part:
    seeds = range(max(options.seeds, sizes.least_seeds))
    runs = {name: [bias_run(name, seed, looks=sizes.bias_steps) for seed in seeds] for name in SETTINGS}
    balanced = {name: [bias_run(name, seed, prior=0.5, looks=(100,)) for seed in seeds] for name in SETTINGS}
    notes = _deeper([deeper(seed) for seed in range(options.seeds)]) if sizes.beyond else []
    return [*bias_verdicts(runs, balanced), attention_verdict(seeds)], {"bias": bias_record(runs)}, notes


def _deeper(found: Sequence[Mapping[str, BiasRun]]) -> list[str]:
    notes = []
    for name in found[0]:
        runs = [by_name[name] for by_name in found]
        lazy = sum(run.drift[100].lazy for run in runs)
        notes.append(
            f"beyond the paper, ReLU s_v=.01 at prior .8, {name}: asymmetry at step 100 "
            f"{_listed(run.asymmetry[100] for run in runs)}; disjoint kernel over diagonal at first "
            f"{_listed(run.initial_bias_ratio for run in runs)}; {lazy} of {len(runs)} runs lazy"
        )
    return notes


def _order(options: StudyOptions, sizes: Sizes) -> Part:
    seeds = range(max(options.seeds, sizes.least_seeds))
    flows = {(task, name): [by_kernel(task, name, seed) for seed in seeds] for task in TASKS for name in KERNELS}
    trained = {
        (task, name): [by_network(task, name, seed) for seed in seeds] for task in TASKS for name in sizes.trained_order
    }
    edges = {
        2: [by_kernel("order", "linear CNN", seed, mark=False) for seed in seeds],
        1: flows["order", "linear CNN"],
        0: flows["order", "linear CNN, padded"],
    }
    longer = [by_kernel("negation", "ReLU CNN", seed, length=LONGER) for seed in seeds]
    records = {"order/flow": order_record(flows), "order/trained": order_record(trained)}
    verdicts = [*flow_verdicts(flows), *edge_verdicts(edges), *network_verdicts(trained)]
    return verdicts, records, [*beside(trained), length_note(longer, LONGER)]


def _reviews(options: StudyOptions, sizes: Sizes) -> Part:
    task = sst(options.data)
    seeds = range(min(options.seeds, sizes.costly_seeds))
    runs = {
        name: [released(task, RECIPES[name], seed, epochs, looks) for seed in seeds]
        for name, (epochs, looks) in sizes.recipes.items()
    }
    last = sizes.recipes["ReLU s_v=.1"][0]
    common = max(set.intersection(*(set(looks) for _, looks in sizes.recipes.values())))
    verdicts = [
        *reviews_claims.list_verdicts(task),
        *reviews_claims.flow_verdicts(flow_on_reviews(task, (0.1, 10.0, 50.0))),
        *reviews_claims.follow_verdicts(runs["ReLU s_v=.1"], last),
        *reviews_claims.bias_row_verdicts(runs),
        *reviews_claims.ordering_verdicts(runs, common),
        reviews_claims.drift_verdict(runs, common),
    ]
    convolved = {}
    if sizes.cnn_epochs:
        looks = (0, sizes.cnn_epochs)
        few = range(min(options.seeds, sizes.cnn_seeds))
        convolved = {"CNN": [released(task, RECIPES["CNN"], seed, sizes.cnn_epochs, looks) for seed in few]}
        verdicts += reviews_claims.convolution_verdicts(convolved["CNN"], sizes.cnn_epochs)
    return verdicts, {f"SST-2/{name}": review_record(found) for name, found in {**runs, **convolved}.items()}, []


def _news(options: StudyOptions, sizes: Sizes) -> Part:
    if not sizes.topic_epochs:
        return [], {}, []
    task = news(options.data)
    found = [topics(task, seed, sizes.topic_epochs) for seed in range(options.seeds)]
    return reviews_claims.topic_verdicts(task.name, found), {}, []


def _imdb(options: StudyOptions, sizes: Sizes) -> Part:
    if not sizes.imdb_epochs:
        return [], {}, []
    whole = reviews(options.data).polarity(minimum=50)
    task = reviews(options.data, sizes.imdb_examples)
    looks = (0, sizes.imdb_epochs)
    runs = [released(task, RECIPES["ReLU s_v=.1"], seed, sizes.imdb_epochs, looks) for seed in range(options.seeds)]
    last = sizes.imdb_epochs
    note = (
        f"IMDB, {len(task.documents)} reviews, epoch {last}: right signs {_listed(run.signs(last) for run in runs)}, "
        f"rank correlation {_listed(run.spearman[last] for run in runs)}, "
        f"test accuracy {_listed(run.test[last] for run in runs)}"
    )
    return reviews_claims.imdb_verdicts(whole), {"IMDB/ReLU s_v=.1": review_record(runs)}, [note]


def _listed(values: Any) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _language(options: StudyOptions, sizes: Sizes) -> Part:
    verdicts: list[Verdict] = []
    notes: list[str] = []
    for name in sizes.languages:
        try:
            text = TEXTS[name](options.data)
        except MissingData as missing:
            notes.append(f"{name} was left out: {missing}")
            continue
        seeds = range(min(options.seeds, sizes.costly_seeds))
        found = [language_run(text, seed, epochs=sizes.language_epochs, width=sizes.language_width) for seed in seeds]
        verdicts += language_verdicts(name, found)
    return verdicts, {}, notes


PARTS: dict[str, Callable[[StudyOptions, Sizes], Part]] = {
    "formulas": _formulas,
    "flow": _flow,
    "bias": _bias,
    "order": _order,
    "SST-2": _reviews,
    "AG News": _news,
    "IMDB": _imdb,
    "language": _language,
}
"""In the order they run; those after the first four need data."""


def _kept(options: StudyOptions, records: Mapping[str, Any]) -> Sequence[str]:
    """The numbers as one zarr store, and a few trainings as runs that `tangentlens report` shows."""
    from tangentlens.studies.sun2023.followed import followed_runs

    assert options.run is not None
    options.run.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        record.to_zarr(options.run / "sun2023.zarr", group=name.replace(" ", "_"), mode="a", consolidated=False)
    runs = followed_runs(options.run)
    return ["see them: tangentlens report " + " ".join(f"'{run}'" for run in runs)]


STUDY = Study(
    name="sun2023",
    title="Unraveling feature extraction mechanisms in neural networks",
    paper="Sun, Li, Lu: arXiv 2310.16350 v2 (EMNLP 2023); of it the abstract, the code and a summary were at hand",
    run=run,
)
"""`tangentlens reproduce sun2023`: some minutes with --quick on two cores, some hours in full."""
