"""nam2024: forward features and dynamical richness (arXiv 2410.04264, v1 to v3), with controls and baselines.

The body of the paper was not available to us: its definitions come from secondary accounts and its numbers are marked
second-hand. What is tested is mainly orderings, on networks that two cores train in minutes.
"""

from __future__ import annotations

from dataclasses import replace

from tangentlens.studies.claims import Study, StudyOptions, StudyResult
from tangentlens.studies.nam2024.claims_digits import QUESTIONS as DIGITS
from tangentlens.studies.nam2024.claims_pictures import QUESTIONS as PICTURES
from tangentlens.studies.nam2024.material import Material
from tangentlens.studies.nam2024.records import records
from tangentlens.studies.nam2024.results import Results, all_arms, measured
from tangentlens.studies.nam2024.sizes import FULL, QUICK, Sizes


def run(options: StudyOptions) -> StudyResult:
    """Every experiment at every seed, judged."""
    sizes: Sizes = QUICK if options.quick else FULL
    material = Material(options.data, sizes, options.device)
    result = judged_results(measured(material, options.seeds))
    if options.run is None:
        return result
    from tangentlens.studies.nam2024.recording import kept  # the store, only when it is asked for

    return replace(result, notes=(*result.notes, kept(options.run, result.records, material)))


def judged_results(results: Results) -> StudyResult:
    """The table of claims, the labelled data, and what must be said beside them."""
    verdicts = [question.answered(results) for question in (*DIGITS, *PICTURES)]
    return StudyResult("nam2024", verdicts, records(results), tuple(_notes(results)))


def _notes(results: Results) -> list[str]:
    notes = [f"not run, {name}: {reason}" for name, reasons in results.absent.items() for reason in reasons]
    looks = [look for _, _, _, looks in all_arms(results) for look in looks]
    apart = [look for look in looks if abs(look.distance - look.forward.robust.distance) > 0.005]
    if looks:
        notes.append(
            f"the literal and the robust convention of D_LR differ by more than 0.005 in {len(apart)} of {len(looks)} "
            "looks; claims are judged on the literal one"
        )
    return notes


STUDY = Study(
    "nam2024",
    "Forward features and richness: how good, how used, how strong, and was training lazy or rich?",
    "Nam, Fonseca, Lee, Mingard, Goring, El Harzli, Erturk, Hayou, Louis: arXiv 2410.04264 (v1, v2, v3)",
    run,
)
