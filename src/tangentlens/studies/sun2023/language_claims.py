"""What is said of language models, the leak and the controls."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tangentlens.studies.claims import Band, Claim, Verdict, judged
from tangentlens.studies.sun2023.language import LanguageRun
from tangentlens.studies.sun2023.reference import above_baseline

NOTEBOOK = "the authors' notebook, box plots"
CONTROL = "a control of ours"


def language_verdicts(name: str, runs: Sequence[LanguageRun]) -> list[Verdict]:
    boxes = Claim(
        f"9.{name}", f"{name}: co-occurring targets score higher: contexts whose top 10 have the higher median",
        NOTEBOOK, "20 of 20", "author's code", Band(low=1.0),
    )  # fmt: skip
    masked = Claim(
        f"L.{name}, mask", f"{name}: with the causal mask no past score moves when later words change",
        CONTROL, 0.0, "independent run", Band(high=1e-4), every_seed=True,
    )  # fmt: skip
    leak = Claim(
        f"L.{name}, leak", f"{name}: without the mask the model reads the answer: perplexity over the masked model's",
        "the authors' notebook has no mask; its test perplexity is 3.95", None, "author's code", Band(high=0.5),
    )  # fmt: skip
    unigram, untrained = (fmean(run.notebook[scorer] for run in runs) for scorer in ("unigram", "untrained"))
    perplexities = ", ".join(f"{run.perplexity:.1f} / {run.perplexity_unmasked:.1f}" for run in runs)
    return [
        judged(boxes, [run.notebook["trained"] for run in runs], baseline=unigram,
               note=f"baseline: the unigram-only scorer, which no context can fail; untrained network {untrained:.3f}"),
        control(f"9.{name}, PMI", f"{name}: the same with targets by PMI among words seen 200 times",
                 [run.association for run in runs]),
        control(f"9.{name}, matched", f"{name}: high against low PMI at equal frequency",
                 [run.matched for run in runs]),
        control(f"9.{name}, matched, next",
                 f"{name}: the same counting neighbours only, what a word fed alone is followed by",
                 [run.matched_next for run in runs]),
        judged(masked, [run.leak for run in runs], baseline=fmean(run.leak_unmasked for run in runs),
               note="baseline: without the mask"),
        judged(leak, [run.perplexity_unmasked / run.perplexity for run in runs], baseline=1.0,
               note=f"test perplexity with / without the mask: {perplexities}; "
                    f"unigram {runs[0].unigram_perplexity:.1f}"),
    ]  # fmt: skip


def control(id_: str, sentence: str, runs: Sequence[dict[str, list[float]]]) -> Verdict:
    """A trained model must beat the scorer that ignores the context, on the same pairs, beyond their scatter."""
    trained, unigram, untrained = ([run[scorer] for run in runs] for scorer in ("trained", "unigram", "untrained"))
    above = above_baseline(trained, unigram)
    claim = Claim(
        id_, f"{sentence}: share of pairs in order, two standard errors over contexts above a unigram-only scorer",
        CONTROL, None, "independent run", above,
    )  # fmt: skip
    beyond = "; no scorer could pass it on pairs that counts alone order so well" if above.low > 1 else ""
    return judged(
        claim, [fmean(row) for row in trained], baseline=fmean(value for row in unigram for value in row),
        note="baseline: the unigram-only scorer; untrained network "
             f"{fmean(value for row in untrained for value in row):.3f}{beyond}",
    )  # fmt: skip
