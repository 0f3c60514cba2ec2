"""Somebody else's checkpoints: found, and put in order of step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from glob import glob
from pathlib import Path

from tangentlens.errors import BadInput

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
NOT_WEIGHTS = re.compile(r"optim|sched|scaler|rng_state|training_args|ema_only", re.IGNORECASE)


def checkpoints(paths: Iterable[Path], step_pattern: str | None = None) -> dict[int, Path]:
    """Step -> checkpoint file, in order of step; a folder stands for every checkpoint below it."""
    asked = list(paths)
    files = [file for path in asked for file in _files(path)]
    if not files:
        raise BadInput(
            f"no checkpoint among {', '.join(map(str, asked)) or 'nothing'}; "
            f"give files, folders or quoted globs of {', '.join(SUFFIXES)}"
        )
    by_step: dict[int, Path] = {}
    for position, file in enumerate(sorted(dict.fromkeys(files), key=natural)):
        step = step_of(file, step_pattern)
        step = position if step is None and len(files) == 1 else step
        if step is None:
            raise BadInput(f"no step can be read from {file}; give --step-pattern, a regular expression with one group")
        if step in by_step:
            raise BadInput(
                f"{by_step[step]} and {file} both read as step {step}; "
                "name one of them, or give --step-pattern, a regular expression with one group"
            )
        by_step[step] = file
    return dict(sorted(by_step.items()))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = (file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
        return [file for file in found if not NOT_WEIGHTS.search(file.name)]
    if path.is_file():
        return [path]
    matched = [Path(name) for name in glob(str(path), recursive=True)]
    if not matched:
        raise BadInput(f"no file, folder or glob match at {path}; give its path from {Path.cwd()}")
    return [file for match in matched for file in _files(match)]


def natural(path: Path) -> list[tuple[int, int, str]]:
    """A sort key by which step_9 comes before step_10.

    >>> sorted([Path("step_10.pt"), Path("step_9.pt")], key=natural)[0].name
    'step_9.pt'
    """
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]


def step_of(path: Path, pattern: str | None = None) -> int | None:
    """The step a checkpoint's name tells: after the word step, else its last number, else its folder's.

    >>> step_of(Path("epoch=3-step=1200.ckpt")), step_of(Path("checkpoint-500/model.safetensors"))
    (1200, 500)
    """
    if pattern is not None:
        match = _compiled(pattern).search(str(path))
        if match is None or not match.groups() or not (match.group(1) or "").isdigit():
            raise BadInput(f"--step-pattern {pattern!r} finds no number in {path}; its first group should be the step")
        return int(match.group(1))
    for name in (path.stem, path.parent.name):
        numbers = re.findall(r"steps?[=_-]?(\d+)", name, re.IGNORECASE) or re.findall(r"\d+", name)
        if numbers:
            return int(numbers[-1])
    return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise BadInput(
            f"--step-pattern is a regular expression with one group, got {pattern!r} ({error}); "
            r"as in 'epoch(\d+)'"
        ) from error
