"""neural-tangents: structured derivatives, Jacobian contraction and vector products, whole or in blocks of examples."""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# its converter from TensorFlow is left out: importing TensorFlow would count 400 MiB against it
sys.modules["neural_tangents.experimental"] = ModuleType("neural_tangents.experimental")
import neural_tangents as nt  # noqa: E402
from neural_tangents import NtkImplementation  # noqa: E402

from benchmarks.peers.harness import Shared, main, with_modes  # noqa: E402
from benchmarks.peers.neural_tangents.networks import laid_out, network, split  # noqa: E402


def method(implementation: NtkImplementation, most: int = 0) -> Any:
    def prepared(shared: Shared, kernel: str) -> Any:
        if kernel not in ("full", "averaged"):
            raise NotImplementedError("no spectra")
        weights, statistics = split(laid_out({name: jnp.asarray(value) for name, value in shared.weights.items()}))
        described = shared.described
        function = network(described["builder"], described["sizes"], statistics)
        trace = () if kernel == "full" else (-1,)
        found = nt.empirical_ntk_fn(function, trace_axes=trace, vmap_axes=0, implementation=implementation)
        # blocks must divide the examples
        block = max((size for size in range(1, most + 1) if len(shared.inputs) % size == 0), default=0)
        call = nt.batch(found, block, device_count=0) if block else jax.jit(found, static_argnums=1)
        inputs = jnp.asarray(shared.inputs)

        def compute(n: int) -> Any:
            return jax.block_until_ready(call(inputs[:n], None, weights))

        if kernel == "averaged":
            return compute, lambda k, few: np.asarray(k[:few, :few])
        return compute, lambda k, few: np.asarray(k[:few, :few]).transpose(0, 2, 1, 3)

    return prepared


def matmul_rate(size: int = 2048) -> float:
    left = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    product(left, left).block_until_ready()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        product(left, left).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)


if __name__ == "__main__":
    methods = {
        "structured": method(NtkImplementation.STRUCTURED_DERIVATIVES),
        "structured-blocks": method(NtkImplementation.STRUCTURED_DERIVATIVES, 32),
        "contraction": method(NtkImplementation.JACOBIAN_CONTRACTION),
        "products": method(NtkImplementation.NTK_VECTOR_PRODUCTS),
    }
    main({name: with_modes(each) for name, each in methods.items()}, matmul_rate, compiled=True)
