"""Every command's settings as a dataclass: the flags, the help and what a run stores of itself, in one place.

Nothing here imports a network library, so that ``--help`` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

Target = Annotated[str, arg(metavar="FILE.py:FUNCTION")]
Run = Annotated[str, arg(metavar="RUN")]  # a folder, or s3://bucket/prefix
# the flag is called --record: torchrun takes a --run behind its own flags for an abbreviation of one of them
RunOrDefault = Annotated[str | None, arg(metavar="RUN")]
Device = Annotated[str | None, arg(metavar="DEVICE")]


@dataclass(frozen=True, kw_only=True)
class Command:
    debug: bool = False
    """Show the whole traceback of an error instead of one message."""


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Train a small network, record it, and show what it learned: a picture in minutes on a laptop."""

    record: Run = "runs/demo"
    """Where the recorded run is written."""
    steps: Annotated[int | None, arg(metavar="STEPS")] = None
    """Train for this many steps instead of the demo's own number."""


@dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Print the plan: how each parameter is served, what it costs, and whether it fits."""

    target: Positional[Target]
    """A function without arguments that returns (model, inputs) or (model, (inputs, targets))."""
    full: bool = False
    """The plan of the whole kernel between all outputs, instead of its mean over outputs."""
    modes: Annotated[int | None, arg(metavar="K")] = None
    """The plan of the K largest modes of the whole kernel, and the route to them."""
    parameters: Annotated[tuple[str, ...], arg(metavar="GLOB")] = ()
    """Only parameters whose name matches one of these globs."""
    dtype: Literal["float32", "float64"] | None = None
    """Measure in this dtype instead of the model's own."""
    device: Device = None
    """Move model and probe there first."""


@dataclass(frozen=True, kw_only=True)
class Measure(Command):
    """Measure one model on its probe and write a record of one step and its report."""

    target: Positional[Target]
    """A function without arguments that returns (model, inputs) or (model, (inputs, targets))."""
    record: RunOrDefault = None
    """Where the record is written; the default is runs/FUNCTION."""
    device: Device = None
    """Move model and probe there first."""


@dataclass(frozen=True, kw_only=True)
class Follow(Command):
    """Measure a series of checkpoints, in the order of their steps, and write them as one run."""

    target: Positional[Target]
    """A function without arguments that returns (model, inputs) or (model, (inputs, targets))."""
    checkpoints: Positional[Annotated[tuple[Path, ...], arg(metavar="CHECKPOINT")]]
    """Files, folders or quoted globs of checkpoints; only tensors are ever loaded from them."""
    record: RunOrDefault = None
    """Where the record is written; the default is runs/FUNCTION."""
    step_pattern: Annotated[str | None, arg(metavar="REGEX")] = None
    """A regular expression whose first group is the step in a checkpoint's path, when its name does not show it."""
    device: Device = None
    """Move model and probe there first."""


@dataclass(frozen=True, kw_only=True)
class Reproduce(Command):
    """Run the experiments of a paper and print its claims, each with the number seen here."""

    paper: Positional[Annotated[str, arg(metavar="PAPER|all")]]
    """lin2025, nam2024, beaglehole2024, sun2023 or all."""
    quick: bool = False
    """A short version: fewer steps, smaller settings, in some studies fewer seeds."""
    seeds: Annotated[int | None, arg(metavar="K")] = None
    """Repeat over this many seeds; the default is each study's own."""
    json: Annotated[Path | None, arg(metavar="FILE")] = None
    """Also write the table of claims to this file as a list of objects."""
    pages: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Also write a page of Markdown per paper into this folder; what people wrote below its table stays."""
    data: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """The folder of datasets; the default is TANGENTLENS_DATA."""
    record: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Keep the study's data and report in this folder."""
    device: Annotated[str, arg(metavar="DEVICE")] = "cpu"
    """Where the networks are trained and measured."""


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write one self-contained HTML page about a run, or about several side by side."""

    runs: Positional[Annotated[tuple[str, ...], arg(metavar="RUN")]]
    """Recorded runs."""
    out: Annotated[Path | None, arg(metavar="FILE")] = None
    """Where the page is written; the default is report.html inside the first run."""


@dataclass(frozen=True, kw_only=True)
class Watch(Command):
    """Show a run's page live on this machine while training writes to it."""

    run: Positional[Run]
    """A recorded run, which may still be growing."""
    port: int = 0
    """The port on 127.0.0.1; 0 takes a free one."""
    text: bool = False
    """Print to the terminal instead of serving a page."""


@dataclass(frozen=True, kw_only=True)
class Resume(Command):
    """Go on with a run that was started by measure, follow or demo and did not finish."""

    run: Positional[Run]
    """The unfinished run."""


@dataclass(frozen=True, kw_only=True)
class Export(Command):
    """Write a run's numbers as CSV, Parquet or netCDF."""

    run: Positional[Run]
    """A recorded run."""
    out: Annotated[Path | None, arg(metavar="PATH")] = None
    """Where to write; the default lies beside the run."""
    format: Literal["csv", "parquet", "netcdf"] = "csv"
    """The kind of file."""


@dataclass(frozen=True, kw_only=True)
class Doctor(Command):
    """Print what this installation can do: versions, devices, free memory, optional packages."""


@dataclass(frozen=True, kw_only=True)
class Bench(Command):
    """Time tangentlens beside PyTorch's own recipe on this machine: time, peak memory, error, counted-flop floor."""

    workloads: Positional[Annotated[tuple[str, ...], arg(metavar="WORKLOAD")]] = ()
    """mlp, cnn, transformer or modular_addition; the default is all of them."""
    examples: Annotated[int | None, arg(metavar="N")] = None
    """Measure on this many examples instead of each workload's own number."""
    repeats: Annotated[int | None, arg(metavar="K")] = None
    """Run each method this many times instead of five."""


COMMANDS: dict[str, type[Command]] = {
    "demo": Demo,
    "check": Check,
    "measure": Measure,
    "follow": Follow,
    "reproduce": Reproduce,
    "report": Report,
    "watch": Watch,
    "resume": Resume,
    "export": Export,
    "doctor": Doctor,
    "bench": Bench,
}
"""Command name -> its settings; the function that runs it is ``run`` in tangentlens.cli.<name>."""
