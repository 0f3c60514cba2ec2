"""Complex numbers: as parameters, as buffers, and on the way between real ones."""

from __future__ import annotations

import torch
from torch import nn, randn

from tests.zoo.entry import Written, entry


@entry("a spectral layer whose weight is complex")
def complex_weight():
    def forward(m, x):
        return m.head(torch.view_as_real(torch.fft.rfft(m.lift(x)) @ m.weight).flatten(1).tanh())

    weight = randn(3, 2, dtype=torch.complex64)
    return Written(forward, lift=nn.Linear(3, 4), weight=weight, head=nn.Linear(4, 2)), randn(4, 3)


@entry("a complex gate and bias, the gate times a real scale")
def complex_gate():
    def forward(m, x):
        return m.head((torch.fft.rfft(x) * (m.gate * m.scale) + m.bias).abs())

    parts = {"gate": randn(3, dtype=torch.complex64), "bias": randn(3, dtype=torch.complex64), "scale": randn(3)}
    return Written(forward, **parts, head=nn.Linear(3, 2)), randn(4, 4)


@entry("pairs of real parameters seen as complex ones: added, multiplied, as a matrix")
def pairs_seen_as_complex():
    def forward(m, x):
        z = torch.fft.rfft(x) + torch.view_as_complex(m.bias)
        z = z * torch.complex(m.real, m.imaginary)
        return m.head((z @ torch.view_as_complex(m.weight)).abs())

    parts = {"bias": randn(3, 2), "real": randn(3), "imaginary": randn(3), "weight": randn(3, 3, 2)}
    return Written(forward, **parts, head=nn.Linear(3, 2)), randn(4, 4)


@entry("rotary positions held as a complex buffer, as Llama was first written")
def complex_rotary_buffer():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
            angle = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.3]))
            self.register_buffer("turn", torch.polar(torch.ones_like(angle), angle))

        def forward(self, x):
            z = torch.view_as_complex(self.query(x).unflatten(-1, (2, 2))) * self.turn
            return self.head(torch.view_as_real(z).flatten(-2).tanh().mean(1))

    return Rotary(), randn(4, 5, 3)


@entry("complex inputs")
def complex_inputs():
    def forward(m, x):
        return m.head(torch.view_as_real(x * torch.view_as_complex(m.gate)).flatten(1).tanh())

    return Written(forward, gate=randn(3, 2), head=nn.Linear(6, 2)), randn(4, 3, dtype=torch.complex64)
