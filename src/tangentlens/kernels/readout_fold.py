"""Exact kernels of very many outputs, when the outputs are a fixed linear read-out U h (lin2025 v4, section 5).

The logit kernel is (I x U) K_h (I x U^T), with K_h the kernel of the hidden outputs h. Its non-zero spectrum is that of
(I x R) K_h (I x R) with R = (U^T U)^(1/2), whose size is that of h: no object of vocabulary size is formed. Exact while
U itself is not among the parameters of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def readout_root(readout: Float[Tensor, "output unit"]) -> Float[Tensor, "unit unit"]:
    """R = (U^T U)^(1/2), symmetric, in float64."""
    gram = readout.detach().to(torch.float64).T @ readout.detach().to(torch.float64)
    values, vectors = torch.linalg.eigh(gram)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T  # rounding leaves small negative values


def fold_outputs(readout: Float[Tensor, "output unit"]) -> Callable[[Tensor], Tensor]:
    """A callable for `outputs=` of any kernel function: hidden outputs h -> R h, whose kernel is the folded one."""
    root = readout_root(readout)
    return lambda hidden: hidden @ root.to(hidden)


def folded_kernel(
    kernel: Float[Tensor, "example unit other unit"], readout: Float[Tensor, "output unit"]
) -> Float[Tensor, "example unit other unit"]:
    """R K_h R for every pair of examples; the logit kernel's non-zero eigenvalues are this kernel's."""
    root = readout_root(readout).to(kernel)
    return torch.einsum("ij,njmk,kl->niml", root, kernel, root)


def unfolded_modes(
    vectors: Float[Tensor, "example_unit mode"], readout: Float[Tensor, "output unit"]
) -> Float[Tensor, "example_output mode"]:
    """Eigenvectors of the logit kernel from those of the folded one: the isometry U (U^T U)^(-1/2) applied per example.

    Rows are n*D + d before and n*C + c after. Vocabulary-sized: unfold a few modes, not all.
    """
    outputs, units = readout.shape
    if vectors.shape[0] % units:
        raise ValueError(f"the folded modes need a multiple of {units} rows, one per unit, got {vectors.shape[0]}")
    isometry = readout.to(vectors) @ torch.linalg.pinv(readout_root(readout).to(vectors), hermitian=True)
    blocks = vectors.reshape(-1, units, vectors.shape[1])
    return torch.einsum("cu,num->ncm", isometry, blocks).reshape(-1, vectors.shape[1])
