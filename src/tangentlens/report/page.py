"""One self-contained HTML file: the words, the figures as data and the script that draws them; no network at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

import xarray as xr

from tangentlens.report.comparison import comparison
from tangentlens.report.facts import facts, rung_table
from tangentlens.report.markup import contents_html, facts_html, figure_id, section_html, verdict_html
from tangentlens.report.opening import Run, open_runs
from tangentlens.report.sections import sections_of
from tangentlens.report.verdict import verdict
from tangentlens.report.words import listed

# the page may run what is written in it and nothing else: no address, not even its own, can be asked for anything
STATIC_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "form-action 'none'; base-uri 'none'"
)
LIVE_POLICY = f"{STATIC_POLICY}; connect-src 'self'"


@dataclass(frozen=True)
class Parts:
    """What a page shows: its title, the words as HTML, and each figure as plotly's JSON by the id of its place."""

    title: str
    words: str
    figures: dict[str, str]


def page_parts(runs: Sequence[Run]) -> Parts:
    """Words and figures of one run, or of several side by side."""
    trees = {run.name: run.tree for run in runs}
    shown = sections_of(trees)
    if len(trees) > 1 and (compared := comparison(trees)):
        shown.insert(0, compared)
    figures = {
        figure_id(section.name, panel.name, order): figure.to_json()
        for section in shown
        for panel in section.panels
        for order, figure in enumerate(panel.figures.values())
    }
    words = [
        _masthead(trees),
        verdict_html({name: verdict(tree) for name, tree in trees.items()}),
        facts_html(
            {name: facts(tree) for name, tree in trees.items()},
            {name: rung_table(tree) for name, tree in trees.items()},
        ),
        *map(section_html, shown),
    ]
    if not shown:
        words.append('<section class="instrument"><p class="question">Nothing has been recorded yet.</p></section>')
    return Parts(
        listed(trees), contents_html(shown) + f'<div class="column">{"".join(words)}{_colophon(trees)}</div>', figures
    )


def write_report(runs: Sequence[str | Path | xr.DataTree] | str | Path | xr.DataTree, path: str | Path) -> Path:
    """Write the report of one run, or of several side by side, as one HTML file; returns its path."""
    file = Path(path)
    parts = page_parts(open_runs(runs))
    text = html(parts, STATIC_POLICY, scripts=("page.js",))
    draft = file.with_name(f".{file.name}.writing")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)  # a browser that reloads meanwhile sees the old page or the new one
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"the page cannot be written to {file}: {reason}; name another place for it") from error
    return file


def html(parts: Parts, policy: str, *, scripts: Sequence[str]) -> str:
    """The whole document around the parts."""
    from plotly.offline import get_plotlyjs

    figures = ",".join(f"{json.dumps(name)}:{figure}" for name, figure in parts.figures.items())
    written = "".join(f"<script>{asset(script)}</script>" for script in scripts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(parts.title)} · tangentlens</title>'
        f'<link rel="icon" href="data:,"><style>{asset("page.css")}</style></head>'
        f'<body><main id="page">{parts.words}</main>'
        f'<script type="application/json" id="figures">{_inside_script("{" + figures + "}")}</script>'
        f"<script>{get_plotlyjs()}</script>{written}</body></html>\n"
    )


def asset(name: str) -> str:
    return (files("tangentlens.report") / "assets" / name).read_text(encoding="utf-8")


def _inside_script(data: str) -> str:
    """JSON that cannot end the element it stands in, whatever names a record holds."""
    return data.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def _masthead(trees: dict[str, xr.DataTree]) -> str:
    kind = "report" if len(trees) == 1 else f"{len(trees)} runs side by side"
    return (
        f'<header class="masthead"><p class="mark">tangentlens <span>{kind}</span></p><h1>{escape(listed(trees))}</h1>'
        f'<div class="controls"><label><input type="checkbox" id="linked" checked> move all figures together</label>'
        f'<button type="button" id="scheme" aria-label="Light or dark">light / dark</button></div></header>'
    )


def _colophon(trees: dict[str, xr.DataTree]) -> str:
    schemas = {str(tree.attrs.get("schema", "")) for tree in trees.values()} - {""}
    source = escape(listed(sorted(schemas)) or "labelled data")
    words = f"Written by tangentlens from {source}. Figures show recorded values only; the page holds all it shows."
    return f'<footer class="colophon"><p>{words}</p></footer>'
