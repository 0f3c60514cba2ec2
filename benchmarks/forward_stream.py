"""What measuring forward features costs: 50,000 examples, 512 units, 10 outputs, one pass, against the bare minimum.

The bare minimum is the forward pass of the features plus one units x units product F^T F a batch, added up in float64:
the features come in float32 and are turned to float64 first, since sums in float32 do not carry the measures (see
`forward_moments`). The same in float32 stands beside it for those who would not need the digits. Ours finds the head,
runs the model through it, accumulates the moments of outputs and targets too, and reads every measure from them. Peak
memory is taken above what the model and one batch hold. Runs are taken in turns; the ratio is the median over turns.

    python benchmarks/forward_stream.py [--rows 50000] [--units 512] [--batch 1000] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from tangentlens.kernels.features import stream_features
from tangentlens.measures.collapse import collapse
from tangentlens.measures.effective_dimension import effective_dimension
from tangentlens.measures.eigenfunctions import eigenfunctions
from tangentlens.measures.forward_moments import streamed_moments
from tangentlens.measures.quality import quality, utilisation
from tangentlens.measures.richness import richness

INPUTS, OUTPUTS = 784, 10


def network(units: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(INPUTS, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, OUTPUTS)
    )


def batches(rows: int, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same random batch again and again: making data is not what is timed."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, INPUTS, generator=generator)
    y = torch.randint(OUTPUTS, (batch,), generator=generator)
    for start in range(0, rows, batch):
        yield x[: rows - start], y[: rows - start]


def bare(model: nn.Sequential, rows: int, batch: int, dtype: torch.dtype) -> Tensor:
    body, units = model[:-1], model[-1].in_features
    total = torch.zeros(units, units, dtype=dtype)
    with torch.no_grad():
        for x, _ in batches(rows, batch):
            features = body(x).to(dtype)
            total.addmm_(features.T, features)
    return total


def measured(model: nn.Sequential, rows: int, batch: int) -> dict[str, float]:
    labels = (y for _, y in batches(rows, batch))
    stream = stream_features(model, (x for x, _ in batches(rows, batch)))
    moments = streamed_moments((found.values, found.outputs, y) for found, y in zip(stream, labels))
    modes = eigenfunctions(moments)
    return {
        "D_LR": richness(moments).distance,
        "D_LR robust": richness(moments, "robust").distance,
        "effective dimension": float(effective_dimension(modes.eigenvalues)),
        "quality": float(quality(moments, modes).sum()),
        "utilisation": float(utilisation(moments, modes).sum()),
        "NC1": collapse(moments),
    }


def seconds(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Wall times, taken in turns so that a busy machine slows all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("rows", 50_000), ("units", 512), ("batch", 1000), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    model = network(asked.units).eval()
    bare(model, 2 * asked.batch, asked.batch, torch.float32)  # libraries loaded, one batch and the model held
    before = peak_megabytes()
    values = measured(model, asked.rows, asked.batch)
    above = peak_megabytes() - before
    times = seconds({
        "ours": lambda: measured(model, asked.rows, asked.batch),
        "bare float64": lambda: bare(model, asked.rows, asked.batch, torch.float64),
        "bare float32": lambda: bare(model, asked.rows, asked.batch, torch.float32),
    }, asked.repeats)  # fmt: skip
    ratio = {name: statistics.median(ours / floor for ours, floor in zip(times["ours"], floors))
             for name, floors in times.items() if name != "ours"}  # fmt: skip
    print(json.dumps({
        "rows": asked.rows, "units": asked.units, "outputs": OUTPUTS, "threads": torch.get_num_threads(),
        "megabytes above model and batch": round(above, 1),
        "seconds": {name: round(statistics.median(found), 3) for name, found in times.items()},
        "ours over": {name: round(value, 3) for name, value in ratio.items()}, "measures": values,
    }, indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
