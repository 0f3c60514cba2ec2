"""What a kernel would take on 1, 8 and 64 devices: predicted from counted operations, and checked on this machine.

    seconds = captures / capture rate + (products + formed again) / rate + (travelled + summed) / link + written / disk

for each device's share. How often an example is captured, how many rows are held and how large a region is, is what
the library itself would choose in that memory: `passes.py` and `stripes.py` are asked. See docs/scale-out.md.

    python -m benchmarks scale-out                   the predictions, for one H200 per device
    python -m benchmarks scale-out --check           predicted and measured here: 1 process, 2 gloo processes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from tangentlens.capture.measuring import measuring
from tangentlens.capture.sources import Piece
from tangentlens.kernels.passes import Pass, captured, chosen_passes
from tangentlens.kernels.plan import sampled_costs
from tangentlens.kernels.stripes import kept_bytes, region_rows, striped_pass
from tangentlens.kernels.ways import Cost, Costs, Reduction, forming

GIB = 2.0**30
_ITEM = 4


@dataclass(frozen=True)
class Work:
    """One kernel with `width` rows an example: flops of one example's capture, and the library's own costs of it."""

    name: str
    examples: int
    width: int
    capture_flops: float
    forming_flops: float
    """Of one example's gradients that are too large to hold, and formed again for every block they meet."""
    costs: Costs
    weights_bytes: float

    @property
    def rows(self) -> int:
        return self.examples * self.width

    @property
    def product_flops(self) -> float:
        return 2 * self.costs.multiply_adds

    @property
    def kernel_bytes(self) -> int:
        return _ITEM * self.rows**2


@dataclass(frozen=True)
class Machine:
    """Per device: flops per second in a large product and in a capture, bytes per second of its link, bytes it has, and
    bytes per second it writes where the kernel is kept on disk."""

    product_rate: float
    capture_rate: float
    link: float
    memory: float
    disk: float = 2e9
    device: str = "cuda"


@dataclass(frozen=True)
class Prediction:
    """Seconds by part and bytes per device; `on_disk` where the kernel would take more than half of a device."""

    devices: int
    capture: float
    products: float
    forming: float
    travel: float
    summed: float
    stored: float
    captures: float
    """How often each example is captured."""
    kernel_held: float
    kept_held: float
    on_disk: bool

    @property
    def seconds(self) -> float:
        return self.capture + self.products + self.forming + self.travel + self.summed + self.stored


def predicted(work: Work, machine: Machine, devices: int) -> Prediction:
    """The formula. In memory every device holds the whole kernel, and they are summed at the end; what is more than
    half of a device goes to disk by `out=`."""
    alone = devices == 1
    share = -(-work.examples // devices)
    free = int(machine.memory - work.weights_bytes)
    on_disk = work.kernel_bytes > free / 2
    passes, formed, buffer = _on_disk(work, free, share, devices, machine) if on_disk else _held(
        work, free, share, devices, machine
    )  # fmt: skip
    times = sum(captured(one, share, None) for one in passes) / share
    held = max(_kept(work, one) * min(one.block, share) for one in passes) * (1 if alone else 3)
    travelled = sum(_kept(work, one) * _travelling(one, share, devices) for one in passes)
    summed = 0.0 if on_disk or alone else 2 * (devices - 1) / devices * work.kernel_bytes
    written = work.kernel_bytes / devices if on_disk else 0.0
    return Prediction(
        devices, times * share * work.capture_flops / machine.capture_rate,
        work.product_flops / devices / machine.product_rate,
        max(0.0, formed - work.examples) * work.forming_flops / devices / machine.product_rate,
        travelled / machine.link, summed / machine.link, written / machine.disk, times,
        buffer if on_disk else float(work.kernel_bytes), held, on_disk,
    )  # fmt: skip


def _held(work: Work, free: int, share: int, devices: int, machine: Machine) -> tuple[tuple[Pass, ...], float, float]:
    """As `Blockwise.kernels` does it: every rank against half of the ring, each block formed for each it meets."""
    columns = None if devices == 1 else 2 * share
    device = torch.device(machine.device)
    order = chosen_passes(work.costs, share, columns, torch.float32, device, free - work.kernel_bytes)
    met = 1 + 2 * (devices // 2) - (0.5 if devices % 2 == 0 else 0.0)
    return order.passes, float(met * share * devices), 0.0


def _on_disk(
    work: Work, free: int, share: int, devices: int, machine: Machine
) -> tuple[tuple[Pass, ...], float, float]:
    """As `Blockwise.write` does it: region by region, each formed for each it meets."""
    kept = kept_bytes(work.costs, torch.float32)
    region = region_rows(work.examples, work.width, 1, devices, kept, free)
    one = striped_pass(
        work.costs, share, None, region, torch.float32, torch.device(machine.device), free, 1 if devices == 1 else 3
    )
    return (one,), float(work.examples * -(-work.examples // region)), float(_ITEM * (region * work.width) ** 2)


def _kept(work: Work, one: Pass) -> float:
    return _ITEM * sum(work.costs.kept[name] for name in one.names)


def _travelling(one: Pass, share: int, devices: int) -> float:
    """Examples a device sends on: its block half way around, and what its later rows meet all the way."""
    blocks = range(0, share, one.block)
    rest = sum(max(0, share - start - one.block) for start in blocks)
    return share * (devices // 2) + rest * (devices - 1)


def of_model(name: str, builder: str, sizes: dict[str, object], examples: int, reduction: Reduction) -> Work:
    """Counted on three examples, for a number of examples that is never held. They differ: of equal ones every layer
    looks like a head, whose output gradient is the same at every example, and costs next to nothing."""
    from benchmarks import models

    torch.manual_seed(0)
    model = getattr(models, builder)(**sizes).eval()
    shape = (784,) if builder == "mlp" else (3, 32, 32)
    example = torch.randn(1, *shape)
    few = torch.randn(3, *shape)
    with torch.no_grad(), measuring(model, few) as measurement:
        inputs = replace(measurement.prepared(few), length=examples)
        costs = sampled_costs(measurement, inputs, inputs, reduction, True)
    again = 2 * sum(forming(piece) for piece, cost in costs.by_piece.values() if cost.way == "sliced")
    weights = float(_ITEM * sum(parameter.numel() for parameter in model.parameters()))
    width = costs.outputs if reduction == "full" else 1
    return Work(name, examples, width, capture_flops(model, example, costs.outputs), again, costs, weights)


def capture_flops(model: torch.nn.Module, example: torch.Tensor, outputs: int) -> float:
    """Flops of one forward pass, and of one backward pass to the activations per output, which costs about as much."""
    from benchmarks.flops import counted_flops

    with torch.no_grad(), counted_flops() as counter:
        model(example)
    return float(counter.get_total_flops()) * (1 + outputs)


def language_model(examples: int, length: int, layers: int, width: int, hidden: int, grouped: int, rest: int) -> Work:
    """A transformer with a scalar output per sequence, all block matrices formed and contracted slice by slice.

    Per sequence the gradient of a p x q matrix costs 2 T p q, the capture 2 T p q forward and as much backward; each
    pair of sequences 2 P, halved by symmetry. The `rest` (embedding and head) is looked up, not multiplied.
    """
    shapes = [(width, width), (width, grouped), (width, grouped), (width, width)]
    shapes += [(width, hidden), (width, hidden), (hidden, width)]
    by_piece, kept = {}, {}
    for number, (p, q) in enumerate(shapes * layers):
        name = f"matrix {number}"
        kept[name] = float(length * (p + q))
        adds = examples * length * p * q + examples**2 * p * q / 2
        by_piece[name] = Piece(name, torch.Size([q, p]), []), Cost("sliced", float(adds), kept[name])
    parameters = layers * sum(p * q for p, q in shapes)
    costs = Costs(by_piece, 1, kept, kept, 2 * sum(kept.values()), 2.0 * length * parameters)
    title = f"{(parameters + rest) / 1e9:.2g} B parameters, scalar output, T={length}, N={examples:,}"
    forming_flops = 2.0 * length * parameters
    return Work(title, examples, 1, 2 * forming_flops, forming_flops, costs, float(_ITEM * (parameters + rest)))


def eigh_seconds(rows: int) -> float:
    """A float64 decomposition on one H200 (1.0 s at 10,000 rows, 3.9 s at 20,000), after which 100 modes are read."""
    return 1.0 * (rows / 10_000) ** 2 if rows <= 20_000 else 3.9 * (rows / 20_000) ** 3


# measured on one H200: float32 products, memory; assumed: captures at a third of that rate, 100 GB/s between devices,
# 2 GB/s per device to disk
H200 = Machine(product_rate=51e12, capture_rate=17e12, link=100e9, memory=139 * GIB)


def works() -> list[Work]:
    cnn = {"channels": [64, 128, 128], "outputs": 10}
    return [
        of_model("CIFAR, CNN 64-128-128, full", "cnn", cnn, 50_000, "full"),
        of_model("CIFAR, CNN 64-128-128, averaged", "cnn", cnn, 50_000, "mean"),
        of_model("CIFAR, ResNet-18, full", "resnet18", {}, 50_000, "full"),
        of_model("CIFAR, ResNet-18, averaged", "resnet18", {}, 50_000, "mean"),
        language_model(1024, 128, layers=16, width=2048, hidden=8192, grouped=512, rest=262_668_288),
        language_model(8192, 128, layers=16, width=2048, hidden=8192, grouped=512, rest=262_668_288),
    ]


def table(work: Work, machine: Machine, devices: Sequence[int] = (1, 8, 64)) -> str:
    lines = [f"{work.name}: {work.product_flops:.2g} flops of products, kernel {_bytes(work.kernel_bytes)}"]
    for count in devices:
        found = predicted(work, machine, count)
        kernel = "on disk" if found.on_disk else _bytes(found.kernel_held)
        held = f"kernel {kernel}, gradients {_bytes(found.kept_held)}"
        lines.append(
            f"  {count:>3} devices  {_time(found.seconds):>9}  captures {_time(found.capture)} (each example "
            f"{found.captures:.3g} times), products {_time(found.products)}, formed again {_time(found.forming)}, ring "
            f"{_time(found.travel)}, sum {_time(found.summed)}, disk {_time(found.stored)}; per device {held}"
        )
    return "\n".join(lines)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def _bytes(count: float) -> str:
    return f"{count / GIB:.3g} GiB" if count < 1024 * GIB else f"{count / GIB / 1024:.3g} TiB"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale-out")
    parser.add_argument("--check", action="store_true", help="measure on this machine, with 1 and 2 processes")
    parser.add_argument("--link", type=float, default=H200.link, help="bytes per second between two devices")
    parser.add_argument("--rate", type=float, default=H200.product_rate, help="float32 flops per second of a device")
    asked = parser.parse_args(arguments)
    if asked.check:
        from benchmarks.scale_check import checked

        print(checked())
        return 0
    machine = replace(H200, link=asked.link, product_rate=asked.rate, capture_rate=asked.rate / 3)
    for work in works():
        print(table(work, machine))
    rows = works()[-1].rows
    print(f"top 100 modes of {rows:,} rows, once the kernel is there: {_time(eigh_seconds(rows))} on one device")
    return 0
