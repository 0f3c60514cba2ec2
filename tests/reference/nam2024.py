"""Forward-feature measures by the definitions of arXiv 2410.04264 on n x n operators: slow, numpy, no shared code.

Functions are vectors of their values at the n examples, <f|g> = (1/n) sum_i f_i g_i, operators are n x n matrices
acting on such vectors, and every quantity is written as in the definition, without shortcuts.
"""

from __future__ import annotations

import numpy as np


def feature_operator(features: np.ndarray) -> np.ndarray:
    """T[u](x') = (1/n) sum_i <Phi(x'), Phi(x_i)> u(x_i)."""
    n = len(features)
    operator = np.zeros((n, n))
    for k in range(features.shape[1]):
        operator += np.outer(features[:, k], features[:, k]) / n
    return operator


def eigenpairs(features: np.ndarray, cutoff: float = 1e-10) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (largest first) and eigenfunctions with <e_j|e_k> = delta_jk."""
    values, vectors = np.linalg.eigh(feature_operator(features))
    order = [k for k in np.argsort(-values) if values[k] > cutoff * values.max()]
    return values[order], vectors[:, order] * np.sqrt(len(features))


def span_projection(functions: np.ndarray) -> np.ndarray:
    """The orthogonal projection on the span of the columns, as an n x n matrix."""
    left, singular, _ = np.linalg.svd(functions, full_matrices=False)
    left = left[:, singular > 1e-9 * singular.max()]
    return left @ left.T


def subspace_shares(features: np.ndarray, functions: np.ndarray) -> np.ndarray:
    projection = span_projection(functions)
    dimension = round(np.trace(projection))
    _, modes = eigenpairs(features)
    return np.array([np.mean((projection @ mode) ** 2) for mode in modes.T]) / dimension


def variance_shares(features: np.ndarray, functions: np.ndarray) -> np.ndarray:
    _, modes = eigenpairs(features)
    total = sum(np.mean(f * f) for f in functions.T)
    return np.array([sum(np.mean(mode * f) ** 2 for f in functions.T) for mode in modes.T]) / total


def centred(operator: np.ndarray) -> np.ndarray:
    n = len(operator)
    without_constant = np.eye(n) - np.ones((n, n)) / n
    return without_constant @ operator @ without_constant


def cka(first: np.ndarray, second: np.ndarray) -> float:
    first, second = centred(first), centred(second)
    return float(np.trace(first @ second) / np.sqrt(np.trace(first @ first) * np.trace(second @ second)))


def richness_distance(features: np.ndarray, outputs: np.ndarray, a1: float = 1.0, a2: float = 1.0) -> float:
    """D_LR = 1 - CKA(T, T_MP), T_MP[u] = a1 <1|u> 1 + a2 P_H[u]."""
    n = len(features)
    minimum_projection = a1 * np.ones((n, n)) / n + a2 * span_projection(outputs)
    return 1 - cka(feature_operator(features), minimum_projection)


def robust_distance(features: np.ndarray, outputs: np.ndarray, classification: bool) -> float:
    """The same with the mean over classes removed (classification) and the constant added to the span."""
    n = len(features)
    if classification:
        outputs = np.array([row - row.mean() for row in outputs])
    outputs = outputs - outputs.mean(0)
    left, singular, _ = np.linalg.svd(outputs, full_matrices=False)
    left = left[:, singular > 1e-3 * singular.max()]
    return 1 - cka(feature_operator(features), np.ones((n, n)) / n + left @ left.T)


def initial_similarity(features: np.ndarray, initial: np.ndarray) -> float:
    return cka(feature_operator(features), feature_operator(initial))


def collapse(features: np.ndarray, labels: np.ndarray) -> float:
    """NC1 = Tr(Sigma_W Sigma_B^+) / C, class by class and example by example."""
    n, units = features.shape
    centre = features.mean(0)
    within, between = np.zeros((units, units)), np.zeros((units, units))
    for label in np.unique(labels):
        mean = features[labels == label].mean(0)
        for row in features[labels == label]:
            within += np.outer(row - mean, row - mean) / n
            between += np.outer(mean - centre, mean - centre) / n
    return float(np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / len(np.unique(labels)))


def held_out_shares(
    features: np.ndarray, targets: np.ndarray, other_features: np.ndarray, other_targets: np.ndarray, subspace: bool
) -> np.ndarray:
    """Pi(k) on other examples by predicting them with the first k fitted modes, for every k."""
    n, m = len(features), len(other_features)
    values, modes = eigenpairs(features)
    # Nystrom: e(x) = (1 / (n rho)) sum_i <Phi(x), Phi(x_i)> e(x_i)
    extended = other_features @ features.T @ modes / (n * values)
    weights = np.linalg.pinv(other_targets.T @ other_targets / m) if subspace else np.eye(targets.shape[1])
    total = np.trace(weights @ other_targets.T @ other_targets / m)
    shares = []
    for k in range(1, len(values) + 1):
        residual = other_targets - extended[:, :k] @ (modes[:, :k].T @ targets / n)
        shares.append(1 - np.trace(weights @ residual.T @ residual / m) / total)
    return np.array(shares)
