"""Slow and obvious: one gradient per document, expectations by sampling, flow by tiny steps, counts by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def kernel_by_group(model: nn.Module, documents: Sequence[Tensor]) -> dict[str, Tensor]:
    """<d s(x) / d group, d s(x') / d group> of a one-score model, one backward pass per document."""
    names = [name for name, _ in model.named_parameters()]
    gradients = [
        torch.autograd.grad(model(torch.as_tensor(document)[None]).squeeze(), list(model.parameters()))
        for document in documents
    ]
    groups = {}
    for place, name in enumerate(names):
        rows = torch.stack([gradient[place].flatten() for gradient in gradients])
        groups[name] = rows @ rows.T
    return groups


def over_seeds(build: Callable[[int], nn.Module], documents: Sequence[Tensor], seeds: int) -> tuple[dict, dict]:
    """Mean and standard error of each group's kernel over initialisations, in float64."""
    seen = [kernel_by_group(build(seed).double().eval(), documents) for seed in range(seeds)]
    stacked = {name: torch.stack([groups[name] for groups in seen]) for name in seen[0]}
    return (
        {name: values.mean(0) for name, values in stacked.items()},
        {name: values.std(0) / seeds**0.5 for name, values in stacked.items()},
    )


def sampled_pair_mean(
    function: Callable[[Tensor], Tensor], variance: float, other_variance: float, covariance: float, samples: int
) -> tuple[float, float]:
    """E f(u) f(z) by sampling, with its standard error."""
    random = torch.Generator().manual_seed(0)
    u, free = torch.randn(2, samples, generator=random, dtype=torch.float64)
    along = covariance / variance
    rest = max(other_variance - covariance * along, 0.0) ** 0.5
    u = variance**0.5 * u
    values = function(u) * function(along * u + rest * free)
    return float(values.mean()), float(values.std() / samples**0.5)


def flow_by_small_steps(kernel: Tensor, targets: Tensor, time: float, steps: int, labels: int = 1) -> Tensor:
    """Explicit Euler on scores, with steps far below every time scale."""
    scores = torch.zeros(len(kernel), labels, dtype=torch.float64)
    for _ in range(steps):
        if labels == 1:
            residual = targets.double()[:, None] - torch.sigmoid(scores)
        else:
            residual = nn.functional.one_hot(targets, labels).double() - torch.softmax(scores, -1)
        scores = scores + time / steps / len(kernel) * kernel @ residual
    return scores


def context_counts(tokens: Sequence[int], vocabulary: int, window: int) -> Tensor:
    """(context, target) pairs inside windows that stand side by side."""
    counts = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
    for start in range(0, len(tokens), window):
        part = tokens[start : start + window]
        for place, target in enumerate(part):
            for context in part[:place]:
                counts[context, target] += 1
    return counts
