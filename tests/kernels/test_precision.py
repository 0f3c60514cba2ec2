"""Float32 means float32, whatever the process was set to; less is taken only when asked, and says what it costs."""

from __future__ import annotations

import inspect

import pytest
import torch

from tangentlens.capture.precision import _operations, lower_precision, products_in
from tangentlens.errors import BadInput
from tangentlens.kernels import blockwise, entk, entk_by_layer, entk_full
from tests.zoo.entry import mlp


def settings() -> list[object]:
    found: list[object] = [operation.fp32_precision for operation in _operations()]
    for read in (torch.get_float32_matmul_precision, lambda: torch.backends.cudnn.allow_tf32):
        try:
            found.append(read())
        except RuntimeError:  # set by operation, which the older way of asking does not know
            found.append("by operation")
    return found


@pytest.fixture(params=["default", "medium", "no convolutions", "by operation"])
def process(request: pytest.FixtureRequest):
    before = [(operation, operation.fp32_precision) for operation in _operations()]
    if request.param == "medium":
        torch.set_float32_matmul_precision("medium")
    elif request.param == "no convolutions":
        torch.backends.cudnn.allow_tf32 = False
    elif request.param == "by operation":
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    for operation, precision in before:
        operation.fp32_precision = precision


def test_a_model_is_measured_in_float32_and_the_process_is_as_it_was(process):
    before, seen = settings(), []

    def outputs(y: torch.Tensor) -> torch.Tensor:
        seen.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
        return y

    entk(mlp(4, 5, 3), torch.randn(6, 4), outputs=outputs)
    assert set(seen) == {("highest", False)}
    assert settings() == before
    with pytest.raises(ZeroDivisionError):
        entk(mlp(4, 5, 3), torch.randn(6, 4), outputs=lambda y: 1 / 0)
    assert settings() == before


@pytest.mark.parametrize(("precision", "word"), [("tf32", "high"), ("bf16", "medium")])
def test_products_are_lowered_when_asked_and_captures_are_not(precision, word, monkeypatch):
    captured, multiplied = [], []
    add = blockwise.add_mean

    def adding(*parts):
        multiplied.append(torch.get_float32_matmul_precision())
        add(*parts)

    monkeypatch.setattr(blockwise, "add_mean", adding)
    read = lambda y: captured.append(torch.get_float32_matmul_precision()) or y  # noqa: E731
    with lower_precision(precision):
        entk(mlp(4, 5, 3), torch.randn(20, 4), outputs=read)
    assert set(captured) == {"highest"} and set(multiplied) == {word, "highest"}  # float32 for the error alone
    multiplied.clear()
    entk(mlp(4, 5, 3), torch.randn(20, 4))
    assert set(multiplied) == {"highest"}


def test_each_kernel_states_its_error_on_the_first_examples(monkeypatch, tmp_path):
    """Products that are off by a thousandth, as those of ten bits are."""
    add = blockwise.add_full

    def rounded(tile, rows, columns):
        add(tile, rows, columns)
        if torch.get_float32_matmul_precision() != "highest":
            tile *= 1.001

    model, x = mlp(4, 5, 3), torch.randn(20, 4)
    exact = entk_full(model, x)
    monkeypatch.setattr(blockwise, "add_full", rounded)
    with lower_precision("tf32") as lowered:
        found = entk_full(model, x)
        entk_full(model, x, x[:3], out=tmp_path / "kernel")
        entk_by_layer(model, x)
    stated, on_disk, by_layer = lowered.errors
    real = float((found - exact)[:8, :, :8].norm() / exact[:8, :, :8].norm())
    assert stated == pytest.approx(real, rel=1e-3) and stated > 1e-3 and on_disk > 1e-3 and by_layer < 1e-6


def test_nothing_is_asked_for_after_an_error_inside():
    with pytest.raises(ZeroDivisionError), lower_precision("bf16"):
        raise ZeroDivisionError
    with products_in(None):
        assert torch.get_float32_matmul_precision() == "highest"
    with lower_precision("tf32") as lowered:
        entk(mlp(4, 5, 3), torch.randn(5, 4))
    assert len(lowered.errors) == 1


def test_an_unknown_precision_is_refused_by_name():
    with pytest.raises(BadInput, match="'tf32' or 'bf16', got 'half'"):
        next(inspect.unwrap(lower_precision)("half"))
