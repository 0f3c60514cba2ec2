"""Kernels past memory: written region by region, resumed after a kill, read by anyone, decomposed from their tiles."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xarray
from torch import nn

from tangentlens.capture.measuring import Measurement
from tangentlens.errors import BadInput, DifferentRun, NonFiniteKernel, RefusedForMemory
from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, plan, spectrum
from tangentlens.kernels.on_disk import OnDisk
from tangentlens.kernels.stored import StoredKernel, finished_regions, open_kernel
from tangentlens.kernels.top_spectrum import top_spectrum
from tests.zoo.entry import mlp

N, C = 23, 3


@pytest.fixture(autouse=True)
def small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions of four examples, so that 23 of them make an uneven grid of six: 21 on and above the diagonal."""
    monkeypatch.setattr("tangentlens.kernels.writing.region_rows", lambda *sizes: 4)


@pytest.fixture
def model() -> nn.Module:
    return mlp(5, 8, C).double()


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.randn(N, 5, dtype=torch.float64)


class Counted:
    """Calls of a method, and how many examples a capture saw."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.captured: list[int] = []
        self.regions: list[tuple[Any, Any]] = []
        pieces, done = Measurement.pieces, OnDisk.done

        def counted_pieces(measurement: Any, chunk: Any, names: Any, every_position: bool = False) -> Any:
            self.captured.append(chunk.length)
            return pieces(measurement, chunk, names, every_position)

        def counted_done(sink: Any, rows: Any, columns: Any) -> None:
            done(sink, rows, columns)
            self.regions.append((rows, columns))

        monkeypatch.setattr(Measurement, "pieces", counted_pieces)
        monkeypatch.setattr(OnDisk, "done", counted_done)

    @property
    def examples(self) -> int:
        """All but the three that the plan looks at."""
        assert self.captured[0] == 3
        return sum(self.captured[1:])


def digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


@pytest.mark.parametrize("function", [entk, entk_full, entk_mean_output])
@pytest.mark.parametrize("other", [False, True])
def test_a_kernel_on_disk_is_the_one_in_memory(function: Any, other: bool, model, inputs, tmp_path: Path) -> None:
    others = torch.randn(10, 5, dtype=torch.float64) if other else None
    expected = function(model, inputs, others)
    stored = function(model, inputs, others, out=tmp_path / "kernel")
    assert isinstance(stored, StoredKernel) and stored.progress()[0] == stored.progress()[1]
    found = stored.whole()
    assert found.dtype == torch.float64 and (found - expected).abs().max() < 1e-12
    assert torch.equal(stored.rows(5, 11), found[5:11])
    with xarray.open_zarr(tmp_path / "kernel") as labelled:
        assert labelled.kernel.dims == ("example", "other") if expected.ndim == 2 else expected.shape
        assert (torch.from_numpy(labelled.kernel.values) == found).all()
        assert labelled.attrs["reduction"] == ("full" if expected.ndim == 4 else "mean")
    if not other:
        square = found.flatten(2).flatten(0, 1) if found.ndim == 4 else found
        assert torch.equal(square, square.T)  # both triangles come from one computation


def test_its_dimensions_are_named_by_the_vocabulary(model, inputs, tmp_path: Path) -> None:
    stored = entk_full(model, inputs, out=tmp_path / "kernel")
    assert stored.dims == ("example", "output", "other", "other_output") and stored.shape == (N, C, N, C)
    assert "23 example x 3 output x 23 other x 3 other_output, float64" in repr(stored)
    assert "xarray.open_zarr" in stored._repr_html_()


def test_layers_on_disk_are_those_in_memory(model, inputs, tmp_path: Path) -> None:
    expected = entk_by_layer(model, inputs)
    stored = entk_by_layer(model, inputs, out=tmp_path / "kernel")
    assert stored.keys() == expected.keys()
    assert all((stored[name].whole() - expected[name]).abs().max() < 1e-12 for name in expected)
    with xarray.open_zarr(tmp_path / "kernel") as labelled:
        assert labelled.kernel.dims == ("layer", "example", "other")
        assert labelled.layer.values.tolist() == list(expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_killed_run_goes_on_and_computes_no_finished_region_again(model, inputs, tmp_path, monkeypatch) -> None:
    out = tmp_path / "kernel"
    expected = entk_full(model, inputs)
    child = os.fork()
    if child == 0:  # killed after the numbers of some region, before its mark
        put, count = OnDisk._put, iter(range(1000))

        def killed(sink: Any, array: Any, number: int, rows: Any, columns: Any, numbers: Any) -> None:
            put(sink, array, number, rows, columns, numbers)
            if next(count) == 20:
                os.kill(os.getpid(), signal.SIGKILL)

        OnDisk._put = killed  # type: ignore[method-assign]
        try:
            entk_full(model, inputs, out=out)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    before = finished_regions(out, symmetric=True)
    assert 0 < int(before.triu().sum()) < 21
    with pytest.raises(BadInput, match="is not finished: [0-9]+ of 21 regions"):
        open_kernel(out).whole()
    counted = Counted(monkeypatch)
    stored = entk_full(model, inputs, out=out)
    assert len(counted.regions) == 21 - int(before.triu().sum())
    assert not any(before[rows[0] // 4, columns[0] // 4] for rows, columns in counted.regions)
    assert (stored.whole() - expected).abs().max() < 1e-12


def test_a_finished_kernel_is_opened_without_capturing(model, inputs, tmp_path, monkeypatch) -> None:
    first = entk(model, inputs, out=tmp_path / "kernel").whole()
    counted = Counted(monkeypatch)
    assert torch.equal(entk(model, inputs, out=tmp_path / "kernel").whole(), first)
    assert counted.examples == 0 and counted.regions == []


def test_where_memory_suffices_every_example_is_captured_once(model, inputs, tmp_path, monkeypatch) -> None:
    counted = Counted(monkeypatch)
    entk(model, inputs, out=tmp_path / "kernel")
    assert counted.examples == N


def test_where_not_even_two_regions_fit_the_kernel_is_refused(model, inputs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tangentlens.kernels.blockwise.free_for_each", lambda job, device: 1000)
    with pytest.raises(RefusedForMemory, match="two regions of 4 examples need"):
        entk(model, inputs, out=tmp_path / "kernel")


def test_where_memory_is_short_columns_pass_by_a_block_that_is_held(model, inputs, tmp_path, monkeypatch) -> None:
    """Room for three regions of four examples: blocks of two are held, and every later region passes by."""
    kept = sum(row.kept_bytes for row in plan(model, inputs, reduction="mean").rows) / N
    monkeypatch.setattr("tangentlens.kernels.blockwise.free_for_each", lambda job, device: int(8 * 12 * kept))
    counted = Counted(monkeypatch)
    stored = entk(model, inputs, chunk=4, out=tmp_path / "kernel")
    assert counted.examples == N + (N - 8) + (N - 16)
    assert len(counted.regions) == len(set(counted.regions)) == 21
    assert (stored.whole() - entk(model, inputs)).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, x: (entk, m[:], x + 1, {}), "another probe"),
        (lambda m, x: (entk, m[:], x, {"parameters": "0.*"}), "another kind: expected parameters"),
        (lambda m, x: (entk, m[:], x, {"outputs": lambda y: y[:, :2]}), "another choice of outputs"),
        (lambda m, x: (entk, m[:], x, {"dtype": torch.float32}), "another kind: expected dtype float64, got float32"),
        (lambda m, x: (entk_full, m[:], x, {}), "another kind: expected reduction mean, got full"),
        (lambda m, x: (entk_by_layer, m[:], x, {}), "another kind: expected layers"),
        (lambda m, x: (entk, mlp(5, 8, C).double(), x, {}), "another model"),
    ],
)
def test_another_kernel_is_refused_and_nothing_changes(change: Callable, words: str, model, inputs, tmp_path) -> None:
    entk(model, inputs, out=tmp_path / "kernel")
    before = digest(tmp_path / "kernel")
    function, other, probe, options = change(model, inputs)
    with pytest.raises(DifferentRun, match=words):
        function(other, probe, out=tmp_path / "kernel", **options)
    assert digest(tmp_path / "kernel") == before


def test_outputs_that_differ_behind_the_first_few_are_another_choice(inputs, tmp_path) -> None:
    wide = mlp(5, 4, 100).double()
    entk(wide, inputs, out=tmp_path / "kernel")
    with pytest.raises(DifferentRun, match="another choice of outputs"):
        entk(wide, inputs, out=tmp_path / "kernel", outputs=lambda y: torch.cat([y[:, :90], 3 * y[:, 90:]], 1))


def test_a_folder_that_is_no_kernel_is_left_alone(model, inputs, tmp_path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DifferentRun, match="expected a kernel or nothing"):
        entk(model, inputs, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_kernel_larger_than_the_disk_is_refused_before_the_work(model, inputs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1000, 900, 100))
    with pytest.raises(RefusedForMemory, match=r"a kernel of 23 x 23 takes 4\.13 KiB on disk, got 100 B free"):
        entk(model, inputs, out=tmp_path / "kernel")
    assert list(tmp_path.iterdir()) == []


def test_a_region_that_is_not_finite_is_not_marked(model, inputs, tmp_path) -> None:
    inputs[-1] = 1e200
    inputs[-1, 0] = float("inf")
    with pytest.raises(NonFiniteKernel, match="first at example 22"):
        entk(model, inputs, out=tmp_path / "kernel")
    finished = finished_regions(tmp_path / "kernel", symmetric=True)
    assert finished[0, :5].all() and not finished[5].any()


@pytest.mark.parametrize("function", [entk, entk_full])
def test_modes_from_tiles_are_those_of_the_kernel_in_memory(function, model, inputs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tangentlens.kernels.stored_spectrum.SMALL", 4)
    kernel = function(model, inputs)
    stored = function(model, inputs, out=tmp_path / "kernel")
    expected, found = spectrum(kernel, 4), spectrum(stored, 4)
    assert found.method == "krylov on the tiles on disk" and bool(found.converged.all())
    assert torch.allclose(found.eigenvalues, expected.eigenvalues, rtol=1e-9)
    assert float(found.residuals.max()) < 1e-9
    loaded = spectrum(stored)
    assert loaded.method == "eigh of the kernel on disk" and len(loaded) == len(spectrum(kernel))


@pytest.mark.parametrize("function", [entk, entk_full])
@pytest.mark.parametrize(("method", "words"), [("tiles", "krylov on the tiles"), ("krylov", "the model's product")])
def test_top_spectrum_takes_tiles_or_the_product(function, method, words, model, inputs, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tangentlens.kernels.stored_spectrum.SMALL", 4)
    stored = function(model, inputs, out=tmp_path / "kernel")
    found = top_spectrum(model, inputs, modes=4, stored=stored, method=method)
    assert words in found.method and bool(found.converged.all())
    assert torch.allclose(found.eigenvalues, spectrum(function(model, inputs), 4).eigenvalues, rtol=1e-8)


def test_the_cheaper_of_tiles_and_product_is_taken_and_named(model, inputs, tmp_path, monkeypatch) -> None:
    stored = entk(model, inputs, out=tmp_path / "kernel")
    found = []
    for cost in (0.0, float("inf")):
        monkeypatch.setattr("tangentlens.kernels.top_spectrum.cost_of_tiles", lambda kernel, vectors, c=cost: c)
        found.append(top_spectrum(model, inputs, modes=2, stored=stored))
    tiles, product = found
    assert "disk" in tiles.method and "product" in product.method
    assert torch.allclose(tiles.eigenvalues, product.eigenvalues, rtol=1e-8)
    with pytest.raises(DifferentRun, match="another probe"):
        top_spectrum(model, inputs + 1, modes=2, stored=stored)


def test_top_spectrum_takes_the_whole_kernel_alone(model, inputs, tmp_path) -> None:
    """A layer's modes and the model's differ: neither may come out because it was cheaper."""
    unchecked = inspect.unwrap(top_spectrum)  # the tests check types before the function can
    layers = entk_by_layer(model, inputs, out=tmp_path / "layers")
    for stored, got in ((layers, "got a dict"), (next(iter(layers.values())), "got StoredKernel")):
        for method in (None, "tiles", "krylov"):
            with pytest.raises(BadInput, match=f"stored= is the model's whole kernel.* {got}"):
                unchecked(model, inputs, modes=2, stored=stored, method=method)
    with pytest.raises(TypeError, match="needs one kernel, .* got dict; .* layers"):
        inspect.unwrap(spectrum)(layers, 2)


@pytest.mark.parametrize("method", ["dense", "dual"])
def test_routes_that_do_not_read_the_disk_are_refused_beside_it(method, model, inputs, tmp_path) -> None:
    stored = entk(model, inputs, out=tmp_path / "kernel")
    with pytest.raises(ValueError, match=f"beside stored= method= is 'tiles' or 'krylov', got '{method}'"):
        top_spectrum(model, inputs, modes=2, stored=stored, method=method)


def test_products_with_a_stored_kernel_refuse_what_does_not_fit(model, inputs, tmp_path) -> None:
    stored = entk_full(model, inputs, out=tmp_path / "kernel")
    vectors = torch.randn(N * C, 2, dtype=torch.float64)
    expected = entk_full(model, inputs).flatten(2).flatten(0, 1) @ vectors
    assert (stored @ vectors - expected).abs().max() < 1e-11
    assert (stored @ vectors[:, 0] - expected[:, 0]).abs().max() < 1e-11
    with pytest.raises(BadInput, match=r"needs vectors of shape \(69, k\), got \(23, 1\)"):
        stored @ vectors[:N, :1]
    with pytest.raises(BadInput, match="there is no kernel at"):
        open_kernel(tmp_path / "nothing")


def test_kernels_are_computed_where_zarr_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['zarr'] = sys.modules['xarray'] = None\n"
        "import torch; from tangentlens.kernels import entk\n"
        "print(entk(torch.nn.Linear(2, 1, bias=False), torch.eye(2)).trace().item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "2.0", done.stderr[-500:]
