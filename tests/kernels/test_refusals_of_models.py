"""Models that have no kernel between two examples are refused: the message says expected, got, do."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn, randn

from tangentlens.errors import NonFiniteKernel
from tangentlens.kernels import entk, entk_by_layer, entk_full, entk_mean_output, entk_product, layer_moments
from tests.kernels.messages import every_function, says
from tests.zoo.entry import Written, mlp


@every_function
def test_a_model_without_trainable_parameters_is_refused(function):
    model = mlp(3, 4, 2).requires_grad_(False)
    with pytest.raises(ValueError, match=says("trainable|requires_grad", "requires_grad_")):
        function(model, randn(4, 3))


def test_a_model_without_parameters_is_refused():
    with pytest.raises(ValueError, match=says("parameter")):
        entk(nn.ReLU(), randn(4, 3))


@every_function
def test_batch_norm_in_train_mode_is_refused_by_name(function):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=says("batch", "'?1'?", "BatchNorm1d", r"eval\(\)")):
        function(model, randn(4, 3))


def test_batch_norm_without_running_statistics_is_refused_in_eval_mode_too():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)).eval()
    with pytest.raises(ValueError, match=says("BatchNorm1d", "track_running_stats")):
        entk(model, randn(4, 3))


def test_one_batch_norm_left_in_train_mode_is_found():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))).eval()
    model[1][1].train()
    with pytest.raises(ValueError, match=says(r"1\.1")):
        entk(model, randn(4, 3))


@every_function
@pytest.mark.parametrize("dropout", [nn.Dropout(0.2), nn.AlphaDropout(0.2)])
def test_active_dropout_is_refused_by_name(function, dropout):
    model = nn.Sequential(nn.Linear(3, 4), dropout, nn.Linear(4, 2))
    with pytest.raises(ValueError, match=says("dropout", "'?1'?", "0\\.2", r"eval\(\)")):
        function(model, randn(4, 3))


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 4), nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)),
        nn.LSTM(3, 4, 2, dropout=0.3, batch_first=True),
        nn.Sequential(nn.Linear(3, 4), nn.RReLU(), nn.Linear(4, 2)),
    ],
    ids=["attention", "lstm", "rrelu"],
)
def test_dropout_hidden_in_other_modules_is_refused(model):
    def outputs(raw):
        return (raw[0] if isinstance(raw, tuple) else raw).sum(1)

    if isinstance(model[1] if isinstance(model, nn.Sequential) else None, nn.MultiheadAttention):
        model = Written(lambda m, x: m.two(*[m.one(x)] * 3)[0], one=model[0], two=model[1])
    with pytest.raises(ValueError, match=says("dropout|differ|random|deterministic", r"eval\(\)")):
        entk(model, randn(4, 5, 3), outputs=outputs)


def test_dropout_of_probability_zero_is_no_dropout():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 2))
    assert entk(model, randn(4, 3)).shape == (4, 4)


@pytest.mark.parametrize(
    "noise",
    [
        lambda x: x + 0.01 * torch.randn_like(x),
        lambda x: nn.functional.dropout(x, 0.5, training=True),
    ],
    ids=["noise", "functional dropout"],
)
def test_a_model_whose_two_runs_differ_is_refused(noise):
    model = Written(lambda m, x: m.net(noise(x)), net=mlp(3, 4, 2))
    with pytest.raises(ValueError, match=says("differ|deterministic|random", "two|twice|second")):
        entk(model, randn(40, 3))


def test_a_model_whose_answer_depends_on_its_own_history_is_refused():
    class Drifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.steps = mlp(3, 4, 2), 0

        def forward(self, x):
            self.steps += 1
            return self.net(x) * self.steps

    with pytest.raises(ValueError, match=says("differ|deterministic", "two|twice|second")):
        entk(Drifting(), randn(4, 3))


@pytest.mark.parametrize(
    "coupled",
    [
        lambda x: x - x.mean(0),
        lambda x: x * x.flip(0),
        lambda x: x.softmax(0),
        lambda x: nn.functional.batch_norm(x[..., None].expand(-1, -1, 3), None, None, training=True)[..., 0],
    ],
    ids=["centred", "flipped", "softmax over the batch", "functional batch norm"],
)
@pytest.mark.parametrize("function", [entk, entk_full, entk_mean_output])
def test_a_model_that_couples_its_examples_is_refused(coupled, function):
    """No kernel between two examples exists when one's output depends on the other: never a silent number."""
    model = Written(lambda m, x: m.b(coupled(torch.tanh(m.a(x)))), a=nn.Linear(3, 4), b=nn.Linear(4, 2))
    with pytest.raises(ValueError, match=says("example|batch", "coupl|depend|other|mix")):
        function(model, randn(5, 3))


@pytest.mark.parametrize("largest", [0, 1, 5])
@pytest.mark.parametrize("function", [entk, entk_full])
def test_a_coupling_that_one_example_alone_decides_is_refused(largest, function):
    """The largest example sees nothing of the others; they all see it."""

    def forward(m, x):
        z = m.a(x).tanh()
        return m.b(z / z.detach().abs().amax())

    x = 0.1 * randn(6, 3)
    x[largest] *= 100
    with pytest.raises(ValueError, match=says("example|batch", "depend")):
        function(Written(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2)), x)


def test_room_for_a_number_of_examples_in_the_batch_is_refused():
    def forward(m, x):
        z = m.a(x).tanh()
        rank = torch.argsort(torch.argsort(-z.detach().norm(dim=1)))
        return m.b(z * (rank < 3)[:, None])

    with pytest.raises(ValueError, match=says("example|batch", "depend")):
        entk(Written(forward, a=nn.Linear(3, 4), b=nn.Linear(4, 2)), randn(6, 3))


@every_function
def test_parameters_without_values_are_refused_and_not_made(function):
    lazy = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=says(r"0\.weight", "lazy", "run the model once")):
        function(lazy, randn(4, 3))
    assert isinstance(lazy[0].weight, nn.UninitializedParameter)
    with pytest.raises(ValueError, match=says("weight", "meta device")):
        function(nn.Linear(3, 2, device="meta"), randn(4, 3))


def test_a_kernel_that_is_not_finite_names_the_first_place():
    def forward(m, x, size):
        z = torch.tanh(m.first(x))
        return torch.cat([m.second(z), m.third(z) * size * size], 1)

    model = Written(forward, first=nn.Linear(3, 4), second=nn.Linear(4, 1), third=nn.Linear(4, 1))
    size = torch.ones(5, 1)
    size[2:] = 1e30  # the gradients of output 1 overflow float32 from example 2 on
    for function in (entk, entk_full, entk_by_layer):
        with pytest.raises(ValueError, match=says("finite", "example 2", "output 1", "first|third")):
            function(model, (randn(5, 3), size))
    assert torch.isfinite(entk_full(model, (randn(5, 3), size), dtype=torch.float64)).all()


def test_outputs_that_are_not_finite_are_named_by_example():
    model, x = mlp(3, 4, 2), randn(4, 3)
    x[3, 1] = float("nan")
    with pytest.raises(ValueError, match=says("finite|nan", "example 3")):
        entk_full(model, x)


def test_an_example_that_is_not_finite_is_named_however_late_it_comes():
    """After many finite ones, whose rules it does not follow; of the columns too."""
    model, x = mlp(3, 4, 2), randn(9, 3)
    late = x.clone()
    late[7, 1] = float("inf")
    late[7, 2] = -float("inf")
    for function in (entk, entk_full, entk_by_layer, entk_product):
        found = partial(_whole, function, model)
        with pytest.raises(NonFiniteKernel, match=says("example 7, output 0")):
            found(late, chunk=2)
        with pytest.raises(NonFiniteKernel, match=says("example 7 of others=, output 0")):
            found(x, late)


def _whole(function, model, *inputs, **options):
    found = function(model, *inputs, **options)
    return found @ torch.ones(found.shape[1]) if function is entk_product else found


def test_moments_that_are_not_finite_name_the_first_place():
    x = randn(6, 3)
    x[5, 0] = float("nan")
    with pytest.raises(NonFiniteKernel, match=says("example 5, output 0")):
        layer_moments(mlp(3, 4, 2), x)
