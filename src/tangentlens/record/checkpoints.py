"""Somebody else's checkpoints: found, put in order of step, and loaded without running any of their code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from glob import glob
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from tangentlens.errors import BadInput

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
PLACES = ("state_dict", "model_state_dict", "model_state", "model", "module", "network", "net", "weights", "params")
"""Keys under which training scripts keep the model's state."""
WRAPPERS = ("module.", "_orig_mod.", "model.", "net.", "network.")
"""Prefixes that DDP, torch.compile and Lightning put before every name."""
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


def state_in(file: Path) -> dict[str, Tensor]:
    """The model's state in a checkpoint, read as tensors only: nothing pickled is ever executed."""
    if file.suffix == ".safetensors":
        return _safetensors(file)
    try:
        kept = torch.load(file, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        if re.search(r"invalid load key|Unsupported operand|stack underflow|Ran out of input", str(error)):
            raise _unreadable(file, "not written by torch.save") from error
        # of torch's long message the name of the object is wanted, and not its advice to load it all the same
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        raise BadInput(
            f"{file} should hold tensors only, got Python objects{f' ({found[1]})' if found else ''}, which are not "
            "loaded because that could run their code; save it again with torch.save(model.state_dict(), ...)"
        ) from error
    except (RuntimeError, EOFError, OSError) as error:
        raise _unreadable(file, str(error).partition("\n")[0].partition(". ")[0]) from error
    return _state(kept, file)


def _safetensors(file: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, str(error).partition("\n")[0]) from error


def _unreadable(file: Path, found: str) -> BadInput:
    return BadInput(
        f"{file} should be a checkpoint, got a damaged or another kind of file ({found}); "
        "copy or save it again, or leave it out"
    )


def _state(kept: Any, file: Path) -> dict[str, Tensor]:
    if isinstance(kept, Mapping):
        for place in PLACES:
            if isinstance(kept.get(place), Mapping):
                return _state(kept[place], file)
        state = {str(name): value for name, value in kept.items() if isinstance(value, Tensor)}
        if state:
            return state
    found = f"the keys {', '.join(map(str, list(kept)[:8]))}" if isinstance(kept, Mapping) else type(kept).__name__
    raise BadInput(f"{file} should hold a state dict, bare or under one of {', '.join(PLACES)}; it holds {found}")


def load_into(model: nn.Module, file: Path) -> None:
    """Put a checkpoint's weights into the model; every parameter must be there, with its shape."""
    wanted = model.state_dict()
    state = _unwrapped(state_in(file), wanted)
    missing = [name for name in wanted if name not in state and not _tied(name, model, state)]
    foreign = [name for name in state if name not in wanted]
    if missing or foreign:
        raise BadInput(
            f"{file} is of another model: it lacks {_some(missing)} and has in excess {_some(foreign)}; "
            "let the target function build the model these weights belong to"
        )
    for name, value in state.items():
        if value.shape != wanted[name].shape:
            raise BadInput(
                f"{file} is of another model: {name} has shape {tuple(value.shape)} there "
                f"and {tuple(wanted[name].shape)} in the target's model; "
                "let the target function build the model these weights belong to"
            )
    model.load_state_dict(state, strict=False)  # names and shapes were checked above; tied ones may be left out


def _unwrapped(state: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the prefixes of wrappers, as long as every name carries one and the model knows none of them."""
    while not any(name in wanted for name in state):
        wrapper = next((prefix for prefix in WRAPPERS if all(name.startswith(prefix) for name in state)), None)
        if wrapper is None:
            break
        state = {name.removeprefix(wrapper): value for name, value in state.items()}
    return state


def _tied(name: str, model: nn.Module, state: Mapping[str, Tensor]) -> bool:
    """Whether a name left out of a checkpoint is a second name of a tensor that is in it."""
    everything = dict(model.named_parameters(remove_duplicate=False))
    mine = everything.get(name)
    return mine is not None and any(everything.get(other) is mine for other in state)


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
