"""What is said of language models, the leak and the controls; and S5, where everything is known."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

from tangentlens.kernels.infinite_width import token_counts
from tangentlens.measures.kernel_flow import kernel_flow, kernel_time
from tangentlens.studies.claims import Band, Claim, Verdict, judged
from tangentlens.studies.sun2023.language import LanguageRun
from tangentlens.studies.sun2023.lazy import correlation
from tangentlens.studies.sun2023.synthetic import markov_text

NOTEBOOK = "the authors' notebook, box plots"
CONTROL = "a control of ours"


def language_verdicts(name: str, runs: Sequence[LanguageRun]) -> list[Verdict]:
    def mean(kind: str, scorer: str) -> float:
        return fmean(getattr(run, kind)[scorer] for run in runs)

    def values(kind: str) -> list[float]:
        return [getattr(run, kind)["trained"] for run in runs]

    def note(kind: str) -> str:
        return f"baseline: the unigram-only scorer; untrained network {mean(kind, 'untrained'):.3f}"

    boxes = Claim(
        f"9.{name}", f"{name}: co-occurring targets score higher: contexts whose top 10 have the higher median",
        NOTEBOOK, "20 of 20", "author's code", Band(low=1.0),
    )  # fmt: skip
    association = Claim(
        f"9.{name}, PMI", f"{name}: the same with targets by PMI among words seen 200 times: share of pairs in order",
        CONTROL, None, "independent run", Band(low=0.75),
    )  # fmt: skip
    matched = Claim(
        f"9.{name}, matched", f"{name}: high against low PMI at equal frequency: share of pairs in order",
        CONTROL, None, "independent run", Band(low=0.75),
    )  # fmt: skip
    following = Claim(
        f"9.{name}, matched, next", f"{name}: the same counting neighbours only, what a word fed alone is followed by",
        CONTROL, None, "independent run", Band(low=0.75),
    )  # fmt: skip
    masked = Claim(
        f"L.{name}, mask", f"{name}: with the causal mask no past score moves when later words change",
        CONTROL, 0.0, "independent run", Band(high=1e-4), every_seed=True,
    )  # fmt: skip
    leak = Claim(
        f"L.{name}, leak", f"{name}: without the mask the model reads the answer: perplexity over the masked model's",
        "the authors' notebook has no mask; its test perplexity is 3.95", None, "author's code", Band(high=0.5),
    )  # fmt: skip
    perplexities = ", ".join(f"{run.perplexity:.1f} / {run.perplexity_unmasked:.1f}" for run in runs)
    return [
        judged(boxes, values("notebook"), baseline=mean("notebook", "unigram"), note=note("notebook")),
        judged(association, values("association"), baseline=mean("association", "unigram"), note=note("association")),
        judged(matched, values("matched"), baseline=mean("matched", "unigram"), note=note("matched")),
        judged(following, values("matched_next"), baseline=mean("matched_next", "unigram"), note=note("matched_next")),
        judged(masked, [run.leak for run in runs], baseline=fmean(run.leak_unmasked for run in runs),
               note="baseline: without the mask"),
        judged(leak, [run.perplexity_unmasked / run.perplexity for run in runs], baseline=1.0,
               note=f"test perplexity with / without the mask: {perplexities}; "
                    f"unigram {runs[0].unigram_perplexity:.1f}"),
    ]  # fmt: skip


def first_step(seed: int, sequences: int = 100) -> float:
    """S5: correlation of the first step's scores with attention-weighted co-occurrence minus n_e / |V|.

    Uniform attention over all earlier words is a bag of words divided by its length: linear in the words, so the kernel
    between contexts is the overlap of their mean-pooled counts.
    """
    text = markov_text(sequences=sequences, seed=seed)
    kinds = int(text.max()) + 1
    contexts, targets = _contexts(text)
    mixtures = torch.stack([token_counts([context], kinds).to_dense()[0] / len(context) for context in contexts])
    kernel = mixtures @ mixtures.T
    # the kernel's leading directions suffice for so short a time
    flow = kernel_flow(kernel, targets, torch.tensor([1e-3 * kernel_time(kernel)]), labels=kinds, solver="split")
    scores = flow.scores(mixtures.T)[0]  # a word alone is the mixture of itself
    together = mixtures.T @ torch.nn.functional.one_hot(targets, kinds).double()
    expected = together - mixtures.sum(0)[:, None] / kinds
    return correlation(scores.flatten(), expected.flatten())


def _contexts(text: Tensor) -> tuple[list[Tensor], Tensor]:
    places = [(row, end) for row in range(len(text)) for end in range(1, text.shape[1])]
    return [text[row, :end] for row, end in places], torch.stack([text[row, end] for row, end in places])


def first_step_verdict(seeds: int) -> Verdict:
    claim = Claim(
        "S5", "At uniform probabilities the first step makes scores proportional to attention-weighted co-occurrence "
        "minus n_e / |V|: correlation", "derived here", 1.0, "independent run", Band(low=0.999), every_seed=True,
    )  # fmt: skip
    return judged(claim, [first_step(seed) for seed in range(seeds)])
