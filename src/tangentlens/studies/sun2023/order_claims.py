"""What is said of order, XOR and negation, beside the tables of S3 and S4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tangentlens.studies.claims import Band, Claim, Verdict, judged
from tangentlens.studies.sun2023.order import OrderRun
from tangentlens.studies.sun2023.reference import SHARE, one_more_seed

DERIVED = "derived here: exact kernel flow"
SUMMARY = "a summary of the paper"
ONE_WORD = 1.5 / 8  # of the eight adjectives of a side one may go the other way, and no second
CHANCE = Band(0.4, 0.6)  # 300 documents: one standard error of a coin is .03
EDGE = 0.08  # about three of them

Runs = Mapping[tuple[str, str], Sequence[OrderRun]]
"""(task, architecture) -> one run per seed."""

ACCURACY: dict[tuple[str, str], tuple[float, Band | float]] = {
    ("order", "MLP ReLU"): (0.47, CHANCE),
    ("order", "SA"): (0.47, CHANCE),
    ("order", "linear CNN"): (0.59, 0.08),
    ("order", "ReLU CNN"): (1.0, Band(low=0.99)),
    ("order", "MV"): (1.0, Band(low=0.99)),
    ("XOR", "MLP ReLU"): (0.53, CHANCE),
    ("XOR", "SA"): (0.53, CHANCE),
    ("XOR", "linear CNN"): (0.55, CHANCE),
    ("XOR", "ReLU CNN"): (1.0, Band(low=0.99)),
    ("XOR", "MV"): (1.0, Band(low=0.99)),
    ("negation", "MLP ReLU"): (0.885, 0.05),
    ("negation", "SA"): (0.885, 0.05),
    ("negation", "linear CNN"): (0.835, 0.05),
    ("negation", "ReLU CNN"): (0.970, 0.03),
    ("negation", "MV"): (0.917, 0.05),
}
"""(task, architecture) -> the accuracy of one seed, and a band, or how far that seed may lie from ours at least."""
NOT_BAD = {
    "MLP ReLU": (0.0, 0.0),
    "SA": (0.0, 0.0),
    "linear CNN": (0.0, 0.0),
    "ReLU CNN": (0.5, 0.75),
    "MV": (1.0, 1.0),
}


def flow_verdicts(runs: Runs) -> list[Verdict]:
    verdicts = []
    for (task, name), (value, accept) in ACCURACY.items():
        found = runs[task, name]
        seen = [run.accuracy[-1] for run in found]
        claim = Claim(
            f"{'S4' if task == 'negation' else 'S3'}.{task}, {name}",
            f"{task}: test accuracy of {name} under kernel flow, at the end",
            DERIVED, value, "independent run",
            accept if isinstance(accept, Band) else one_more_seed(value, seen, accept, SHARE),
        )  # fmt: skip
        early = ", ".join(f"{run.accuracy[0]:.3f}" for run in found)
        baseline = None if task == "negation" else 0.5
        verdicts.append(judged(claim, seen, baseline=baseline, note=f"at time 20: {early}"))
    for name, values in NOT_BAD.items():
        found = runs["negation", name]
        for moment, (when, value) in enumerate(zip(("time 20", "the end"), values)):
            shares = [float(run.grids[moment].right[3]) for run in found]
            claim = Claim(
                f"S4.not bad, {name}, {when}", f'{name}: share of "not" + negative adjective scored positive, {when}',
                DERIVED, value, "independent run", one_more_seed(value, shares, ONE_WORD, SHARE),
            )  # fmt: skip
            additive = sum(float(run.grids[moment].additive_right[3]) for run in found) / len(found)
            verdicts.append(judged(claim, shares, baseline=additive, note=_four(found, moment)))
    verdicts.append(_back_off(runs))
    return verdicts


def edge_verdicts(runs: Mapping[int, Sequence[OrderRun]]) -> list[Verdict]:
    """Where a linear CNN's order accuracy comes from: the pair at one of the edges it sees, of a text of 6 words."""
    verdicts = []
    for edges, sentence in (
        (2, "no mark and no blank, both edges seen"),
        (1, "a mark before the text, its end alone seen"),
        (0, "a blank on either side, no edge seen"),
    ):
        at_an_edge = edges / (6 - 1)
        foreseen = at_an_edge + (1 - at_an_edge) / 2
        claim = Claim(
            f"S3.edges {edges}", "order: linear CNN reads order at a text's edges alone, 1 there and 1/2 elsewhere: "
            f"{sentence}", "derived here: windows of 2, linear in each word", foreseen, "independent run",
            Band(foreseen - EDGE, foreseen + EDGE),
        )  # fmt: skip
        verdicts.append(judged(claim, [run.accuracy[-1] for run in runs[edges]], baseline=0.5))
    return verdicts


def length_note(runs: Sequence[OrderRun], length: int) -> str:
    """What the negation table would be for longer texts: that of the independent run is not stated."""
    accuracies = " ".join(f"{run.accuracy[-1]:.3f}" for run in runs)
    return (
        "S4 stands on texts of four words, where the accuracies come out as those of the independent run, which states "
        f"no length; with {length} words, ReLU CNN: test accuracy {accuracies}; at time 20 {_four(runs, 0)}; "
        f"at the end {_four(runs, 1)}"
    )


def _four(found: Sequence[OrderRun], moment: int) -> str:
    """Mean share right per group, over seeds."""
    means = torch.stack([run.grids[moment].right for run in found]).mean(0)
    listed = ", ".join(f"{share:.2f}" for share in means.tolist())
    return f"means of adj+, not adj+, adj-, not adj-: {listed}; baseline adds s(not) to s(adj)"


def _back_off(runs: Runs) -> Verdict:
    claim = Claim(
        "S4.back-off", "MV loses to the ReLU CNN on held-out text, for want of single-word features: MV minus ReLU CNN",
        DERIVED, 0.917 - 0.970, "independent run", Band(high=0.0), every_seed=True,
    )  # fmt: skip
    gaps = [mv.accuracy[-1] - cnn.accuracy[-1] for mv, cnn in zip(runs["negation", "MV"], runs["negation", "ReLU CNN"])]
    return judged(claim, gaps)


def network_verdicts(runs: Runs) -> list[Verdict]:
    """The summary's claims as they stand, on trained networks of width 64 (MV: 24)."""
    verdicts = []
    for name, says, accept in (
        ("SA", "fails on", Band(high=0.6)), ("ReLU CNN", "fails on", Band(high=0.6)),
        ("linear CNN", "fails on", Band(high=0.6)),
        ("MV", "captures", Band(low=0.9)), ("MV diagonal", "captures", Band(low=0.9)),
    ):  # fmt: skip
        for task in ("order", "XOR") if ("order", name) in runs else ():
            claim = Claim(
                f"7.{name}, {task}", f"{name} {says} n-grams: test accuracy on {task}, trained networks",
                "abstract", None, "paper", accept,
            )  # fmt: skip
            verdicts.append(judged(claim, [run.accuracy[-1] for run in runs[task, name]], baseline=0.5))
    for name, says, accept in (
        ("MV", "negates", Band(low=0.9)), ("MV diagonal", "negates", Band(low=0.9)),
        ("ReLU CNN", "fails to negate", Band(high=0.5)), ("linear CNN", "fails to negate", Band(high=0.5)),
        ("SA", "fails to negate", Band(high=0.5)),
    ):  # fmt: skip
        claim = Claim(
            f"8.{name}", f'{name} {says} negative adjectives: share of "not" + negative adjective scored positive',
            SUMMARY, None, "second-hand", accept, every_seed=True,  # of shares from 0 to 1 the median decides nothing
        )  # fmt: skip
        if ("negation", name) not in runs:
            continue
        found = runs["negation", name]
        additive = sum(float(run.grids[-1].additive_right[3]) for run in found) / len(found)
        tests = ", ".join(f"{run.accuracy[-1]:.3f}" for run in found)
        verdicts.append(
            judged(claim, [float(run.grids[-1].right[3]) for run in found], baseline=additive,
                   note=f"{_four(found, -1)}; test accuracy {tests}")
        )  # fmt: skip
    return verdicts


def beside(runs: Runs) -> list[str]:
    """Architectures that no claim names."""
    notes = []
    for (task, name), found in runs.items():
        if name in ("L-RNN", "gated L-RNN", "SA+MLP ReLU", "MLP ReLU"):
            listed = " ".join(f"{run.accuracy[-1]:.3f}" for run in found)
            grid = f"; {_four(found, -1)}" if task == "negation" else ""
            notes.append(f"trained networks, {task}, {name}: test accuracy {listed}{grid}")
    return notes
