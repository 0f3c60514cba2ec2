"""The verdict on a run: one sentence, and each part of it with the recorded numbers and the rule it rests on.

Nothing is measured here. Every rule is a threshold on recorded values and is printed beside the value it judged; a part
whose values were not recorded is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xarray as xr

from tangentlens.report.blocks import CARRIED, Carried, carried_families
from tangentlens.report.dynamics import STILL, rich_or_lazy, signs_of_richness
from tangentlens.report.facts import recorded_steps
from tangentlens.report.labelled import errors, first_step, last, reference, steps_of, variable
from tangentlens.report.sections.ansatz import correlation_rows
from tangentlens.report.words import is_number, listed, number, percent

LEARNED = 0.95  # accuracy from which a set counts as fitted or generalised to
ALIGNED = 0.25  # share of the way from the null to full agreement from which weights count as aligned
DELAY = 2.0  # test accuracy this many times later than train accuracy is grokking


@dataclass(frozen=True)
class Evidence:
    """One part of the verdict: what it is about, the words it adds to the sentence, and what they rest on."""

    about: str
    words: str
    rests_on: str
    rule: str = ""
    holds: bool = True

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
    readers: tuple[Callable[[xr.DataTree], Evidence | None], ...] = (_dynamics, _learning, _features, _weights, _tokens)
    evidence = tuple(part for reader in readers if (part := reader(tree)))
    cautions = tuple(part for part in (_one_state(tree), _failures(tree), _unfinished(tree)) if part)
    words = [part.words for part in evidence if part.words]
    sentence = "; ".join(words) if words else "too little was recorded for a verdict"
    return Verdict(sentence[0].upper() + sentence[1:] + ".", evidence + cautions)


def _dynamics(tree: xr.DataTree) -> Evidence | None:
    signs = signs_of_richness(tree)
    if not signs:
        return None
    numbers, rules = "; ".join(sign.numbers for sign in signs), "; ".join(sign.rule for sign in signs if sign.rule)
    return Evidence("Dynamics", rich_or_lazy(signs), numbers, rules)


def _learning(tree: xr.DataTree) -> Evidence | None:
    train, test = variable(tree, "training/train_accuracy"), variable(tree, "training/test_accuracy")
    if test is None:
        return _learning_from_probe(tree)
    if _is_one_state(tree):
        words = f"right on {percent(last(test))} of the test set"
        return Evidence("Learning", words, f"{words} at step {steps_of(test)[-1]:,}")
    fits, general = first_step(train, LEARNED), first_step(test, LEARNED)
    numbers = f"test accuracy {percent(last(test))} at the last step"
    if train is not None:
        numbers = f"train accuracy {percent(last(train))}, {numbers}"
    rule = f"a step counts from where the accuracy stays at or above {percent(LEARNED)}"
    if general is None:
        words = _not_general(fits, train is not None, tree.attrs.get("state") == "recording")
    elif fits is not None and general > max(DELAY * fits, fits + _spacing(test, fits)):
        words = f"grokked, fitting by step {fits:,} and generalising at step {general:,}"
        rule += f"; grokking is generalising more than {DELAY:g} times later than fitting"
    else:
        words = f"generalised at step {general:,}"
    return Evidence("Learning", words, numbers, rule, holds=general is not None)


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
    accuracy, chance = variable(tree, "training/probe_accuracy"), reference(tree, "training/probe_accuracy", "chance")
    if is_number(last(accuracy)):
        beside = f" (largest class {percent(last(chance))})" if is_number(last(chance)) else ""
        words = f"right on {percent(last(accuracy))} of the probe"
        return Evidence("Learning", words, f"{words} at the last step{beside}; no test accuracy was recorded")
    for name in ("test_loss", "probe_loss", "loss"):
        loss = variable(tree, f"training/{name}")
        if loss is not None and loss.ndim == 1 and loss.sizes["step"] > 1:
            words = f"{name.replace('_', ' ')} went from {number(loss.values[0])} to {number(loss.values[-1])}"
            return Evidence(
                "Learning", words, f"{words} between steps {steps_of(loss)[0]:,} and {steps_of(loss)[-1]:,}"
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
    return Evidence("Features", ", ".join(parts), "; ".join(map(_numbers, found)), rule, holds=bool(learned or given))


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
    layer, value, null, high, adjusted = max((_beyond_null(row) for row in rows), key=lambda row: row[-1])
    above = value > (high if is_number(high) else null) and adjusted >= ALIGNED
    where = f"{'most ' if len(rows) > 1 else ''}in layer {layer}"
    words = (
        f"weights align with the sensitivity, {where}" if above else "no layer's weights align clearly beyond chance"
    )
    numbers = f"{layer}: centred correlation {number(value)}, null {number(null)}"
    numbers += f" (up to {number(high)})" if is_number(high) else ""
    rule = f"aligned means above the null's band and at least {ALIGNED:g} once adjusted: (value − null) / (1 − null)"
    return Evidence("Weights", words, f"{numbers}, adjusted {number(adjusted)}", rule, holds=above)


def _beyond_null(row: tuple[Any, ...]) -> tuple[str, float, float, float, float]:
    """Layer, value, null, top of its band, and the adjusted value, which follows from these where not recorded."""
    layer, _, value, null, _, high, adjusted = row
    if not is_number(adjusted):
        adjusted = (value - null) / (1 - null) if null < 1 else 0.0
    return layer, value, null, high, adjusted


def _tokens(tree: xr.DataTree) -> Evidence | None:
    value = last(variable(tree, "tokens/sign_accuracy"))
    chance = last(reference(tree, "tokens/sign_accuracy", "chance"))
    if not is_number(value):
        return None
    drift, bias = last(variable(tree, "tokens/kernel_drift")), last(variable(tree, "tokens/asymmetry"))
    beyond = value > (chance if is_number(chance) else 0.5)
    words = f"token scores {'follow' if beyond else 'do not follow'} co-occurrence"
    beside = f" (chance {percent(chance)})" if is_number(chance) else ""
    numbers = [f"{percent(value)} of polar tokens have the right sign{beside}"]
    if is_number(bias):
        numbers.append(f"asymmetry {number(bias)}")
    if is_number(drift):
        kept = "fixed-kernel theory does not apply" if drift >= STILL else "the kernel kept its direction"
        numbers.append(f"kernel drift {number(drift)}: {kept}")
    rule = "scores follow where signs are right more often than chance"
    rule += f"; a kernel keeps its direction below a drift of {STILL:g}" if is_number(drift) else ""
    return Evidence("Tokens", words, "; ".join(numbers), rule, holds=beyond)


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
