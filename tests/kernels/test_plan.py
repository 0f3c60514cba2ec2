"""The plan says beforehand what a kernel will cost, and the kernels keep to it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tangentlens.kernels import plan
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
        used = bool(known_jacobian(name)[row.name].abs().max() > 0)
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
