"""The chain-monomial task: a known target of few inputs, whose right features are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Chain:
    """y = (1/scale) sum_k x_k x_{k+1} ... x_{k+degree-1} over the first `length` inputs, scale giving it unit variance.

    Inputs are independent standard Gaussians. A cyclic chain closes on itself; an open one ends at the last input. The
    source states neither length nor degree; 5 and 2, cyclic, are what the independent run used.
    """

    length: int = 5
    degree: int = 2
    cyclic: bool = True
    inputs: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.degree <= self.length <= self.inputs:
            raise ValueError(
                f"a chain needs 1 <= degree <= length <= inputs, got {self.degree}, {self.length}, {self.inputs}"
            )

    @property
    def terms(self) -> Counter[tuple[int, ...]]:
        """Each monomial as its input numbers, with how often the chain passes it."""
        starts = self.length if self.cyclic else self.length - self.degree + 1
        steps = range(self.degree)
        return Counter(tuple(sorted((start + step) % self.length for step in steps)) for start in range(starts))

    @property
    def scale(self) -> float:
        """The standard deviation of the bare sum: monomials of distinct Gaussians are orthonormal."""
        return sqrt(sum(count**2 for count in self.terms.values()))

    def __call__(self, inputs: Float[Tensor, "example input"]) -> Float[Tensor, "example"]:
        """The target's values."""
        monomials = (count * inputs[:, list(term)].prod(dim=1) for term, count in self.terms.items())
        return torch.stack(list(monomials)).sum(0) / self.scale

    def egop(self) -> Float[Tensor, "input input"]:
        """E[grad y grad y^T], exactly: two monomials meet where they agree once each has lost one input.

        For the cyclic chain of degree 2: 2 on the diagonal and 1 at distance two (mod length), over the scale squared.
        """
        total = torch.zeros(self.inputs, self.inputs, dtype=torch.float64)
        for first, count in self.terms.items():
            for second, other in self.terms.items():
                for i in first:
                    for j in second:
                        if set(first) - {i} == set(second) - {j}:
                            total[i, j] += count * other
        return total / self.scale**2

    def draw(
        self, examples: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "example input"], Float[Tensor, "example 1"]]:
        """Fresh inputs and their targets."""
        inputs = torch.randn(examples, self.inputs, generator=generator)
        return inputs, self(inputs)[:, None]
