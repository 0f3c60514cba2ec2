"""Raw parameters in functional code: einsums, slices, products in every order."""

from __future__ import annotations

import torch
from torch import nn, randn
from torch.nn import functional

from tests.zoo.entry import Written, entry


@entry("einsum, weight first, as many outputs as inputs and examples")
def einsum_weight_first():
    return Written(
        lambda m, x: torch.einsum("ij,bj->bi", m.b, torch.tanh(torch.einsum("oi,bi->bo", m.a, x))),
        a=randn(4, 4),
        b=randn(4, 4),
    ), (randn(4, 4))


@entry("einsum with an ellipsis, a diagonal, a sum over an axis that only one operand has")
def einsum_of_odd_spellings():
    def forward(m, x):
        z = torch.einsum("...i,io->...o", x, m.a).tanh()
        z = torch.einsum("bto,oo->bto", z, m.square)
        z = torch.einsum("bto,kp->btop", z, m.outer)
        return torch.einsum("btop,op->bp", z, m.mask)

    return Written(forward, a=randn(3, 3), square=randn(3, 3), outer=randn(2, 2), mask=randn(3, 2)), randn(4, 3, 3)


@entry("einsum of three operands, two of them parameters")
def einsum_of_three_operands():
    def forward(m, x):
        return torch.einsum("bi,ir,ro->bo", x, m.down, m.up) + torch.einsum("bi,bj,ijo->bo", x, x, m.form)

    return Written(forward, down=randn(4, 2), up=randn(2, 2), form=randn(4, 4, 2) / 4), randn(4, 4)


@entry("a batch of matrices: one weight per member of an ensemble, by bmm and baddbmm")
def ensemble_by_bmm():
    def forward(m, x):
        z = torch.bmm(x.expand(3, -1, -1), m.first).tanh()
        z = torch.baddbmm(m.bias, z, m.second)
        return z.transpose(0, 1)

    return Written(forward, first=randn(3, 3, 4), second=randn(3, 4, 2), bias=randn(3, 1, 2)), randn(3, 3)


@entry("matmul with a weight that broadcasts over heads")
def matmul_with_batched_weight():
    def forward(m, x):
        z = torch.tanh(x[:, None] @ m.heads)  # (N, H, T, k)
        return (z @ m.mix).sum((1, 2))

    return Written(forward, heads=randn(2, 3, 4), mix=randn(4, 2)), randn(4, 3, 3)


@entry("a weight on the left: (out, in) times (in, N), and vectors by mv")
def weight_on_the_left():
    def forward(m, x):
        z = torch.tanh(m.first @ x.T)
        z = torch.addmm(m.bias[:, None], m.second, z)
        return z.T + torch.mv(x, m.vector)[:, None] + torch.outer(x[:, 0], m.row)

    parts = {"first": randn(4, 4), "second": randn(2, 4), "bias": randn(2), "vector": randn(4), "row": randn(2)}
    return Written(forward, **parts), randn(4, 4)


@entry("a slice of a transposed weight, and the rest of it elsewhere")
def slices_of_a_weight():
    def forward(m, x):
        z = torch.tanh(x @ m.weight.T[:, :3])
        return z @ m.weight[2:, :2] + m.bias[1:3] + m.bias.flip(0)[:2] * x[:, :2]

    return Written(forward, weight=randn(5, 4), bias=randn(4)), randn(4, 4)


@entry("addmm, addmv, addbmm, tensordot, inner, kron, chain_matmul")
def products_of_every_name():
    def forward(m, x):
        z = torch.addmm(m.bias, x, m.weight, beta=0.5, alpha=2.0).tanh()
        z = torch.tensordot(z, torch.kron(m.small, m.small), dims=1)
        z = torch.inner(z, m.rows) + torch.addmv(m.bias[0], x, m.weight[:, 1])[:, None]
        return torch.linalg.multi_dot([z, m.small, m.small.T])

    return Written(forward, weight=randn(3, 4), bias=randn(4), small=randn(2, 2), rows=randn(2, 4)), randn(4, 3)


@entry("centres of radial functions, by cdist and by hand")
def radial_basis():
    def forward(m, x):
        far = torch.cdist(x, m.centres)
        near = (x[:, None] - m.centres).pow(2).sum(-1)
        return (torch.exp(-near) + far / 3) @ m.head

    return Written(forward, centres=randn(4, 3), head=randn(4, 2)), randn(4, 3)


@entry("coefficients of polynomials and Fourier features")
def polynomial_features():
    def forward(m, x):
        powers = torch.stack([x**k for k in range(4)], -1)
        waves = torch.cat([torch.cos(x @ m.frequencies), torch.sin(x @ m.frequencies)], -1)
        return (powers * m.coefficients).sum((-1, -2))[:, None] + waves @ m.amplitudes

    parts = {"coefficients": randn(3, 4), "frequencies": randn(3, 2), "amplitudes": randn(4, 2)}
    return Written(forward, **parts), randn(4, 3)


@entry("a weight made by a small net: a hypernetwork without and with the example")
def hypernetwork():
    def forward(m, x):
        common = m.maker(m.code).view(4, 3)
        own = m.own(x).view(-1, 2, 4)
        return torch.bmm(own, torch.tanh(functional.linear(x, common))[..., None])[..., 0]

    return Written(forward, code=randn(2), maker=nn.Linear(2, 12), own=nn.Linear(3, 8)), randn(4, 3)


@entry("a weight built of a matrix exponential, a Cayley map and a low-rank update")
def structured_weights():
    def forward(m, x):
        skew = m.raw - m.raw.T
        rotation = torch.linalg.solve(torch.eye(3, dtype=x.dtype) + skew, torch.eye(3, dtype=x.dtype) - skew)
        z = torch.tanh(x @ torch.linalg.matrix_exp(skew / 2) @ rotation)
        return functional.linear(z, m.base + m.up @ m.down)

    return Written(forward, raw=randn(3, 3) / 2, base=randn(2, 3), up=randn(2, 1), down=randn(1, 3)), randn(4, 3)


@entry("parameters in lists and dictionaries")
def lists_of_parameters():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([randn(3, 4), randn(4, 4), randn(4, 2)])
            self.biases = nn.ParameterDict({"a": randn(4), "b": randn(4), "c": randn(2)})

        def forward(self, x):
            for weight, bias in zip(self.weights, self.biases.values(), strict=True):
                x = torch.tanh(x @ weight + bias)
            return x

    return Model(), randn(4, 3)


@entry("functional transforms inside: vmap over an ensemble of parameters")
def vmap_inside():
    def forward(m, x):
        def member(weight, bias):
            return torch.tanh(x @ weight + bias)

        return torch.func.vmap(member)(m.weights, m.biases).mean(0)

    return Written(forward, weights=randn(3, 3, 2), biases=randn(3, 2)), randn(4, 3)


@entry("a linear system solved for every example, its matrix made of a parameter")
def linear_solve():
    def forward(m, x):
        matrix = m.a @ m.a.T + torch.eye(3, dtype=x.dtype)
        return m.head(torch.linalg.solve(matrix, x.T).T)

    return Written(forward, a=randn(3, 3), head=nn.Linear(3, 2)), randn(4, 3)


@entry("two overlapping selections of one parameter, of one length, first place and weighted sum of places")
def selections_that_look_alike():
    def forward(m, x):
        return (x[:, :3] * m.p[[0, 4, 2]]).tanh() + (x[:, 2:] * m.p[[0, 1, 4]]).sin()

    return Written(forward, p=randn(5)), randn(4, 5)


@entry("a bias that enters at half its size, where the first example shows nothing of it")
def halved_bias():
    def forward(m, x):
        return m.head(torch.relu(torch.addmm(m.bias, x, m.weight, beta=0.5) - 2.0))

    x = 3 * randn(4, 3)
    x[0] = 0
    return Written(forward, bias=0.1 * randn(5), weight=randn(3, 5), head=nn.Linear(5, 2)), x


@entry("a bias whose factor is one but for the fifth digit")
def bias_scaled_by_nearly_one():
    def forward(m, x):
        return m.head(torch.addmm(m.bias, x, m.weight, beta=1.00005).tanh())

    return Written(forward, bias=randn(5), weight=randn(3, 5), head=nn.Linear(5, 2)), randn(4, 3)
