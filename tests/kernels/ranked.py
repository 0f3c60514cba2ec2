"""Kernels over one, two and three gloo processes: started by a test as a process of its own.

    python -m tests.kernels.ranked FOLDER

All ranks are forked from one process that has torch imported. Each scenario saves what a rank saw as
FOLDER/<ranks>/<scenario>.<rank>.pt.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tangentlens.capture.measuring import Measurement
from tangentlens.distributed import Ranks
from tangentlens.kernels import (
    agop,
    entk,
    entk_by_layer,
    entk_full,
    entk_mean_output,
    entk_product,
    forward_kernel,
    jacobian_gram,
    jacobian_product,
    layer_moments,
    ptk,
    ptk_covariance,
    spectrum,
)
from tangentlens.kernels.product import averaged
from tangentlens.kernels.top_spectrum import top_spectrum
from tests.zoo.entry import Written, mlp

SIZES = (1, 2, 3)
N, M = 11, 7
Seen = dict[str, Any]


def dense() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(1)
    model = mlp(4, 6, 3).double()
    return model, torch.randn(N, 4, dtype=torch.float64), torch.randn(M, 4, dtype=torch.float64)


def convolutional() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(2)
    layers = [nn.Conv2d(2, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3)).double()
    return model, torch.randn(N, 2, 6, 6, dtype=torch.float64), torch.randn(M, 2, 6, 6, dtype=torch.float64)


def tokens() -> tuple[nn.Module, Tensor, Tensor]:
    """An embedding that is also the head, attention between, the last position's outputs."""
    torch.manual_seed(3)

    def forward(m: Any, x: Tensor) -> Tensor:
        states = m.norm(m.table(x))
        mixed, _ = m.attention(states, states, states, need_weights=False)
        return (states + mixed)[:, -1] @ m.table.weight.T

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    model = Written(forward, table=nn.Embedding(6, 4), norm=nn.LayerNorm(4), attention=attention).double()
    return model, torch.randint(6, (N, 5)), torch.randint(6, (M, 5))


def routed() -> tuple[nn.Module, Tensor, Tensor]:
    """Experts that some rows never reach: what one rank learns of the graph, another has not seen."""
    torch.manual_seed(4)

    def forward(m: Any, x: Tensor) -> Tensor:
        out = torch.zeros(len(x), 3, dtype=x.dtype)
        chosen = (x[:, 0] > 0.8).long()
        for number, expert in enumerate(m.experts):
            (row,) = torch.where(chosen == number)
            if len(row):
                out = out.index_add(0, row, expert(x[row]))
        return m.head(out)

    model = Written(forward, experts=nn.ModuleList([mlp(4, 4, 3) for _ in range(2)]), head=nn.Linear(3, 2)).double()
    return model, torch.randn(N, 4, dtype=torch.float64), torch.randn(M, 4, dtype=torch.float64)


MODELS = {"dense": dense, "convolutional": convolutional, "tokens": tokens, "routed": routed}


def kernels(model: nn.Module, x: Tensor, y: Tensor, ranks: Ranks) -> Seen:
    return {
        "entk": entk(model, x, ranks=ranks),
        "entk of others": entk(model, x, y, ranks=ranks),
        "entk_full": entk_full(model, x, ranks=ranks),
        "entk_full of others": entk_full(model, x, y, chunk=2, ranks=ranks),
    }


def more_kernels(model: nn.Module, x: Tensor, y: Tensor, ranks: Ranks) -> Seen:
    found = {f"layer {name}": part for name, part in entk_by_layer(model, x, ranks=ranks).items()}
    found["mean output"] = entk_mean_output(model, x, y, ranks=ranks)
    found["two rows"] = entk_full(model, x[:2], ranks=ranks)
    return found


def products(model: nn.Module, x: Tensor, y: Tensor, ranks: Ranks) -> Seen:
    found: Seen = {}
    for name, others in (("square", None), ("others", y)):
        product = entk_product(model, x, others, ranks=ranks)
        vectors = torch.randn(product.shape[1], 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        found[f"{name}, captured"], found[f"{name}, held"] = product @ vectors, product @ vectors
        product._hold = False
        product._held.clear()
        found[f"{name}, never held"] = product @ vectors
        if others is None:
            found["averaged"] = averaged(product)(vectors[: len(x)])
    found["gram"] = jacobian_gram(model, x, ranks=ranks)
    found["image"] = jacobian_product(model, x, torch.ones(len(found["gram"]), 1).double(), ranks=ranks)
    return found


def moments(model: nn.Module, x: Tensor, ranks: Ranks) -> Seen:
    found: Seen = {"forward": forward_kernel(model, x, ranks=ranks)}
    for name, layer in layer_moments(model, x, ranks=ranks).items():
        found |= {f"{name} {side}": getattr(layer, side) for side in ("ptk_covariance", "input_moment", "weight")}
        if not name.startswith("experts"):  # rows are counted by chunks that reach a layer
            found[f"{name} rows"] = torch.tensor(layer.rows, dtype=torch.float64)
    return found


def layers(model: nn.Module, x: Tensor, ranks: Ranks) -> Seen:
    return {
        "ptk": ptk(model, x, "0", ranks=ranks),
        "ptk in chunks": ptk(model, x, "0", chunk=2, ranks=ranks),
        "covariance": ptk_covariance(model, x, "2", ranks=ranks),
        "agop": agop(model, x, "0", ranks=ranks),
    }


def spectra(model: nn.Module, x: Tensor, ranks: Ranks, folder: Path) -> Seen:
    found: Seen = {}
    for method in ("dense", "dual", "krylov"):
        modes = top_spectrum(model, x, modes=4, method=method, ranks=ranks)  # type: ignore[arg-type]
        found[method] = modes.eigenvalues
        found[f"{method} residuals"] = (modes.residuals < 1e-9).double()
    stored = entk(model, x, out=folder / "spectrum", ranks=ranks)
    for method in ("tiles", "krylov"):
        modes = top_spectrum(model, x, modes=3, method=method, stored=stored, ranks=ranks)  # type: ignore[arg-type]
        found[f"stored, {method}"] = modes.eigenvalues
    found["stored, alone"] = spectrum(stored, 3).eigenvalues
    return found


def everything(ranks: Ranks, folder: Path) -> Seen:
    """All of it by model, and from disk."""
    found: Seen = {}
    for name, build in MODELS.items():
        if name in ("convolutional", "routed") and dist.get_world_size() == 2:
            continue  # one and three ranks show what more kinds of layers could add
        model, x, y = build()
        parts = kernels(model, x, y, ranks) | moments(model, x, ranks)
        if name in ("dense", "tokens"):
            parts |= more_kernels(model, x, y, ranks) | products(model, x, y, ranks)
            parts["on disk"] = entk_full(model, x, out=folder / f"{name}-full", ranks=ranks).whole()
        if name == "dense":
            parts |= layers(model, x, ranks) | spectra(model, x, ranks, folder)
            by_layer = entk_by_layer(model, x, y, by="parameter", out=folder / "layers", ranks=ranks)
            parts |= {f"on disk {layer}": part.whole() for layer, part in by_layer.items()}
        found |= {f"{name}: {key}": value for key, value in parts.items()}
    return found


@contextmanager
def counted() -> Iterator[list[int]]:
    """Examples captured by this process."""
    lengths: list[int] = []
    pieces = Measurement.pieces

    def counting(measurement: Any, chunk: Any, *rest: Any, **more: Any) -> Any:
        lengths.append(chunk.length)
        return pieces(measurement, chunk, *rest, **more)

    Measurement.pieces = counting  # type: ignore[method-assign]
    try:
        yield lengths
    finally:
        Measurement.pieces = pieces  # type: ignore[method-assign]


@contextmanager
def short_of_memory() -> Iterator[None]:
    """Room for the gradients of a few examples only, so that every rank has several blocks."""
    from tangentlens.kernels import blockwise, writing

    before = blockwise.free_for_each
    blockwise.free_for_each = writing.free_for_each = lambda job, device: 8 * 8 * 1000
    try:
        yield
    finally:
        blockwise.free_for_each = writing.free_for_each = before


def all_readings(folder: Path) -> Seen:
    """Everything, by all ranks together."""
    return everything(True, folder)


def captures(folder: Path) -> Seen:
    model, x, y = convolutional()
    found = {}
    for name, call in {
        "entk": lambda: entk(model, x, ranks=True),
        "entk_full": lambda: entk_full(model, x, ranks=True),
        "on disk": lambda: entk(model, x, out=folder / "counted", ranks=True),
        "others": lambda: entk(model, x, y, ranks=True),
        "product": lambda: entk_product(model, x, ranks=True) @ torch.ones(N * 3, dtype=torch.float64),
        "moments": lambda: layer_moments(model, x, ranks=True),
        "gram": lambda: jacobian_gram(model, x, ranks=True),
    }.items():
        with counted() as lengths:
            call()
        found[name] = sum(lengths) - (0 if name == "gram" else 3)  # three that every rank looks at to plan the work
    return found


def in_many_blocks(folder: Path) -> Seen:
    model, x, y = convolutional()
    with short_of_memory(), counted() as lengths:
        found = {"entk_full": entk_full(model, x, ranks=True), "others": entk(model, x, y, ranks=True)}
        stored = entk(model, x, out=folder / "blocks", ranks=True)
    return found | {"disk": stored.whole(), "captured": sum(lengths)}


def in_a_training_job(folder: Path) -> Seen:
    """A step of DDP training with a kernel measured in the middle ends where one without does."""
    weights = []
    for measured in (False, True):
        model, x, _ = dense()
        parallel = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        kernel = None
        for _ in range(2):
            optimizer.zero_grad()
            parallel(x[dist.get_rank() :: dist.get_world_size()]).square().sum().backward()
            if measured:
                kernel = entk(parallel, x, ranks=True)
            optimizer.step()
        weights.append(torch.cat([p.detach().flatten() for p in parallel.parameters()]))
    return {"plain": weights[0], "measured": weights[1], "kernel": kernel, "groups": len(_groups())}


def of_a_group(folder: Path) -> Seen:
    """The first and the last rank alone; the others go about their business."""
    members = sorted({0, dist.get_world_size() - 1})
    group = dist.new_group(members)
    found = {}
    if dist.get_rank() in members:
        model, x, y = dense()
        found = {"entk_full": entk_full(model, x, y, ranks=group), "modes": top_spectrum(
            model, x, modes=3, method="krylov", ranks=group).eigenvalues}  # fmt: skip
    dist.barrier()
    return found


def of_different_models(folder: Path) -> Seen:
    model, x, _ = dense()
    with torch.no_grad():
        model[0].weight += 0.1 * dist.get_rank()
    return {"error": _error(lambda: entk(model, x, ranks=True))}


def failing(y: Tensor) -> Tensor:
    """Outputs that the last rank cannot compute for its own rows; the few that plan the work it can."""
    if len(y) > 3 and dist.get_rank() == dist.get_world_size() - 1:
        raise ZeroDivisionError("no such number")
    return y


def failing_at_once(y: Tensor) -> Tensor:
    if dist.get_rank() == dist.get_world_size() - 1:
        raise ZeroDivisionError("no such number")
    return y


def a_rank_fails(folder: Path) -> Seen:
    """Early, while capturing, in the middle of iterations: every rank hears of it, soon."""
    model, x, _ = dense()
    errors = {}
    start = time.monotonic()
    for name, call in {
        "at once": lambda: entk(model, x, outputs=failing_at_once, ranks=True),
        "capturing": lambda: entk(model, x, outputs=failing, ranks=True),
        "moments": lambda: layer_moments(model, x, outputs=failing, ranks=True),
        "iterating": lambda: top_spectrum(model, x, modes=3, method="krylov", outputs=failing, ranks=True),
    }.items():
        errors[name] = _error(call)
    errors["afterwards"] = _error(lambda: entk(model, x, ranks=True))
    return {"errors": errors, "seconds": time.monotonic() - start}


def a_rank_fails_while_writing(folder: Path) -> Seen:
    """Tiles that were finished are kept, and another number of processes goes on with them."""
    from tangentlens.kernels import writing
    from tangentlens.kernels.on_disk import OnDisk

    model, x, _ = dense()
    done, count, rows = OnDisk.done, iter(range(1000)), writing.region_rows
    writing.region_rows = lambda *sizes: 2  # type: ignore[assignment]

    def until(sink: Any, *spans: Any) -> None:
        if next(count) == 3 and dist.get_rank() == dist.get_world_size() - 1:
            raise OSError("the disk is gone")
        done(sink, *spans)

    OnDisk.done = until  # type: ignore[method-assign]
    try:
        error = _error(lambda: entk(model, x, out=folder / "kernel", ranks=True))
    finally:
        OnDisk.done, writing.region_rows = done, rows  # type: ignore[method-assign]
    return {"error": error}


def a_rank_dies(folder: Path) -> Seen:
    """The last scenario: the group is of no use afterwards."""
    model, x, _ = dense()

    def outputs(y: Tensor) -> Tensor:
        if len(y) > 3 and dist.get_rank() == 1:
            os._exit(0)
        return y

    start = time.monotonic()
    return {"error": _error(lambda: entk(model, x, outputs=outputs, ranks=True)), "seconds": time.monotonic() - start}


def _groups() -> dict:
    return dist.distributed_c10d._world.pg_map


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


SCENARIOS: list[Callable[[Path], Seen]] = [
    all_readings, captures, in_many_blocks, in_a_training_job, of_a_group, of_different_models, a_rank_fails,
    a_rank_fails_while_writing, a_rank_dies,
]  # fmt: skip


def one_rank(folder: Path, rank: int, size: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    for scenario in SCENARIOS:
        if size == 1 and scenario is a_rank_dies:
            continue
        place = folder / scenario.__name__
        place.mkdir(exist_ok=True)
        torch.save(scenario(place), folder / f"{scenario.__name__}.{rank}.pt")
        if scenario is not a_rank_dies:
            dist.barrier()
    os._exit(0)  # the group may be broken


def main(folder: Path) -> int:
    torch.set_num_threads(1)
    worst = 0
    for size in SIZES:
        place = folder / str(size)
        place.mkdir()
        children = []
        for rank in range(size):
            child = os.fork()
            if child == 0:
                try:
                    one_rank(place, rank, size)
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(1)
            children.append(child)
        worst = max(worst, *(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
    return worst


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
