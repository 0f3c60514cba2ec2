"""What every command that made a run says at its end: where the run and its page are, and the verdict."""

from __future__ import annotations

from pathlib import Path

from tangentlens.record import errors, open_record
from tangentlens.report import verdict, write_report


def show(run: str, page: Path | None = None) -> None:
    """Write the run's page and print where it is, what failed, and what the run says."""
    tree = open_record(run)
    page = write_report([run], page or beside(run))
    print(f"record  {run}")
    print(f"report  {page}")
    failed = errors(tree)
    for failure in failed[:5]:
        print(f"not measured at step {failure['step']}: {failure['measure']}: {failure['message']}")
    if len(failed) > 5:
        print(f"and {len(failed) - 5} more, in the record's /errors")
    print(f"\n{verdict(tree)}")


def beside(run: str) -> Path:
    """Where a run's page is written: inside its folder, or here when the run is not on this machine."""
    return Path(f"{run.rstrip('/').rpartition('/')[2]}.html") if "://" in run else Path(run) / "report.html"
