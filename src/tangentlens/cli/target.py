"""A target ``file.py:function`` from the command line, as a model and its probe."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tangentlens.capture.probe import probe
from tangentlens.cli.devices import refuse_unusable_device
from tangentlens.errors import BadInput, RefusedForMemory, exit_status
from tangentlens.record.asked import check_targets
from tangentlens.record.quiet import observed

WANTED = "a target is FILE.py:FUNCTION"


RETURNED = "(model, inputs) or (model, (inputs, targets)), and after them, if wanted, outputs"


@dataclass(frozen=True)
class Target:
    """What a target function returned, its model in eval mode; `targets` and `outputs` are None where it gave none."""

    name: str
    model: nn.Module
    inputs: Any
    targets: Any
    outputs: Callable[[Any], Tensor] | None


def target(words: str, device: str | None = None) -> Target:
    """Run the function a target names and move what it returns to `device`."""
    file, colon, function = words.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise BadInput(f"{WANTED}, got {words!r}; name the function after a colon, as in train.py:build")
    path = Path(file)
    if not path.is_file():
        raise BadInput(f"{WANTED}, but there is no file {path}; give its path from {Path.cwd()}")
    build = getattr(_module(path), function, None)
    if not callable(build):
        raise BadInput(f"{path} has no function {function!r}; {_functions_of(path)}")
    model, probe, outputs = _parts(_called(build, path, function), words)
    inputs, targets = _inputs_and_targets(probe, words)
    if device is not None:
        model, inputs, targets = _on(device, model, inputs, targets)
    # a kernel between two examples exists only where neither depends on its neighbours or on chance
    made = Target(function, model.eval(), inputs, targets, outputs)
    _refuse_what_does_not_fit(made, words)
    return made


def _module(path: Path) -> ModuleType:
    """Import a file by its path, with its folder importable, as running it would."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickling look their module up by name
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:  # a training script that runs, or reads its own command line, when it is imported
        raise BadInput(
            f"{path} should import without an error, got {_named(error)}; "
            "let what it does as a script stand below: if __name__ == '__main__':"
        ) from error
    except Exception as error:
        raise BadInput(
            f"{path} should import without an error, got {_named(error)}{_place(error, path)}; mend it there"
        ) from error
    return module


def _called(build: Any, path: Path, function: str) -> Any:
    try:
        return build()
    except (Exception, SystemExit) as error:
        raise BadInput(
            f"{path}:{function} failed{_place(error, path)}: {_named(error)}; "
            f"it is called without arguments and should return {RETURNED}"
        ) from error


def _parts(made: Any, words: str) -> tuple[nn.Module, Any, Callable[[Any], Tensor] | None]:
    wanted = f"{words} should return {RETURNED}"
    if not (isinstance(made, tuple) and len(made) in (2, 3)):
        raise BadInput(f"{wanted}, got {_kind(made)}; return exactly these things")
    model, probe, outputs = (*made, None)[:3]
    if not isinstance(model, nn.Module):
        raise BadInput(f"{wanted}, got {_kind(model)} as the model; return a torch.nn.Module first")
    if outputs is not None and not callable(outputs):
        raise BadInput(f"{wanted}, got {_kind(outputs)} as outputs; give a function of what the model returns")
    return model, probe, outputs


def _inputs_and_targets(probe: Any, words: str) -> tuple[Any, Any]:
    """A pair is always inputs and targets, as for a Recorder; Hugging Face keeps its targets under "labels"."""
    if isinstance(probe, tuple) and len(probe) == 2:
        return probe
    if isinstance(probe, Mapping):
        return {name: value for name, value in probe.items() if name != "labels"}, probe.get("labels")
    if isinstance(probe, Tensor | list):
        return probe, None
    raise BadInput(
        f"{words} should return {RETURNED}, got {_kind(probe)} as inputs; give a tensor, a dict, or, "
        "for a model that takes several, ((first, second, ...), targets or None)"
    )


def _on(device: str, model: nn.Module, inputs: Any, targets: Any) -> tuple[nn.Module, Any, Any]:
    refuse_unusable_device(device)
    return model.to(device), _moved(inputs, device), _moved(targets, device)


def _refuse_what_does_not_fit(made: Target, words: str) -> None:
    """Inputs without a target each, or that the model does not take, are a mistake in the target, not here."""
    whole = probe(made.inputs)
    check_targets(made.targets, whole.length)
    few = whole.rows(0, 2)
    try:
        with observed(made.model) as model, torch.no_grad():
            few.call(model)
    except Exception as error:
        if exit_status(error) == RefusedForMemory.exit_status:
            raise
        raise BadInput(
            f"the model of {words} should take the inputs beside it, got {_named(error)}; "
            "return them in the form the model is called with: a tensor, a tuple of its arguments, or a dict of them"
        ) from error


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(item, device) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_moved(item, device) for item in value)
    return value.to(device) if isinstance(value, Tensor) else value


def _functions_of(path: Path) -> str:
    module = sys.modules[path.stem]
    own = [name for name, thing in vars(module).items() if getattr(thing, "__module__", None) == path.stem]
    functions = [name for name in own if callable(getattr(module, name)) and not name.startswith("_")]
    return f"it has {', '.join(functions)}" if functions else "it defines no functions"


def _kind(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _place(error: BaseException, path: Path) -> str:
    """The last line of the user's own file that an error passed through."""
    if isinstance(error, SyntaxError):
        return ""  # its message carries file and line
    own = path.resolve()  # Python names the file in full, whatever it was called here
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).resolve() == own]
    return f" at line {frames[-1].lineno}" if frames else ""
