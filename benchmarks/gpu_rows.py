"""The rows of `benchmarks.gpu`, measured in its child process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import models
from benchmarks.versions import described as described_versions
from benchmarks.workloads import WORKLOADS, drawn, toy

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
REFERENCE = 2


def rows(small: bool) -> dict[str, dict[str, Any]]:
    """Row name -> workload, examples, what is measured, and the most seconds it may take."""
    listed = (
        ("mlp", 8192, "full", 45), ("mlp", 512, "full", 15), ("mlp", 512, "recipe", 25), ("cnn", 2048, "full", 40),
        ("cnn", 2048, "averaged", 25), ("resnet18", 1024, "averaged", 45), ("transformer", 2048, "full", 45),
        ("gpt2", 1024, "averaged", 45), ("modular", 841, "full", 20), ("modular", 841, "top200", 30),
        ("mlp", 4096, "float64", 20), ("cnn", 256, "recipe", 20), ("mlp", 8192, "averaged", 15),
        ("transformer", 128, "recipe", 20),
    )  # fmt: skip
    return {
        f"{name}, N={6 if small else count}, {what}": {
            "workload": name, "examples": 6 if small else count, "what": what, "cap": cap
        }
        for name, count, what, cap in listed
    }  # fmt: skip


def run(names: list[str], small: bool) -> None:
    """One JSON line about the machine, then one per row."""
    machine = described()
    print(json.dumps({"machine": machine}), flush=True)
    for name in names:
        row = rows(small)[name]
        try:
            result = measured(row, small, machine)
        except Exception as error:  # one row's end is not the others'
            result = {"failed": f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}"[:200]}
        print(json.dumps({"row": name, **result}), flush=True)
        if CUDA:
            torch.cuda.empty_cache()


def described() -> dict[str, Any]:
    size = 8192 if CUDA else 512
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # convolutions have it on
    values = torch.empty(size * size * (8 if CUDA else 1), device=DEVICE)
    return {
        "device": torch.cuda.get_device_name() if CUDA else "processor",
        "torch": torch.__version__,
        "made": described_versions(),
        "rate": _rate(size, torch.float32),
        "rate64": _rate(size, torch.float64),
        "copy": 2 * values.numel() * 4 / min(_timed(values.clone, 4)[1:]),
    }


def _rate(size: int, dtype: torch.dtype) -> float:
    left, right = (torch.randn(size, size, device=DEVICE, dtype=dtype) for _ in range(2))
    return 2 * size**3 / min(_timed(lambda: left @ right, 6)[1:])


def _timed(call: Callable[[], Any], repeats: int, most: float = 1e9) -> list[float]:
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < most:
        _finished()
        start = time.perf_counter()
        call()
        _finished()
        seconds.append(time.perf_counter() - start)
    return seconds


def _finished() -> None:
    if CUDA:
        torch.cuda.synchronize()


def built(name: str, examples: int, small: bool) -> tuple[nn.Module, Tensor]:
    workload = toy(WORKLOADS[name]) if small else WORKLOADS[name]
    torch.manual_seed(0)
    model = gpt2() if name == "gpt2" and not small else getattr(models, workload.builder)(**workload.sizes)
    return model.eval().to(DEVICE), drawn(workload.inputs, examples).to(DEVICE)


class LastLogit(nn.Module):
    """One token's logit at the last position, read with the tied embedding."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, tokens: Tensor) -> Tensor:
        return self.body(tokens).last_hidden_state[:, -1] @ self.body.wte.weight[:1].T


def gpt2() -> nn.Module:
    """An unedited GPT-2 small with random weights."""
    from transformers import GPT2Config, GPT2Model

    return LastLogit(GPT2Model(GPT2Config()))


def measured(row: dict[str, Any], small: bool, machine: dict[str, Any]) -> dict[str, Any]:
    from benchmarks.scale_out import capture_flops
    from tangentlens.kernels import plan

    name, examples, what = row["workload"], row["examples"], row["what"]
    model, inputs = built(name, examples, small)
    if what == "float64":
        model, inputs = model.double(), inputs.double()
    call, read = _method(name, what, model, inputs)
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    found = call()
    first = time.perf_counter() - start
    error = read(found)
    del found
    seconds = _timed(lambda: call() is None, 3, max(0.5, row["cap"] / 3 - first))
    reduction = "mean" if what == "averaged" else "full"
    told = plan(model, inputs, reduction=reduction)
    gradients = sum(each.kept_bytes for each in told.rows)
    rate = machine["rate64" if what == "float64" else "rate"]
    captured = capture_flops(model, inputs[:1], told.outputs) * examples
    floor = max((told.flops + captured) / rate, (told.kernel_bytes + gradients) / machine["copy"])
    if what == "top200":  # modes are not bound by the whole kernel's products
        floor = 0.0
    ways = sorted({each.way for each in told.rows})
    return {
        "seconds": seconds, "first": first, "error": error, "peak": torch.cuda.max_memory_allocated() if CUDA else 0,
        "flops": told.flops, "bytes": told.kernel_bytes + gradients, "floor": floor,
        "note": "" if what in ("recipe", "top200") else f"{told.flops + captured:.3g} flops, {', '.join(ways)}",
    }  # fmt: skip


def _method(name: str, what: str, model: nn.Module, inputs: Tensor) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    from tangentlens.kernels import entk, entk_full
    from tangentlens.kernels.top_spectrum import top_spectrum

    if what == "top200":
        modes = min(200, len(inputs))
        return lambda: top_spectrum(model, inputs, modes=modes), lambda found: float(found.residuals.max())
    if what == "averaged":
        return lambda: entk(model, inputs), lambda found: _error(found[:REFERENCE, :REFERENCE], model, inputs)
    if what == "recipe":
        from benchmarks.recipes import tutorial

        call = lambda: tutorial(model, inputs, "full").detach()  # noqa: E731
    else:
        call = lambda: entk_full(model, inputs)  # noqa: E731
    return call, lambda found: _error(found[:REFERENCE, :, :REFERENCE], model, inputs)


def _error(part: Tensor, model: nn.Module, inputs: Tensor) -> float:
    from tests.reference import tangent

    few = inputs[:REFERENCE]
    jacobian = tangent.jacobian(tangent.in_float64(model), few.double() if few.is_floating_point() else few)
    exact = tangent.full_kernel(jacobian) if part.ndim == 4 else tangent.kernel(jacobian)
    return float((part.to(exact) - exact).norm() / exact.norm())
