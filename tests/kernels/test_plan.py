"""The plan says beforehand what a kernel will cost, and the kernels keep to it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from benchmarks import models
from benchmarks.flops import counted_flops
from tangentlens.kernels import blockwise, entk, entk_full, plan
from tangentlens.kernels.top_spectrum import top_spectrum
from tests.reference import tangent
from tests.reference.tangent import examples
from tests.zoo.entry import mlp
from tests.zoo.known import NAMES, known_jacobian, measured


@pytest.mark.parametrize("reduction", ["full", "mean"])
@pytest.mark.parametrize("name", NAMES)
def test_the_plan_names_a_rung_for_every_trainable_parameter(name, reduction):
    model, inputs, options = measured(name, torch.float32)
    made = plan(model, inputs, reduction=reduction, **options)
    assert [row.name for row in made.rows] == list(tangent.trainable(model))
    for row in made.rows:
        used = bool(known_jacobian(name)[row.name].any())
        assert row.rung in ({"rule", "vmap", "loop"} if used else {"rule", "vmap", "loop", "unused"}), row
        assert row.shape == tuple(model.get_parameter(row.name).shape)
        assert row.flops >= 0  # nothing where the examples that were looked at leave the parameter aside
    assert made.flops > 0


def test_the_plan_counts_examples_outputs_and_bytes():
    model, inputs, options = measured("mlp_tanh", torch.float32)
    made = plan(model, inputs, examples(inputs, [0, 1]), **options)
    assert (made.examples, made.others, made.outputs) == (4, 2, 3)
    assert made.kernel_bytes == 4 * 3 * 2 * 3 * 4
    assert made.fits and made.bytes >= made.kernel_bytes and made.chunk >= 1
    assert made.flops == sum(row.flops for row in made.rows)
    averaged = plan(model, inputs, reduction="mean", dtype=torch.float64, **options)
    assert averaged.kernel_bytes == 4 * 4 * 8 and averaged.dtype == torch.float64


def test_the_plan_of_an_mlp_counts_the_factored_products():
    """N^2 p + (N C)^2 q multiply-adds per layer, two flops each, over one triangle of a symmetric kernel."""
    model, inputs = mlp(30, 40, 20, 3), torch.randn(16, 30)
    made = {row.name: row for row in plan(model, inputs).rows}
    first = made["0.weight"]
    assert first.way == "factored" and first.positions == 1
    counted = 16**2 * 30 + (16 * 3) ** 2 * 40
    assert 0.9 * counted <= first.flops <= 2.2 * counted


COUNTED = {
    "mlp": (lambda: models.mlp([20, 32, 32, 5]), lambda n: torch.randn(n, 20)),
    "cnn": (lambda: models.cnn([4, 6], 5, (3, 8, 8)), lambda n: torch.randn(n, 3, 8, 8)),
    "one output": (lambda: models.mlp([20, 32, 1]), lambda n: torch.randn(n, 20)),
}


@pytest.mark.parametrize("reduction", ["full", "mean"])
@pytest.mark.parametrize("name", COUNTED)
def test_the_products_of_all_pairs_are_those_the_kernel_is_counted_to_take(name, reduction, monkeypatch):
    """The part that grows with pairs of examples, from three sizes; tiles are small, so that half of it is computed."""
    monkeypatch.setitem(blockwise._TILE_ROWS, "cpu", 20)
    made, drawn = COUNTED[name]
    model, found = made(), []
    for count in (20, 40, 60):
        inputs = drawn(count)
        with counted_flops() as counter:
            (entk_full if reduction == "full" else entk)(model, inputs)
        found.append((counter.get_total_flops(), plan(model, inputs, reduction=reduction).flops))
    counted, planned = (a - 2 * b + c for a, b, c in zip(*found, strict=True))
    assert planned == pytest.approx(counted, rel=0.1)


def test_a_bias_costs_one_more_column_of_its_weight():
    rows = {row.name: row for row in plan(mlp(30, 40, 20, 3), torch.randn(16, 30)).rows}
    assert rows["0.bias"].way == "folded" and rows["0.bias"].flops == 16**2
    assert rows["0.bias"].kept_bytes == 16 * 4


def test_an_averaged_kernel_costs_no_more_than_the_full_one():
    for name in ("cnn", "transformer_encoder", "mlp_tanh"):
        model, inputs, options = measured(name, torch.float32)
        assert plan(model, inputs, reduction="mean", **options).flops <= plan(model, inputs, **options).flops


def test_long_sequences_and_images_are_formed_and_single_rows_are_factored():
    image = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 256, 2))
    ways = {row.name: row.way for row in plan(image, torch.randn(6, 2, 16, 16)).rows}
    assert ways["0.weight"] == "formed" and ways["3.weight"] == "factored"


def test_positions_that_no_output_depends_on_are_not_counted():
    """With outputs read at the last of 12 positions, the layer above the mixing has one position left."""

    class LastToken(nn.Module):
        def __init__(self):
            super().__init__()
            self.below, self.above = nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.above(torch.tanh(self.below(x)).cumsum(1))

    rows = plan(LastToken(), torch.randn(5, 12, 4), outputs=lambda raw: raw[:, -1]).rows
    assert {row.name: row.positions for row in rows if "weight" in row.name} == {"below.weight": 12, "above.weight": 1}


def test_the_plan_reads_as_a_table():
    model, inputs, options = measured("gpt2_eager", torch.float32)
    text = str(plan(model, inputs, **options))
    for fact in ("transformer.wte.weight", "rule", "flops", "fits", "outputs"):
        assert fact in text


def test_the_plan_says_where_the_outputs_of_a_model_output_come_from():
    model, inputs, options = measured("gpt2_all_logits", torch.float32)
    assert "logits" in plan(model, inputs, **options).outputs_from


def test_a_plan_of_a_kernel_that_cannot_fit_takes_no_time_and_says_so():
    model, inputs = nn.Linear(1, 4000), torch.ones(1, 1).expand(2_000, 1)
    made = plan(model, inputs)
    assert not made.fits and "does not fit" in str(made)


@pytest.mark.parametrize(
    ("hidden", "examples", "outputs", "modes", "way"),
    [(2, 900, 6, 20, "dual"), (300, 40, 3, 20, "dense"), (3000, 900, 6, 20, "krylov"), (3000, 900, 6, 5000, "dense")],
)
def test_the_plan_of_modes_names_the_route_and_counts_what_it_holds(hidden, examples, outputs, modes, way):
    model = mlp(4, hidden, hidden, outputs) if hidden < 3000 else mlp(4, hidden, 5, outputs)
    made = plan(model, torch.randn(examples, 4), modes=modes)
    rows, size = examples * outputs, sum(parameter.numel() for parameter in model.parameters())
    assert made.route is not None and made.route.way == way and made.dtype == torch.float64
    assert f"{modes:,} modes by {way}" in str(made)
    matrix = {"dense": rows**2, "dual": size**2, "krylov": 2 * rows * 4 * (modes + 8)}[way]
    assert made.kernel_bytes == 8 * (matrix + rows * modes)


def test_top_spectrum_takes_the_route_the_plan_names():
    model, inputs = mlp(4, 2, 2, 6).double(), torch.randn(30, 4, dtype=torch.float64)
    made = plan(model, inputs, modes=3)
    assert made.route is not None and top_spectrum(model, inputs, modes=3).method == made.route.way == "dual"


def test_a_plan_of_modes_is_one_of_the_full_kernel_of_one_set_of_inputs():
    model, inputs = mlp(4, 2, 2, 6), torch.randn(5, 4)
    with pytest.raises(ValueError, match="full kernel"):
        plan(model, inputs, modes=3, reduction="mean")
    with pytest.raises(ValueError, match="at most 30 modes"):
        plan(model, inputs, modes=31)
    assert plan(model, inputs).route is None


def test_a_plan_of_a_kernel_larger_than_memory_says_what_it_takes_on_disk(monkeypatch):
    monkeypatch.setattr(sys.modules["tangentlens.kernels.plan"], "free_bytes", lambda device: 1 << 30)
    model, inputs = mlp(4, 8, 3), torch.ones(1, 4).expand(20_000, 4)
    made = plan(model, inputs, reduction="mean")
    assert made.kernel_bytes > made.free_bytes and not made.fits
    assert made.disk_bytes is not None and 2 * 4 * 2048**2 <= made.disk_bytes < made.free_bytes
    assert "does not fit, but does on disk (out=) in " in str(made)


def test_a_plan_of_examples_too_large_for_any_memory_offers_no_disk(monkeypatch):
    monkeypatch.setattr(sys.modules["tangentlens.kernels.plan"], "free_bytes", lambda device: 1 << 10)
    made = plan(mlp(40, 80, 3), torch.ones(1, 40).expand(100, 40))
    assert made.disk_bytes is None and "on disk" not in str(made)


def test_memory_that_the_process_is_not_allowed_is_not_free():
    code = (
        "import resource, torch; resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))\n"
        "from tangentlens.kernels.memory import free_bytes\n"
        "free = free_bytes(torch.device('cpu')); held = torch.ones(64 << 20)\n"
        "print(free < 2 << 30, free - free_bytes(torch.device('cpu')) >= 256 << 20)"
    )
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"], done.stderr[-500:]
