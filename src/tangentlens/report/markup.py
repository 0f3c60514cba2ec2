"""Sections as HTML; every text that came from a record is escaped here and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from tangentlens.report.section import Panel, Section, Table
from tangentlens.report.verdict import Verdict
from tangentlens.report.words import number

LONG = 12  # rows from which a table is folded away


def verdict_html(verdicts: Mapping[str, Verdict]) -> str:
    """The sentence, large, and under it what it rests on; one block a run."""
    blocks = []
    for run, said in verdicts.items():
        name = f'<p class="run-name">{escape(run)}</p>' if len(verdicts) > 1 else ""
        lines = []
        for part in said.evidence:
            rule = f"<small>{escape(part.rule)}</small>" if part.rule else ""
            kind = "evidence" if part.holds else "evidence not"
            lines.append(_item(escape(part.about), f"{escape(part.rests_on)}{rule}", kind))
        sentence = f'<p class="sentence">{escape(said.sentence)}</p>'
        blocks.append(f'<div class="verdict-block">{name}{sentence}<dl>{"".join(lines)}</dl></div>')
    return f'<section id="verdict" class="verdict" aria-label="Verdict">{"".join(blocks)}</section>'


def _item(term: str, said: str, kind: str = "") -> str:
    return f'<div class="{kind}"><dt>{term}</dt><dd>{said}</dd></div>'


ALWAYS_DIFFER = ("recorded", "overhead")  # of any two runs, and no difference in what was run


def facts_html(runs: Mapping[str, Mapping[str, str]], rungs: Mapping[str, list[tuple[str, str]]]) -> str:
    """The runs' facts; of several runs a table in which what differs stands out."""
    if len(runs) == 1:
        (facts,) = runs.values()
        items = "".join(_item(escape(name), escape(value)) for name, value in facts.items())
        inner = f'<dl class="facts">{items}</dl>'
    else:
        inner = _compared_facts(runs)
    folded = []
    for run, rows in rungs.items():
        if rows:
            title = f"How each parameter was reached{f' · {run}' if len(runs) > 1 else ''}"
            folded.append(_folded(title, _rows_html(("parameter", "rung"), rows)))
    title = "The runs" if len(runs) > 1 else "The run"
    heading = f'<h2 id="facts-title">{title}</h2>'
    return f'<section id="facts" aria-labelledby="facts-title">{heading}{inner}{"".join(folded)}</section>'


def _compared_facts(runs: Mapping[str, Mapping[str, str]]) -> str:
    names = list(dict.fromkeys(name for facts in runs.values() for name in facts))
    rows = []
    for name in names:
        values = [facts.get(name, "–") for facts in runs.values()]
        mark = ' class="differs"' if len(set(values)) > 1 and name not in ALWAYS_DIFFER else ""
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        rows.append(f"<tr{mark}><th scope='row'>{escape(name)}</th>{cells}</tr>")
    head = f"<thead><tr><td></td>{_heads(runs)}</tr></thead>"
    return f'<div class="across"><table class="compared">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _heads(names: Iterable[str]) -> str:
    return "".join(f"<th scope='col'>{escape(name)}</th>" for name in names)


def contents_html(sections: Iterable[Section]) -> str:
    places = {"verdict": "Verdict", "facts": "The run"} | {section.name: section.title for section in sections}
    links = "".join(f'<li><a href="#{escape(name)}">{escape(title)}</a></li>' for name, title in places.items())
    return f'<nav class="contents" aria-label="Contents"><ol>{links}</ol></nav>'


def section_html(section: Section) -> str:
    """A section with its question, its panels, and what it would show had it been recorded."""
    name = escape(section.name)
    panels = "".join(_panel_html(section.name, panel) for panel in section.panels)
    absent = "".join(f'<p class="absent">{escape(text)}</p>' for text in section.absent)
    return (
        f'<section id="{name}" class="instrument" aria-labelledby="{name}-title">'
        f'<header><h2 id="{name}-title">{escape(section.title)}</h2>'
        f'<p class="question">{escape(section.question)}</p>{absent}</header>{panels}</section>'
    )


def figure_id(section: str, panel: str, order: int) -> str:
    return f"{section}-{panel}-{order}"


def _panel_html(section: str, panel: Panel) -> str:
    width = "one" if len(panel.figures) == 1 else "three" if len(panel.figures) % 3 == 0 else "two"
    left_out = [(figure.layout.meta or {}).get("left_out") for figure in panel.figures.values()]
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in dict.fromkeys([*left_out, *panel.notes]) if note)
    finding = "".join(f'<p class="finding">{escape(line)}</p>' for line in panel.finding.splitlines())
    reading = (
        _item("How to read it", escape(panel.reading))
        + _item("When it misleads", escape(panel.misleads))
        + _item("Null", escape(panel.null))
    )
    beside = "under wide" if len(panel.table.columns) > _narrow(panel.table) else "under"
    return (
        f'<article class="panel" id="{escape(section)}-{escape(panel.name)}">'
        f'<div class="drawn"><h3>{escape(panel.title)}</h3>{finding}'
        f'<div class="figures {width}">{_figures_html(section, panel)}</div>{_stepper_html(panel)}{notes}</div>'
        f'<div class="{beside}"><dl class="reading">{reading}</dl>{_table_html(panel.table)}</div></article>'
    )


def _figures_html(section: str, panel: Panel) -> str:
    several = len(panel.figures) > 1
    figures = []
    for order, (name, figure) in enumerate(panel.figures.items()):
        caption = f"<figcaption>{escape(name)}</figcaption>" if several else ""
        label = escape(f"{panel.title} {name}" if several else panel.title)
        place = (
            f'id="{escape(figure_id(section, panel.name, order))}" style="height:{int(figure.layout.height or 360)}px"'
        )
        figures.append(f'<figure>{caption}<div class="plot" {place} role="img" aria-label="{label}"></div></figure>')
    return "".join(figures)


def _stepper_html(panel: Panel) -> str:
    """The slider over steps, where a figure of the panel moves."""
    steps = sorted({int(frame.name) for figure in panel.figures.values() for frame in figure.frames})
    if len(steps) < 2:
        return ""
    last, label = len(steps) - 1, escape(f"Training step, {panel.title}")
    return (
        f'<div class="stepper" data-steps="{escape(json.dumps(steps))}">'
        f'<button type="button" class="play" aria-label="Play through the steps"></button>'
        f'<input type="range" min="0" max="{last}" step="1" value="{last}" aria-label="{label}">'
        f"<output>step {steps[-1]:,}</output></div>"
    )


def _narrow(table: Table) -> int:
    """How many columns fit beside the text; names of runs take the place of two."""
    return 4 if table.columns[:1] == ("run",) else 6


def _table_html(table: Table) -> str:
    if not table.rows:
        return ""
    body = _rows_html(table.columns, table.rows) + (f'<p class="note">{escape(table.note)}</p>' if table.note else "")
    if len(table.rows) <= LONG:
        return f'<div class="table">{body}</div>'
    return _folded(f"Table, {len(table.rows):,} rows", body)


def _folded(title: str, body: str) -> str:
    return f'<details class="table"><summary>{escape(title)}</summary>{body}</details>'


def _rows_html(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    names = list(map(str, columns))
    lines, run = [], None
    for row in rows:
        cells = list(row)
        if names[:1] == ["run"]:  # a run is named once, at the first of its rows
            run, cells[0] = cells[0], "" if cells[0] == run else cells[0]
        lines.append(f"<tr>{''.join(map(_cell, cells))}</tr>")
    head = f"<thead><tr>{_heads(names)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'


def _cell(value: Any) -> str:
    text = number(value)
    longest = max(map(len, text.split()), default=0)
    kind = "number" if not isinstance(value, str) or len(text) <= 16 else "words" if longest <= 24 else "name"
    return f'<td class="{kind}">{escape(text)}</td>'
