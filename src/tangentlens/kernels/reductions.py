"""Four readings of a kernel over examples and outputs, which share the name "eNTK" in lin2025 (arXiv 2510.00468).

All take K (example, output, other, output) and none is another up to a factor. `trace_mean` is what `entk` returns and
`all_pairs_mean` what `entk_mean_output` returns, both without forming K.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def flattened_class_major(
    kernel: Float[Tensor, "example output other output"],
) -> Float[Tensor, "example_output other_output"]:
    """The whole kernel as a matrix, one block of examples per output: row c*N + n (superposition and Gemma figures).

    The rest of this library uses row n*C + c; the two differ by a permutation, so their eigenvalues agree.
    """
    return _checked(kernel).permute(1, 0, 3, 2).flatten(2, 3).flatten(0, 1)


def per_class(
    kernel: Float[Tensor, "example output other output"], output: int, other_output: int | None = None
) -> Float[Tensor, "example other"]:
    """One output's kernel, K[:, c, :, c], or the cross block of two outputs K[:, c, :, d] (which is not symmetric)."""
    outputs = _checked(kernel).shape[1]
    column = output if other_output is None else other_output
    if not (0 <= output < outputs and 0 <= column < outputs):
        raise ValueError(f"the kernel has outputs 0 to {outputs - 1}, got {output} and {column}")
    return kernel[:, output, :, column]


def trace_mean(kernel: Float[Tensor, "example output other output"]) -> Float[Tensor, "example other"]:
    """The mean of the per-output kernels, (1/C) sum_c K[:, c, :, c] (the modular-addition MLP's figures)."""
    return _checked(kernel).diagonal(dim1=1, dim2=3).mean(-1)


def all_pairs_mean(kernel: Float[Tensor, "example output other output"]) -> Float[Tensor, "example other"]:
    """The mean over all pairs of outputs, (1/C^2) sum_cd K[:, c, :, d]: the Gram matrix of the mean output's gradient.

    Blind to whatever moves the outputs without moving their mean (the Transformer's figures).
    """
    return _checked(kernel).mean((1, 3))


def _checked(kernel: Float[Tensor, "example output other output"]) -> Float[Tensor, "example output other output"]:
    if kernel.ndim != 4 or kernel.shape[1] != kernel.shape[3]:
        raise ValueError(
            f"a reduction over outputs needs a kernel (example, output, other, output), got {tuple(kernel.shape)}; "
            "entk_full returns one"
        )
    return kernel
