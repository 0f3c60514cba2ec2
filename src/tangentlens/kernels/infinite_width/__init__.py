"""Closed-form tangent kernels of text models at infinite width: no network, only counts, windows and covariances.

Notation of sun2023: embeddings N(0, s_e^2), hidden matrix N(0, s_w^2), readout N(0, s_v^2), every layer divided by the
root of its width, all parameters trained, sums (not means) over positions. The formulas are derived here and
checked against the kernels of finite networks at growing width; the paper's own text gave none of them.
"""

from __future__ import annotations

from tangentlens.kernels.infinite_width.attention import (
    attention_kernel,
    attention_kernel_by_group,
    attention_mlp_kernel,
    attention_mlp_kernel_by_group,
    attention_weights,
)
from tangentlens.kernels.infinite_width.cnn import cnn_kernel, cnn_kernel_by_group, window_kernel
from tangentlens.kernels.infinite_width.documents import token_counts, with_begin
from tangentlens.kernels.infinite_width.dual_activation import ACTIVATIONS, DualActivation, dual_activation
from tangentlens.kernels.infinite_width.hidden_layer import Deviations, hidden_layer_kernel
from tangentlens.kernels.infinite_width.linear_recurrence import (
    linear_recurrence_kernel,
    linear_recurrence_kernel_by_group,
)
from tangentlens.kernels.infinite_width.matrix_vector import matrix_vector_kernel, matrix_vector_kernel_by_group
from tangentlens.kernels.infinite_width.mlp import (
    MLPKernelProduct,
    TokenCoefficients,
    mlp_coefficients,
    mlp_kernel,
    mlp_kernel_by_group,
)
from tangentlens.kernels.infinite_width.quadrature import gaussian_mean, gaussian_pair_mean

__all__ = [
    "ACTIVATIONS",
    "Deviations",
    "DualActivation",
    "MLPKernelProduct",
    "TokenCoefficients",
    "attention_kernel",
    "attention_kernel_by_group",
    "attention_mlp_kernel",
    "attention_mlp_kernel_by_group",
    "attention_weights",
    "cnn_kernel",
    "cnn_kernel_by_group",
    "dual_activation",
    "gaussian_mean",
    "gaussian_pair_mean",
    "hidden_layer_kernel",
    "linear_recurrence_kernel",
    "linear_recurrence_kernel_by_group",
    "matrix_vector_kernel",
    "matrix_vector_kernel_by_group",
    "mlp_coefficients",
    "mlp_kernel",
    "mlp_kernel_by_group",
    "token_counts",
    "window_kernel",
    "with_begin",
]
