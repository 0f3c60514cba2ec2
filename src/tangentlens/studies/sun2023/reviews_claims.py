"""What is said of reviews: word scores follow co-occurrence, and what pushes every word alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from torch import Tensor

from tangentlens.measures.cooccurrence import PolarityLists
from tangentlens.studies.claims import Band, Claim, Verdict, around, judged
from tangentlens.studies.sun2023.reference import one_more_seed
from tangentlens.studies.sun2023.reviews import Looks
from tangentlens.studies.sun2023.text import Task

RERUN = "independent numpy run of the released recipe, one seed"
CODE = "the authors' code"
FLOW = "exact kernel flow, independent run"
SHARE = 0.25  # how far one seed of another program may lie from ours at least, relatively

BIAS = {
    ("ReLU s_v=.1", 200): (0.270, -0.254),
    ("ReLU s_v=.01", 200): (0.367, -0.118),
    ("GeLU s_v=.1", 200): (0.387, -0.417),
    ("ReLU s_v=.01", 100): (0.119, -0.037),
    ("GeLU s_v=.01", 100): (0.173, -0.185),
    ("SA", 200): (0.215, -0.231),
}
"""(recipe, epoch) -> mean scores of positive and of negative words."""


def list_verdicts(task: Task) -> list[Verdict]:
    """Sizes of the polarity lists; the authors' file has one label flipped and two kinds of words fewer."""
    lists = task.polarity()
    found = {"positive": lists.positive, "negative": lists.negative, "neutral": lists.neutral}
    return [
        judged(
            Claim(f"0.{name}", f"{task.name}: number of {name} words at the code's thresholds", CODE, count,
                  "author's code", around(count, 2.0)),
            float(len(found[name])),
        )
        for name, count in (("positive", 411), ("negative", 265), ("neutral", 1385))
    ]  # fmt: skip


def imdb_verdicts(lists: PolarityLists) -> list[Verdict]:
    """Sizes of the lists of all 25,000 reviews, at the code's minimum of 50."""
    return [
        judged(
            Claim(f"0.IMDB {name}", f"IMDB: number of {name} words at the code's thresholds", CODE, count,
                  "author's code", around(count, 2.0)),
            float(len(found)),
        )
        for name, count, found in (("positive", 414, lists.positive), ("negative", 363, lists.negative))
    ]  # fmt: skip


def convolution_verdicts(runs: Sequence[Looks], epoch: int) -> list[Verdict]:
    """Claim 2, early in training: the authors' plot is of epoch 480, and so not held against these ranges."""
    plot = "the authors' plot at epoch 480 has -.14 .. 1.43 and -1.84 .. .27, a few signs crossing"
    signs = Claim(
        "2.signs", f"SST-2, ReLU CNN, epoch {epoch}: polar words with the right sign", plot, None, "author's code",
        Band(low=0.9),
    )  # fmt: skip
    rank = Claim(
        "2.rank",
        f"SST-2, ReLU CNN, epoch {epoch}: rank correlation of scores with the words' rates (frequency above 5)",
        "a summary of the paper", None, "second-hand", Band(low=0.5),
    )  # fmt: skip
    ranges = "; ".join(
        f"positive {float(run.positive[epoch].min()):.2f} .. {float(run.positive[epoch].max()):.2f}, "
        f"negative {float(run.negative[epoch].min()):.2f} .. {float(run.negative[epoch].max()):.2f}, "
        f"test accuracy {run.test[epoch]:.3f}"
        for run in runs
    )
    return [
        judged(signs, [run.signs(epoch) for run in runs], baseline=fmean(run.signs(0) for run in runs),
               note=f"baseline: the untrained network; {ranges}"),
        judged(rank, [run.spearman[epoch] for run in runs], baseline=fmean(run.spearman[0] for run in runs),
               note="baseline: the untrained network"),
    ]  # fmt: skip


def follow_verdicts(runs: Sequence[Looks], epoch: int) -> list[Verdict]:
    """Claim 1, at the last epoch of the ReLU MLP at s_v = .1."""
    claimed = epoch >= 500
    signs = Claim(
        "1.signs", f"SST-2, ReLU MLP, epoch {epoch}: polar words with the right sign", RERUN,
        1.0 if claimed else None, "independent run", Band(low=0.99),
    )  # fmt: skip
    rank = Claim(
        "1.rank", f"rank correlation of scores with the words' rates (frequency above 5), epoch {epoch}", RERUN,
        0.94 if claimed else None, "independent run", around(0.94, 0.04) if claimed else Band(low=0.8),
    )  # fmt: skip
    verdicts = [
        judged(signs, [run.signs(epoch) for run in runs], baseline=fmean(run.signs(0) for run in runs),
               note="baseline: the untrained network"),
        judged(rank, [run.spearman[epoch] for run in runs], baseline=fmean(run.spearman[0] for run in runs),
               note="baseline: the untrained network"),
    ]  # fmt: skip
    if not claimed:
        return verdicts
    for name, value, read in (
        ("positive, highest", 1.595, lambda run: float(run.positive[epoch].max())),
        ("positive, lowest", 0.216, lambda run: float(run.positive[epoch].min())),
        ("negative, highest", -0.198, lambda run: float(run.negative[epoch].max())),
        ("negative, lowest", -1.536, lambda run: float(run.negative[epoch].min())),
    ):
        seen = [read(run) for run in runs]
        claim = Claim(
            f"1.range {name}", f"range of word scores at epoch {epoch}: {name}", RERUN, value, "independent run",
            one_more_seed(value, seen, SHARE * abs(value)),
        )  # fmt: skip
        verdicts.append(judged(claim, seen))
    for name, value, accuracies in (
        ("train", 0.947, [run.train[epoch] for run in runs]),
        ("test", 0.802, [run.test[epoch] for run in runs]),
    ):
        claim = Claim(
            f"1.{name}", f"{name} accuracy at epoch {epoch}", RERUN, value, "independent run", around(value, 0.02)
        )
        verdicts.append(judged(claim, accuracies, baseline=0.5))
    return verdicts


def bias_row_verdicts(runs: Mapping[str, Sequence[Looks]]) -> list[Verdict]:
    """Claims 3 and 4: the rows of mean scores, and what they say about activation and variance."""
    verdicts = []
    for (name, epoch), means in BIAS.items():
        found = [run for run in runs.get(name, ()) if epoch in run.positive]
        if not found:
            continue
        for side, value in zip(("positive", "negative"), means):
            seen = [float(getattr(run, side)[epoch].mean()) for run in found]
            claim = Claim(
                f"{4 if name == 'SA' else 3}.{name} {side} {epoch}",
                f"SST-2, {name}, epoch {epoch}: mean score of {side} words",
                RERUN + (", uniform attention" if name == "SA" else ""), value, "independent run",
                one_more_seed(value, seen, SHARE * abs(value)),
            )  # fmt: skip
            verdicts.append(judged(claim, seen, note=_asymmetry(found, epoch)))
    return verdicts


def _asymmetry(runs: Sequence[Looks], epoch: int) -> str:
    listed = ", ".join(f"{run.asymmetry(epoch):.2f}" for run in runs)
    signed = ", ".join(f"{run.one_signed[epoch]:.2f}" for run in runs)
    neutral = ", ".join(f"{float(run.neutral[epoch].mean()):.3f}" for run in runs)
    return f"asymmetry {listed}; share of v > 0 {signed}; neutral mean {neutral}"


def ordering_verdicts(runs: Mapping[str, Sequence[Looks]], epoch: int) -> list[Verdict]:
    """Claims 3, 4 and 6 as the paper's abstract and summary state them, without numbers."""
    verdicts = []
    reference = [run.asymmetry(epoch) for run in runs["ReLU s_v=.01"]]
    for name, id_, sentence, source in (
        ("ReLU s_v=.1", "3.variance", "variance sets the bias: index of ReLU at s_v=.01 minus at .1", "second-hand"),
        ("GeLU s_v=.01", "6", "GeLU is more robust: index of ReLU minus GeLU at s_v=.01", "paper"),
        ("SA", "4.SA", "self-attention has no bias: index of ReLU at s_v=.01 minus self-attention", "second-hand"),
    ):  # fmt: skip
        found = [run for run in runs.get(name, ()) if epoch in run.positive]
        if found:
            claim = Claim(id_, f"SST-2, epoch {epoch}: {sentence}", "abstract and summary", None, source,  # type: ignore[arg-type]
                          Band(low=0.1), every_seed=True)  # fmt: skip
            gaps = [high - run.asymmetry(epoch) for high, run in zip(reference, found)]
            verdicts.append(judged(claim, gaps, note=f"{name}: {_asymmetry(found, epoch)}"))
    return verdicts


def flow_verdicts(scores: dict[str, Tensor]) -> list[Verdict]:
    """The exact flow on reviews, at times .1, 10 and 50: a bias that comes and goes."""
    positive, negative, neutral = scores["positive"], scores["negative"], scores["neutral"]
    rows = (
        ("early", "every negative word is pushed up at first: share above zero at time .1", 1.0,
         float((negative[0] > 0).double().mean()), Band(low=0.99)),
        ("turn", "then down: share of positive words above zero at time 10", 0.25,
         float((positive[1] > 0).double().mean()), around(0.25, 0.15)),
        ("late", "and at time 50 positive words are positive again: share", 0.98,
         float((positive[2] > 0).double().mean()), Band(low=0.95)),
        ("shift", "leaving a small shift of neutral words at time 50", -0.015, float(neutral[2].mean()),
         Band(-0.03, 0.0)),
    )  # fmt: skip
    return [
        judged(
            Claim(f"T.{name}", f"ReLU of infinite width on SST-2: {sentence}", FLOW, value, "independent run", accept),
            seen,
        )
        for name, sentence, value, seen, accept in rows
    ]


def drift_verdict(runs: Mapping[str, Sequence[Looks]], epoch: int) -> Verdict:
    claim = Claim(
        "D.reviews", f"On SST-2 too the released recipe leaves the lazy regime: relative kernel change, epoch {epoch}",
        "not measured before", None, "independent run", Band(low=1.0), every_seed=True,
    )  # fmt: skip
    found = [run.drift[epoch] for run in runs["ReLU s_v=.1"]]
    return judged(claim, [one.change for one in found], note=found[0].verdict)


def topic_verdicts(name: str, found: Sequence[tuple[list[float], list[float], float]]) -> list[Verdict]:
    claim = Claim(
        f"1.{name}", f"{name}: smallest rank correlation, over classes, of word scores with co-occurrence shares",
        "a summary of the paper", None, "second-hand", Band(low=0.5),
    )  # fmt: skip
    null = max(abs(value) for _, shuffled, _ in found for value in shuffled)
    tests = ", ".join(f"{accuracy:.3f}" for _, _, accuracy in found)
    return [judged(claim, [min(seen) for seen, _, _ in found], baseline=null,
                   note=f"baseline: largest |correlation| with words shuffled; test accuracy {tests}")]  # fmt: skip
