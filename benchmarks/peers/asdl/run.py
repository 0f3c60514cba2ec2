"""ASDL (asdfghjkl): kernels of single outputs, whose mean is the averaged kernel."""

from __future__ import annotations

from typing import Any

from asdl.kernel import empirical_class_wise_direct_ntk, empirical_class_wise_hadamard_ntk

from benchmarks.peers.harness import Shared
from benchmarks.peers.torch_side import run


def method(function: Any) -> Any:
    def prepared(shared: Shared, kernel: str) -> Any:
        if kernel != "averaged":
            raise NotImplementedError("kernels of single outputs only")
        model, inputs = shared.torch()
        return lambda n: function(model, inputs[:n]).mean(-1), lambda k, few: k[:few, :few].detach()

    return prepared


if __name__ == "__main__":
    run({"Hadamard": method(empirical_class_wise_hadamard_ntk), "direct": method(empirical_class_wise_direct_ntk)})
