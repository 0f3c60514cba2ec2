"""Where a run comes from: versions, commit, device, and fingerprints that tell one model or probe from another."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import torch
from torch import nn

from tangentlens.capture.undisturbed import eager
from tangentlens.errors import DifferentRun
from tangentlens.kernels.fingerprints import fingerprint, in_words, named_tensors

SCHEMA = "tangentlens record 1"
PACKAGES = ("tangentlens", "torch", "numpy", "xarray", "zarr", "icechunk")


def model_attributes(model: nn.Module) -> dict[str, Any]:
    """Which model: its class, size, layers, device and dtype, and the fingerprint of its structure."""
    plain = eager(model)
    first = next(iter(plain.parameters()), torch.empty(0))
    layers = [
        name for name, module in plain.named_modules() if next(module.parameters(recurse=False), None) is not None
    ]
    return {
        "model": type(plain).__name__,
        "model_fingerprint": model_fingerprint(plain),
        "parameters": sum(parameter.numel() for parameter in plain.parameters()),
        "layers": json.dumps(layers),
        "device": str(first.device),
        "dtype": str(first.dtype).removeprefix("torch."),
    }


def model_fingerprint(model: nn.Module) -> str:
    """Names, shapes, dtypes and module classes; not the weights, which change, nor the device, which may."""
    plain = eager(model)
    parts = [f"{name}:{type(module).__module__}.{type(module).__qualname__}" for name, module in plain.named_modules()]
    for name, tensor in (*plain.named_parameters(), *plain.named_buffers()):
        parts.append(f"{name}:{tuple(tensor.shape)}:{tensor.dtype}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def probe_attributes(inputs: Any, targets: Any) -> dict[str, Any]:
    """Which probe: its sizes in words and the fingerprint of its contents."""
    tensors = dict(named_tensors({"inputs": inputs, "targets": targets}))
    words = in_words(tensors.items())
    examples = next((len(t) for t in tensors.values() if t.ndim), 0)
    return {"probe": words, "probe_fingerprint": probe_fingerprint(inputs, targets), "examples": examples}


def probe_fingerprint(inputs: Any, targets: Any) -> str:
    """The bytes of every tensor handed over, with names, shapes and dtypes."""
    return fingerprint(named_tensors({"inputs": inputs, "targets": targets}))


def surroundings(seed: int | None) -> dict[str, Any]:
    """Versions, commit, seed and the time."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout that is on the path but not installed
            versions[package] = "not installed"
    return {
        "schema": SCHEMA,
        "versions": json.dumps(versions),
        "git_commit": git_commit(),
        "seed": torch.initial_seed() if seed is None else seed,
        "created": now(),
    }


def git_commit() -> str:
    """The commit of the working directory, marked where it has changes; empty outside of a repository."""
    try:
        commit = _git("rev-parse", "HEAD")
        return commit + "+changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, timeout=5)
    return done.stdout.strip()


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def refuse_another(recorded: Mapping[str, Any], mine: Mapping[str, Any], run: str) -> None:
    """A record holds one model on one probe: anything else would be mixed with it."""
    if recorded.get("schema") != SCHEMA:
        raise DifferentRun(
            f"expected a record of the form {SCHEMA!r} at {run}, got {recorded.get('schema')!r}; choose another folder"
        )
    for kind, words in (("model", ("model", "parameters")), ("probe", ("probe",))):
        fingerprint = f"{kind}_fingerprint"
        if recorded.get(fingerprint) != mine[fingerprint]:
            before, here = (" ".join(str(source.get(word)) for word in words) for source in (recorded, mine))
            raise DifferentRun(
                f"{run} was recorded with another {kind}: expected {before} ({recorded.get(fingerprint)}), "
                f"got {here} ({mine[fingerprint]}); record into another folder, or hand over the {kind} it began with"
            )


def refuse_other_settings(recorded: Mapping[str, Any], asked: Mapping[str, Any], run: str, *, told: bool) -> None:
    """Another seed is another run; other settings are one too, unless the recorder was told to go on."""
    seed = asked.get("seed")
    if seed is not None and recorded.get("seed") != seed:
        raise DifferentRun(
            f"{run} was recorded with seed {recorded.get('seed')}, got seed {seed}; record into another folder"
        )
    before, here = (json.loads(source.get("settings") or "{}") for source in (recorded, asked))
    other = sorted(name for name in {*before, *here} if before.get(name) != here.get(name))
    if other and not told:
        was, got = (", ".join(f"{name}={source.get(name)!r}" for name in other[:4]) for source in (before, here))
        raise DifferentRun(
            f"{run} was recorded with other settings: expected {was}, got {got}; record into another folder, or go on "
            "with it by resume=True"
        )
