"""The networks of the workloads in jax, reading the weights torch saved, by their names there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

Weights = dict[str, Any]
Network = Callable[[Weights, Any], Any]


def split(weights: Weights) -> tuple[Weights, Weights]:
    """What is trained, and the running statistics of BatchNorm, which are not."""
    fixed = ("running_mean", "running_var", "num_batches_tracked")
    trained = {name: value for name, value in weights.items() if not name.endswith(fixed)}
    return trained, {name: value for name, value in weights.items() if name not in trained}


def laid_out(weights: Weights) -> Weights:
    """Matrices as (into, out), which the network multiplies as they are: behind a transpose of the parameter
    neural-tangents finds no structure (400 times slower on the MLP). A kernel does not depend on it."""
    tables = ("tokens.weight", "positions.weight")
    return {
        name: jnp.array(value.T) if value.ndim == 2 and name not in tables else value for name, value in weights.items()
    }


def network(builder: str, sizes: dict[str, Any], statistics: Weights) -> Network:
    made: dict[str, Network] = {
        "mlp": lambda w, x: _mlp(w, x, len(sizes["widths"]) - 1),
        "cnn": lambda w, x: _cnn(w, x, len(sizes["channels"])),
        "resnet18": lambda w, x: _resnet({**w, **statistics}, x),
        "Transformer": lambda w, x: _transformer(w, x, sizes["layers"], sizes["heads"]),
        "Quadratic": _quadratic,
    }  # type: ignore[dict-item]
    return made[builder]


def _linear(w: Weights, name: str, x: Any) -> Any:
    found = x @ w[f"{name}.weight"]
    return found + w[f"{name}.bias"] if f"{name}.bias" in w else found


def _mlp(w: Weights, x: Any, layers: int) -> Any:
    for index in range(layers):
        x = _linear(w, str(2 * index), x if index == 0 else nn.relu(x))
    return x


def _convolution(w: Weights, name: str, x: Any, stride: int = 1) -> Any:
    kernel = w[f"{name}.weight"]
    pad = kernel.shape[-1] // 2
    names = ("NCHW", "OIHW", "NCHW")
    found = lax.conv_general_dilated(x, kernel, (stride, stride), ((pad, pad), (pad, pad)), dimension_numbers=names)
    return found + w[f"{name}.bias"][:, None, None] if f"{name}.bias" in w else found


def _halved(x: Any) -> Any:
    """2 x 2 maxima."""
    n, c, h, v = x.shape
    return x.reshape(n, c, h // 2, 2, v // 2, 2).max((3, 5))


def _cnn(w: Weights, x: Any, layers: int) -> Any:
    place = 0
    for index in range(layers):
        x = nn.relu(_convolution(w, str(place), x))
        place += 2
        if index < layers - 1:
            x, place = _halved(x), place + 1
    return _linear(w, str(place + 2), x.mean((2, 3)))


def _norm(w: Weights, name: str, x: Any) -> Any:
    scale = w[f"{name}.weight"] / jnp.sqrt(w[f"{name}.running_var"] + 1e-5)
    return (x - w[f"{name}.running_mean"][:, None, None]) * scale[:, None, None] + w[f"{name}.bias"][:, None, None]


def _resnet(w: Weights, x: Any) -> Any:
    x = nn.relu(_norm(w, "1", _convolution(w, "0", x)))
    for block in range(8):
        name = str(3 + block)
        stride = 2 if block and block % 2 == 0 else 1
        inner = nn.relu(_norm(w, f"{name}.body.1", _convolution(w, f"{name}.body.0", x, stride)))
        inner = _norm(w, f"{name}.body.4", _convolution(w, f"{name}.body.3", inner))
        if f"{name}.around.0.weight" in w:
            x = _norm(w, f"{name}.around.1", _convolution(w, f"{name}.around.0", x, stride))
        x = nn.relu(inner + x)
    return _linear(w, "13", x.mean((2, 3)))


def _layer_norm(w: Weights, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def _transformer(w: Weights, tokens: Any, layers: int, heads: int) -> Any:
    x = w["tokens.weight"][tokens] + w["positions.weight"][: tokens.shape[1]]
    future = jnp.triu(jnp.ones((tokens.shape[1], tokens.shape[1]), bool), 1)
    for layer in range(layers):
        name = f"blocks.{layer}"
        packed = _linear(w, f"{name}.packed", _layer_norm(w, f"{name}.norm_attention", x))
        query, key, value = packed.reshape(*packed.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
        mixed = jax.nn.softmax(jnp.where(future, -jnp.inf, scores), -1) @ value
        x = x + _linear(w, f"{name}.merged", mixed.transpose(0, 2, 1, 3).reshape(x.shape))
        inner = _linear(w, f"{name}.mlp.0", _layer_norm(w, f"{name}.norm_mlp", x))
        x = x + _linear(w, f"{name}.mlp.2", nn.gelu(inner, approximate=False))
    return _linear(w, "head", _layer_norm(w, "norm", x)[:, -1])


def _quadratic(w: Weights, pairs: Any) -> Any:
    hidden = (pairs @ w["inner"] / w["inner"].shape[0] ** 0.5) ** 2
    return hidden @ w["outer"] / w["outer"].shape[0]
