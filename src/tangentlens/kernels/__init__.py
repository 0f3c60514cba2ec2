"""Stage 2: inputs and output gradients -> kernels, moments and spectra."""

from tangentlens.kernels.features import Features, features, stream_features
from tangentlens.kernels.forward import forward_kernel
from tangentlens.kernels.jacobian import jacobian_gram, jacobian_product
from tangentlens.kernels.moments import LayerMoments, agop, layer_moments, nfm, ptk, ptk_covariance
from tangentlens.kernels.plan import Plan, plan
from tangentlens.kernels.product import Product, entk_product
from tangentlens.kernels.spectra import Spectrum, spectrum
from tangentlens.kernels.stored import StoredKernel, open_kernel
from tangentlens.kernels.tangent import entk, entk_by_layer, entk_full, entk_mean_output

__all__ = [
    "Features",
    "LayerMoments",
    "Plan",
    "Product",
    "Spectrum",
    "StoredKernel",
    "agop",
    "entk",
    "entk_by_layer",
    "entk_full",
    "entk_mean_output",
    "entk_product",
    "features",
    "forward_kernel",
    "jacobian_gram",
    "jacobian_product",
    "layer_moments",
    "nfm",
    "open_kernel",
    "plan",
    "ptk",
    "ptk_covariance",
    "spectrum",
    "stream_features",
]
