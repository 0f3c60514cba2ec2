"""The whole study in order: chain task, early times, images, and what lies beyond the paper."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from tangentlens.studies.beaglehole2024.chain_claims import chain_verdicts
from tangentlens.studies.beaglehole2024.chain_runs import BEYOND, SETTINGS, ChainRun, chain_run
from tangentlens.studies.beaglehole2024.early import quadratic_early, relu_early
from tangentlens.studies.beaglehole2024.early_claims import early_verdicts
from tangentlens.studies.beaglehole2024.image_claims import depth_verdicts, limited_verdicts, ways_compared
from tangentlens.studies.beaglehole2024.images import Task, image_task, mlp_curves, vgg_curves
from tangentlens.studies.beaglehole2024.recording import record_chain
from tangentlens.studies.beaglehole2024.records import chain_record, curves_record, early_record, transformer_record
from tangentlens.studies.beaglehole2024.sizes import FULL, QUADRATIC_NETWORKS, QUICK, Sizes
from tangentlens.studies.beaglehole2024.transformer import transformer_run
from tangentlens.studies.claims import Study, StudyOptions, StudyResult, Verdict
from tangentlens.studies.datasets import MissingData

Each = TypeVar("Each")
Part = tuple[list[Verdict], dict[str, Any], list[str]]


def run(options: StudyOptions) -> StudyResult:
    """Measure everything and judge it; datasets that are not there are said to be missing, and nothing else changes."""
    sizes = QUICK if options.quick else FULL
    parts = [_chain(options, sizes), _early(options, sizes)]
    parts += [_images(options, sizes, dataset) for dataset in ("mnist", "cifar10", "svhn", "celeba")]
    parts.append(_transformer(options, sizes))
    verdicts = [verdict for found, _, _ in parts for verdict in found]
    records = {name: record for _, found, _ in parts for name, record in found.items()}
    notes = tuple(note for _, _, found in parts for note in found)
    if options.run is not None:
        _write(records, options.run)
        runs = " ".join(str(run) for run in record_chain(options.run, SETTINGS))
        notes += (
            f"ways of training the chain task were recorded; `tangentlens report {runs}` draws them side by side",
        )
    return StudyResult("beaglehole2024", verdicts, records, notes)


def _chain(options: StudyOptions, sizes: Sizes) -> Part:
    settings = SETTINGS + (BEYOND if sizes.beyond else ())
    seeds = range(options.seeds)
    runs = {setting.name: [chain_run(setting, seed) for seed in _shown(seeds, setting.name)] for setting in settings}
    notes = [_machine(runs), *(_beyond(setting.name, runs) for setting in BEYOND if setting.name in runs)]
    return chain_verdicts(runs), chain_record(runs), notes


def _machine(runs: Mapping[str, Sequence[ChainRun]]) -> str:
    def beside(reading: str, name: str) -> str:
        values = " ".join(f"{run.at(reading):.3f}" for run in runs[name])
        chance = statistics.median(run.at(f"{reading}_null") for run in runs[name])
        return f"{values} (chance {chance:.3f})"

    errors = " ".join(f"{run.at('machine_test_error'):.3f}" for run in runs["plain"])
    shared = "; ".join(
        f"of {name} {beside('machine_nfm', name)} and {beside('machine_agop', name)}"
        for name in ("plain", "quarter init", "speed-limited")
    )
    return (
        f"recursive feature machine, by seed: test error {errors}; cosine with the EGOP "
        f"{beside('machine_quality', 'plain')}; with NFM and AGOP {shared}"
    )


def _beyond(name: str, runs: Mapping[str, Sequence[ChainRun]]) -> str:
    def ends(reading: str, setting: str) -> str:
        return " ".join(f"{run.at(reading):.3f}" for run in runs[setting])

    readings = ("uncentred", "uncentred_null", "quality", "quality_null", "test_error")
    told = "; ".join(f"{reading} {ends(reading, name)} (plain {ends(reading, 'plain')})" for reading in readings)
    return f"beyond the paper, {name}: {told}"


def _early(options: StudyOptions, sizes: Sizes) -> Part:
    places = [(exponent, seed) for exponent in sizes.exponents for seed in range(options.seeds)]
    quadratic = [quadratic_early(*place, networks=QUADRATIC_NETWORKS) for place in _shown(places, "quadratic, early")]
    relu = {
        hidden: [
            relu_early(exponent, hidden, seed, networks=sizes.networks)
            for exponent, seed in _shown(places, f"ReLU {hidden}, early")
        ]
        for hidden in (1, 2)
    }
    records = {"early/quadratic": early_record(quadratic)}
    records |= {f"early/relu {hidden}": early_record(found) for hidden, found in relu.items()}
    return early_verdicts(quadratic, relu, options.seeds), records, []


def _images(options: StudyOptions, sizes: Sizes, dataset: str) -> Part:
    try:
        task = image_task(dataset, sizes.images[dataset], sizes.tests, options.data)
    except MissingData as missing:
        return [], {}, [f"{dataset} was left out: {missing}"]
    task = Task(*(part.to(options.device) for part in vars(task).values()))
    seeds = range(options.seeds)
    of_the_paper = dataset in ("svhn", "celeba")
    ways = sizes.mlp(dataset) if of_the_paper or sizes.stand_ins else {"plain": sizes.mlp(dataset)["plain"]}
    runs = {
        name: [mlp_curves(task, training, seed, width=sizes.mlp_width) for seed in _shown(seeds, f"{dataset}, {name}")]
        for name, training in ways.items()
    }
    size = f", {len(task.inputs)} images, {sizes.mlp_epochs[dataset]} epochs"
    verdicts = depth_verdicts("mlp", dataset, runs["plain"], size)
    records = {f"{dataset}/mlp/{name}": curves_record(found) for name, found in runs.items()}
    notes = []
    if of_the_paper:
        verdicts += limited_verdicts(dataset, runs)
    elif sizes.stand_ins:
        notes.append(f"{dataset}, of which the paper does not speak, first layer's correlation: {ways_compared(runs)}")
    if sizes.vgg is not None and task.inputs.shape[1] == 3:
        found = [vgg_curves(task, sizes.vgg, seed) for seed in _shown(seeds, f"{dataset}, VGG")]
        verdicts += depth_verdicts("vgg", dataset, found, f", {len(task.inputs)} images, {sizes.vgg.epochs} epochs")
        records[f"{dataset}/vgg/plain"] = curves_record(found)
    return verdicts, records, notes


def _transformer(options: StudyOptions, sizes: Sizes) -> Part:
    if sizes.transformer is None:
        return [], {}, []
    try:
        runs = [
            transformer_run(seed, options.data, shape=sizes.transformer, device=options.device)
            for seed in _shown(range(options.seeds), "transformer")
        ]
    except MissingData as missing:
        return [], {}, [f"the transformer was left out: {missing}"]
    rises = [
        (part["uncentred"][1] - part["uncentred"][0], part["uncentred_null"][1] - part["uncentred_null"][0])
        for run in runs
        for part in run.parts.values()
    ]
    raw = sum(rise > 0 for rise, _ in rises)
    above = sum(rise > chance for rise, chance in rises)
    note = (
        f"beyond the paper, transformer with AdamW: of {len(rises)} heads and maps of all seeds the uncentred "
        f"correlation rises in {raw}, and above its chance level in {above}"
    )
    return [], {"transformer": transformer_record(runs)}, [note]


def _shown(items: Sequence[Each], what: str) -> Iterator[Each]:
    return iter(tqdm(items, desc=what, file=sys.stderr, disable=None))  # silent where nobody watches


def _write(records: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, record in records.items():
        record.to_zarr(folder / "records.zarr", group=name.replace(" ", "_"), mode="a", consolidated=False)


STUDY = Study(
    name="beaglehole2024",
    title="Feature learning as alignment",
    paper="Beaglehole, Mitliagkas, Agarwala: arXiv 2402.05271 v4 (TMLR, November 2024)",
    run=run,
)
"""`tangentlens reproduce beaglehole2024`: about four minutes with --quick on two cores; in full, a GPU is wanted."""
