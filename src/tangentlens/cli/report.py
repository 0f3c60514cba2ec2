"""``tangentlens report``: one self-contained HTML page."""

from __future__ import annotations

from tangentlens.cli.commands import Report
from tangentlens.cli.shown import beside
from tangentlens.errors import BadInput
from tangentlens.report import verdict, write_report
from tangentlens.report.opening import open_run


def run(settings: Report) -> int:
    """Write the page and print where it is and each run's verdict."""
    if not settings.runs:
        raise BadInput("a report is about at least one run, got none; give the folders that recorders wrote")
    trees = {run: open_run(run).tree for run in settings.runs}
    print(write_report(list(settings.runs), settings.out or beside(settings.runs[0])))
    for run, tree in trees.items():
        print(f"\n{run}\n{verdict(tree)}")
    return 0
