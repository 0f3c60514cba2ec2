"""The verdict on a run: one sentence, and each part of it with the recorded numbers and the rule it rests on.

Nothing is measured here. Every rule is a threshold on recorded values and is printed beside the value it judged; a part
whose values were not recorded is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import xarray as xr

from tangentlens.report.blocks import CARRIED, Carried, carried_families
from tangentlens.report.dynamics import Sign, decided_at, rich_or_lazy, signs_of_richness
from tangentlens.report.labelled import (
    attribute,
    errors,
    first_step,
    last,
    recorded_steps,
    reference,
    steps_of,
    variable,
)
from tangentlens.report.scalars import accuracy, held_out, is_held_out, kind, shown, trained_on
from tangentlens.report.sections.ansatz import correlation_rows
from tangentlens.report.sections.tokens_theory import applies
from tangentlens.report.words import is_number, listed, number, percent

LEARNED = 0.95  # accuracy from which a set counts as fitted or generalised to
ALIGNED = 0.25  # share of the way from the null to full agreement from which weights count as aligned
BEYOND = 0.05  # how often a layer at chance lies above the recorded band, and how often any of them may
DELAY = 2.0  # test accuracy this many times later than train accuracy is grokking


@dataclass(frozen=True)
class Evidence:
    """One part of the verdict: what it is about, the words it adds to the sentence, and what they rest on."""

    about: str
    words: str
    rests_on: str
    rule: str = ""
    holds: bool = True
    measured: int | None = None
    """The last step it rests on; where the record goes on beyond, words and evidence say so."""

    def __str__(self) -> str:
        return f"{self.rests_on} [{self.rule}]" if self.rule else self.rests_on


@dataclass(frozen=True)
class Verdict:
    sentence: str
    evidence: tuple[Evidence, ...]

    def __str__(self) -> str:
        lines = textwrap.wrap(self.sentence, 118)
        for part in self.evidence:
            lines += textwrap.wrap(f"{part.about:<10}{part}", 118, subsequent_indent=" " * 10)
        return "\n".join(lines)


def verdict(tree: xr.DataTree) -> Verdict:
    """What a record says its network learned, when and where."""
    readers: tuple[Callable[[xr.DataTree], Evidence | None], ...] = (
        _diverged, _dynamics, _learning, _features, _weights, _tokens,
    )  # fmt: skip
    evidence = tuple(_dated(part, tree) for reader in readers if (part := reader(tree)))
    cautions = tuple(part for part in (_one_state(tree), _failures(tree), _unfinished(tree)) if part)
    words = [part.words for part in evidence if part.words]
    sentence = "; ".join(words) if words else "too little was recorded for a verdict"
    return Verdict(sentence[0].upper() + sentence[1:] + ".", evidence + cautions)


def _dated(part: Evidence, tree: xr.DataTree) -> Evidence:
    """A part that rests on an earlier step than the last recorded one says at which: it may not hold any more."""
    steps = recorded_steps(tree)
    if part.measured is None or not steps or part.measured >= steps[-1]:
        return part
    words = f"{part.words} (as of step {part.measured:,})" if part.words else ""
    beside = f"{part.rests_on}; last measured at step {part.measured:,}, while the record goes to step {steps[-1]:,}"
    return replace(part, words=words, rests_on=beside)


def _diverged(tree: xr.DataTree) -> Evidence | None:
    """Losses and weights that are not finite any more: what was measured before says nothing about the end."""
    listed_there = attribute(tree, "not_finite", [])
    names = [str(name) for name in listed_there] if isinstance(listed_there, list) else []
    # a held-out loss that is nan may only say that it was not evaluated at this step
    lost = [name for name in names if name == "parameter_norm" or (kind(name) == "loss" and not is_held_out(name))]
    if not lost or not recorded_steps(tree):
        return None
    named = listed("norm of the parameters" if name == "parameter_norm" else shown(name) for name in lost)
    rests_on = f"{named} not finite at step {recorded_steps(tree)[-1]:,}, the last recorded"
    rule = "a run has diverged when a loss or its weights are not finite at its last recorded step"
    return Evidence("Diverged", "diverged", rests_on, rule, holds=False)


def _dynamics(tree: xr.DataTree) -> Evidence | None:
    signs = signs_of_richness(tree)
    if not signs:
        return None
    numbers, rules = "; ".join(map(_numbers_of, signs)), "; ".join(sign.rule for sign in signs if sign.rule)
    return Evidence("Dynamics", rich_or_lazy(signs), numbers, rules, measured=decided_at(signs))


def _numbers_of(sign: Sign) -> str:
    return sign.numbers if sign.step is None else f"at step {sign.step:,} {sign.numbers}"


def _learning(tree: xr.DataTree) -> Evidence | None:
    seen, unseen = trained_on(tree, "accuracy"), held_out(tree, "accuracy")
    if unseen is None:
        return _learning_from_probe(tree)
    train, test = None if seen is None else accuracy(tree, seen), accuracy(tree, unseen)
    assert test is not None  # it has a name
    end = steps_of(test)[-1]
    if _is_one_state(tree):
        words = f"right on {percent(last(test))} of the test set"
        return Evidence("Learning", words, f"{words} ({shown(unseen)}) at step {end:,}")
    fits, general = first_step(train, LEARNED), first_step(test, LEARNED)
    numbers = f"{shown(unseen)} {percent(last(test))} at step {end:,}"
    if seen is not None and train is not None:
        numbers = f"{shown(seen)} {percent(last(train))}, {numbers}"
    rule = f"a step counts from where the accuracy stays at or above {percent(LEARNED)}"
    if general is None:
        words = _not_general(fits, train is not None, tree.attrs.get("state") == "recording")
    elif fits is not None and general > max(DELAY * fits, fits + _spacing(test, fits)):
        words = f"grokked, fitting by step {fits:,} and generalising at step {general:,}"
        rule += f"; grokking is generalising more than {DELAY:g} times later than fitting"
    else:
        words = f"generalised at step {general:,}"
    return Evidence("Learning", words, numbers, rule, holds=general is not None, measured=end)


def _not_general(fits: int | None, seen_train: bool, going_on: bool) -> str:
    """A run that is still going has not failed to generalise: it has not done so yet."""
    if fits is not None:
        return f"fitted by step {fits:,}, " + (
            "not generalising so far" if going_on else "and never generalised: memorised"
        )
    if not seen_train:
        return f"{'not yet at' if going_on else 'never reached'} {percent(LEARNED)} on test"
    return "not fitted yet" if going_on else "not fitted"


def _spacing(values: xr.DataArray, step: int) -> int:
    """How far apart recorded steps lie there: a delay shorter than that was not seen."""
    later = [other for other in steps_of(values) if other > step]
    return later[0] - step if later else 0


def _learning_from_probe(tree: xr.DataTree) -> Evidence | None:
    right, chance = variable(tree, "training/probe_accuracy"), reference(tree, "training/probe_accuracy", "chance")
    if right is not None:
        words, level = f"right on {percent(last(right))} of the probe", last(chance)
        beside = f" (its largest class is {percent(level)})" if is_number(level) else ""
        if is_number(level) and last(right) <= level:
            words, beside = f"{words}, no better than its largest class, {percent(level)}", ""
        end = steps_of(right)[-1]
        numbers = f"{words} at step {end:,}{beside}; no accuracy on held-out examples was recorded"
        return Evidence("Learning", words, numbers, measured=end)
    for name in filter(None, (held_out(tree, "loss"), "probe_loss", trained_on(tree, "loss"))):
        loss = variable(tree, f"training/{name}")
        if loss is not None and loss.ndim == 1 and loss.sizes["step"] > 1:
            words = f"{name.replace('_', ' ')} went from {number(loss.values[0])} to {number(loss.values[-1])}"
            return Evidence(
                "Learning",
                words,
                f"{words} between steps {steps_of(loss)[0]:,} and {steps_of(loss)[-1]:,}",
                measured=steps_of(loss)[-1],
            )
    return None


def _features(tree: xr.DataTree) -> Evidence | None:
    found = carried_families(tree)
    if not found:
        return None
    given = [one for one in found if one.from_the_start and one.since is not None]
    learned = [one for one in found if one.since is not None and not one.from_the_start]
    missing = [one for one in found if one.since is None]
    parts = _carried_now(given) if _is_one_state(tree) else _since_when(learned, given)
    if missing and not parts:
        parts.append(f"none of the named features ({listed(one.family for one in missing)}) is carried")
    elif missing:
        parts.append(f"{listed(one.family for one in missing)} {'is' if len(missing) == 1 else 'are'} not carried")
    rule = f"a family is carried by a block that holds at least {percent(CARRIED)} of what chance leaves over"
    return Evidence(
        "Features",
        ", ".join(parts),
        "; ".join(map(_numbers, found)),
        rule,
        holds=bool(learned or given),
        measured=steps_of(found[0].excess)[-1],
    )


def _carried_now(given: list[Carried]) -> list[str]:
    return [f"the tangent kernel carries features of {listed(one.family for one in given)}"] if given else []


def _since_when(learned: list[Carried], given: list[Carried]) -> list[str]:
    parts = []
    for step in sorted({one.since for one in learned if one.since is not None}):
        parts.append(
            f"features of {listed(one.family for one in learned if one.since == step)} appear at step {step:,}"
        )
    if given:
        subject = "those" if parts else "features"
        start = steps_of(given[0].excess)[0]
        when = "before training" if start == 0 else f"already at step {start:,}, the first recorded"
        parts.append(f"{subject} of {listed(one.family for one in given)} were there {when}")
    return parts


def _numbers(one: Carried) -> str:
    held, chance = percent(one.overlap.values[-1]), percent(one.chance.values[-1])
    best = "" if one.since is not None else "at best "
    return f"{one.family} {best}{held} in block {int(one.block.values[-1]) + 1} (chance {chance})"


def _weights(tree: xr.DataTree) -> Evidence | None:
    rows = [row for row in correlation_rows(tree) if row[1] == "centred" and is_number(row[2]) and is_number(row[3])]
    if not rows:
        return None
    values = variable(tree, "ansatz/centred")
    measured = None if values is None else steps_of(values)[-1]
    banded = [_beyond_null(row) for row in rows if is_number(row[5])]
    if not banded:
        missing = "no random bases were drawn; the analytic null can lie far below chance, so nothing is said"
        return Evidence("Weights", "", missing, holds=False, measured=measured)
    # the best of many layers lies above its own band by chance more often than one layer does
    widened = _quantile(1 - BEYOND / len(banded)) / _quantile(1 - BEYOND)
    aligned = [row for row in banded if row[1] > row[2] + widened * max(0.0, row[3] - row[2]) and row[4] >= ALIGNED]
    layer, value, null, high, adjusted = max(aligned or banded, key=lambda row: row[4])
    where = f"{'most ' if len(rows) > 1 else ''}in layer {layer}"
    words = (
        f"weights align with the sensitivity, {where}" if aligned else "no layer's weights align clearly beyond chance"
    )
    numbers = f"{layer}: centred correlation {number(value)}, null {number(null)} (up to {number(high)})"
    rule = f"aligned means above the null's band and at least {ALIGNED:g} once adjusted: (value − null) / (1 − null)"
    if len(banded) > 1:
        rule += f"; the band counts {number(widened)} times as wide, for {len(banded)} layers were looked at"
    if len(banded) < len(rows):
        rule += f"; {len(rows) - len(banded)} layers have no sampled band and are not judged"
    numbers = f"{numbers}, adjusted {number(adjusted)}"
    return Evidence("Weights", words, numbers, rule, holds=bool(aligned), measured=measured)


def _quantile(probability: float) -> float:
    return NormalDist().inv_cdf(probability)


def _beyond_null(row: tuple[Any, ...]) -> tuple[str, float, float, float, float]:
    """Layer, value, null, top of its band, and the adjusted value, which follows from these where not recorded."""
    layer, _, value, null, _, high, adjusted = row
    if not is_number(adjusted):
        adjusted = (value - null) / (1 - null) if null < 1 else 0.0
    return layer, value, null, high, adjusted


def _tokens(tree: xr.DataTree) -> Evidence | None:
    values = variable(tree, "tokens/sign_accuracy")
    value = last(values)
    chance = last(reference(tree, "tokens/sign_accuracy", "chance"))
    if values is None or not is_number(value):
        return None
    bias = last(variable(tree, "tokens/asymmetry"))
    beyond = value > (chance if is_number(chance) else 0.5)
    words = f"token scores {'follow' if beyond else 'do not follow'} co-occurrence"
    beside = f" (chance {percent(chance)})" if is_number(chance) else ""
    numbers = [f"{percent(value)} of polar tokens have the right sign{beside}"]
    if is_number(bias):
        numbers.append(f"asymmetry {number(bias)}")
    if theory := applies(tree):
        numbers.append(theory[0].lower() + theory.removesuffix(".")[1:])
    rule = "scores follow where signs are right beyond chance"
    return Evidence("Tokens", words, "; ".join(numbers), rule, holds=beyond, measured=steps_of(values)[-1])


def _is_one_state(tree: xr.DataTree) -> bool:
    return len(recorded_steps(tree)) == 1


def _one_state(tree: xr.DataTree) -> Evidence | None:
    """What changed, and whether it was rich or lazy, takes two states to say."""
    if not _is_one_state(tree):
        return None
    words = "one state was recorded, so nothing is said about training: it takes a state before and one after"
    return Evidence("Caution", "", f"{words}; follow checkpoints, or record the training", holds=False)


def _failures(tree: xr.DataTree) -> Evidence | None:
    failed = errors(tree)
    if not failed:
        return None
    latest = failed[-1]
    names = listed(dict.fromkeys(str(entry.get("measure")) for entry in failed))
    when = f"the last at step {number(latest.get('step'))}: {latest.get('message')}"
    return Evidence("Caution", "", f"{len(failed)} measurements failed ({names}); {when}", holds=False)


def _unfinished(tree: xr.DataTree) -> Evidence | None:
    state = str(tree.attrs.get("state", ""))
    said = {
        "failed": "the run ended with an error; this is what was recorded until then",
        "recording": "the run is still recording, or was killed: the verdict is on what is there so far",
    }
    return Evidence("Caution", "", said[state], holds=False) if state in said else None
