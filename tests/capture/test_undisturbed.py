"""The observer changes nothing: not what the user gave, not what the process was set to, also after an error."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress

import pytest
import torch
from torch import nn, randn

from tangentlens.kernels import (
    entk,
    entk_by_layer,
    entk_full,
    entk_mean_output,
    entk_product,
    features,
    layer_moments,
    plan,
)
from tests.capture.undisturbed_state import differences, state
from tests.zoo.entry import Written, mlp
from tests.zoo.known import NAMES, measured, off


def with_gradients(model: nn.Module) -> None:
    """Some parameters hold a gradient already, some do not."""
    for index, parameter in enumerate(model.parameters()):
        if index % 2 == 0 and parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, float(index + 1))


@pytest.mark.parametrize("name", NAMES)
def test_measuring_leaves_no_trace(name):
    model, inputs, options = measured(name, torch.float32)
    with_gradients(model)
    before = state(model, inputs)
    plan(model, inputs, **options)
    entk_full(model, inputs, **options)
    entk(model, inputs, **options)
    entk_mean_output(model, inputs, **options)
    entk_by_layer(model, inputs, **options)
    product = entk_product(model, inputs, **options)
    product @ torch.ones(product.shape[1], 1)
    assert differences(before, state(model, inputs)) == []


@pytest.mark.parametrize("read", [layer_moments, features], ids=["layer_moments", "features"])
def test_reading_moments_and_features_leaves_no_trace(read):
    for name in ("mlp_tanh", "cnn", "transformer_encoder", "counting_buffers", "inplace_relu_mlp"):
        model, inputs, options = measured(name, torch.float32)
        with_gradients(model)
        before = state(model, inputs)
        read(model, inputs, **options)
        assert differences(before, state(model, inputs)) == [], name


DRAWING = """
import random, numpy, torch
from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_product

class Drawing(torch.nn.Linear):
    def forward(self, x):
        random.random(), numpy.random.rand(), torch.rand(3)
        return super().forward(x)

model, inputs = Drawing(3, 2), torch.randn(4, 3)
before = random.getstate(), numpy.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()
entk(model, inputs), entk_full(model, inputs), entk_by_layer(model, inputs)
entk_product(model, inputs) @ torch.ones(8, 1)
assert before == (random.getstate(), numpy.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist())
"""


def test_random_states_are_as_before_when_the_model_draws_from_all_of_them():
    """In a process of its own: the type checks of the test run draw from Python's random numbers themselves."""
    subprocess.run([sys.executable, "-c", DRAWING], check=True, timeout=100)


def test_hooks_on_parameters_are_neither_told_nor_part_of_the_kernel():
    """Masks and clipping of gradients belong to training, like the optimiser: the kernel is of the function."""
    model, inputs, told = mlp(3, 4, 2), randn(4, 3), []
    plain = entk_full(model, inputs)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: told.append(1) or gradient.clamp(-0.01, 0.01))
    before = state(model, inputs)
    assert off(entk_full(model, inputs), plain.double()) < 1e-6
    assert not told
    assert differences(before, state(model, inputs)) == []
    model(inputs).sum().backward()
    assert len(told) == 4


@pytest.mark.parametrize("calls_before_the_error", [0, 1, 2])
def test_an_error_inside_forward_leaves_no_trace(calls_before_the_error):
    calls = []

    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.BatchNorm1d(4), nn.Linear(4, 2))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            torch.rand(1), random.random()
            out = self.net(x)
            if len(calls) >= calls_before_the_error:
                raise RuntimeError("the model's own mistake")
            calls.append(1)
            return out

    model, inputs = Failing(), randn(4, 3)
    model.eval()
    model.net[0].train()  # flags that differ from module to module
    with_gradients(model)
    before = state(model, inputs)
    if calls_before_the_error == 0:
        with pytest.raises(RuntimeError, match="the model's own mistake"):
            entk_full(model, inputs)
    else:  # how often the model is run is the library's business
        with suppress(RuntimeError):
            entk_full(model, inputs)
    assert differences(before, state(model, inputs)) == []


def test_an_error_inside_the_backward_pass_leaves_no_trace():
    class Stubborn(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("no way back")

    model, inputs = Written(lambda m, x: Stubborn.apply(m.net(x)), net=mlp(3, 4, 2)), randn(4, 3)
    with_gradients(model)
    before = state(model, inputs)
    with pytest.raises(RuntimeError, match="no way back"):
        entk(model, inputs)
    assert differences(before, state(model, inputs)) == []


def test_an_error_inside_outputs_leaves_no_trace():
    def outputs(raw):
        raise KeyError("no such output")

    model, inputs = mlp(3, 4, 2), randn(4, 3)
    with_gradients(model)
    before = state(model, inputs)
    with pytest.raises(KeyError, match="no such output"):
        entk(model, inputs, outputs=outputs)
    assert differences(before, state(model, inputs)) == []


def test_the_result_is_the_same_under_no_grad_autocast_and_inference_mode():
    model, inputs = mlp(3, 6, 2), randn(4, 3)
    true = entk_full(model, inputs)
    with torch.no_grad():
        assert torch.equal(entk_full(model, inputs), true)
    with torch.autocast("cpu", torch.bfloat16):
        before = state(model, inputs)
        found = entk_full(model, inputs)
        assert differences(before, state(model, inputs)) == []
    assert found.dtype == torch.float32 and off(found, true.double()) < 1e-6
    with torch.inference_mode():
        assert off(entk_full(model, inputs), true.double()) < 1e-6


def test_the_default_dtype_of_the_process_does_not_matter():
    model, inputs = mlp(3, 6, 2), randn(4, 3)
    true = entk_full(model, inputs)
    torch.set_default_dtype(torch.float64)
    try:
        found = entk_full(model, inputs)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32 and torch.equal(found, true)


def test_a_training_step_after_measuring_is_the_step_without_measuring():
    results = []
    for observe in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.BatchNorm1d(8), nn.Linear(8, 2)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        data = torch.randn(3, 6, 3)
        for batch in data:
            if observe:
                model.eval()
                entk_full(model, batch)
                model.train()
            optimizer.zero_grad()
            model(batch).pow(2).sum().backward()
            optimizer.step()
        results.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    assert torch.equal(*results)


def test_gradients_can_still_flow_through_an_earlier_forward_pass():
    """No parameter's version may move: a graph that was built before measuring must survive it."""
    model, inputs = mlp(3, 4, 2), randn(4, 3)
    loss = model(inputs).pow(2).sum()
    entk_full(model, inputs)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_kernel_keeps_no_graph_and_no_model_alive():
    import gc
    import weakref

    model, inputs = mlp(3, 4, 2), randn(4, 3)
    kernel = entk_full(model, inputs)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert kernel.grad_fn is None and alive() is None


def test_a_compiled_wrapper_is_measured_by_the_module_inside_without_compiling():
    compiled = []

    def backend(graph, example_inputs):
        compiled.append(graph)
        return graph.forward

    model, inputs = mlp(3, 4, 2), randn(4, 3)
    wrapped = torch.compile(model, backend=backend)
    before = state(wrapped, inputs)
    assert torch.equal(entk_full(wrapped, inputs), entk_full(model, inputs))
    assert compiled == [] and differences(before, state(wrapped, inputs)) == []
    wrapped(inputs)
    assert len(compiled) == 1, "the wrapper compiles as before"


def test_a_compiled_part_inside_an_eager_model_is_measured_exactly():
    inner, head, inputs = mlp(3, 4, 3), nn.Linear(3, 2), randn(4, 3)
    eager = nn.Sequential(inner, head)
    true = entk_full(eager, inputs)
    mixed = nn.Sequential(torch.compile(inner, backend="eager"), head)
    mixed(inputs)  # compiled before the measurement: its graph no longer passes through Python
    assert off(entk_full(mixed, inputs), true.double()) < 2e-6


def test_a_data_parallel_wrapper_is_measured_by_the_module_inside(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, inputs = mlp(3, 4, 2), randn(4, 3)
        wrapped = nn.parallel.DistributedDataParallel(model)
        before = state(wrapped, inputs)
        assert torch.equal(entk_full(wrapped, inputs), entk_full(model, inputs))
        assert differences(before, state(wrapped, inputs)) == []
    finally:
        torch.distributed.destroy_process_group()
