from __future__ import annotations

import copy
import inspect
import io
import os
import socket
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

from tangentlens.optimizers import SpeedLimited


def network(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6, bias=bias), nn.Tanh(), nn.Linear(6, 5, bias=bias), nn.Tanh(), nn.Linear(5, 1))


def batch(examples: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(examples, 4, generator=torch.Generator().manual_seed(2))
    return inputs, (inputs[:, :1] * inputs[:, 1:2])


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return ((model(inputs) - targets) ** 2).mean()


def parameters_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def sgd(model: nn.Module, lr: float = 0.1, **settings: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, **settings)


def unchecked(*arguments: object) -> None:
    """Build one as a user would: the tests check types before the constructor can."""
    inspect.unwrap(SpeedLimited.__init__)(SpeedLimited.__new__(SpeedLimited), *arguments)


def test_each_layers_gradient_gets_the_norm_it_is_asked_to_have() -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"0": 500.0, "2": 0.002, "*": 1.0})
    loss_of(model, *batch()).backward()
    directions = [parameter.grad.clone() for parameter in model[0].parameters()]
    optimizer.limit()
    norms = optimizer.gradient_norms()
    assert abs(norms["0"] / 500 - 1) < 1e-6 and abs(norms["2"] / 0.002 - 1) < 1e-6 and abs(norms["4"] - 1) < 1e-6
    for before, parameter in zip(directions, model[0].parameters()):  # weight and bias keep their proportion
        assert torch.allclose(parameter.grad / before, (parameter.grad / before).flatten()[0], rtol=1e-5)


def test_by_parameter_every_tensor_has_its_own_norm() -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"*.weight": 3.0, "0.bias": 0.5}, by="parameter")
    loss_of(model, *batch()).backward()
    free = model[2].bias.grad.norm().item()
    optimizer.limit()
    assert abs(model[4].weight.grad.norm() - 3) < 1e-5 and abs(model[0].bias.grad.norm() - 0.5) < 1e-6
    assert model[2].bias.grad.norm().item() == free


def test_one_step_of_sgd_is_the_papers_rule() -> None:
    model = network(bias=False)
    eps, speeds = 0.1, {"0": 5.0, "2": 0.2, "4.weight": 0.2}
    before = parameters_of(model)
    loss_of(model, *batch()).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    SpeedLimited(sgd(model, lr=0.3), model, {"0": 5.0, "*": 0.2}, eps=eps).step()
    for layer in (0, 1):
        speed = list(speeds.values())[layer]
        expected = before[layer] - 0.3 * speed * gradients[layer] / (eps + gradients[layer].norm())
        assert torch.allclose(parameters_of(model)[layer], expected, atol=1e-7)


def test_half_precision_and_sparse_gradients_are_limited_too() -> None:
    embedding = nn.Embedding(9, 4, sparse=True)
    optimizer = SpeedLimited(torch.optim.SGD(embedding.parameters(), lr=1.0), embedding, {"*": 2.0})
    before = embedding.weight.detach().clone()
    embedding(torch.tensor([1, 1, 3])).sum().backward()
    optimizer.step()
    assert abs((embedding.weight - before).norm() - 2) < 1e-5
    half = nn.Linear(300, 300, bias=False).to(torch.bfloat16)
    optimizer = SpeedLimited(sgd(half), half, {"*": 1.0})
    half.weight.grad = torch.full_like(half.weight, 1e-3)
    optimizer.limit()
    assert abs(half.weight.grad.double().norm() - 1) < 4e-3  # bfloat16 itself has no more digits


def test_speed_zero_freezes_a_layer_and_a_zero_gradient_stays_zero() -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"2": 0.0, "0": 5.0})
    before = parameters_of(model)
    (0 * loss_of(model, *batch())).backward()
    optimizer.limit()
    assert all(parameter.grad.isfinite().all() and parameter.grad.norm() == 0 for parameter in model.parameters())
    optimizer.zero_grad()
    loss_of(model, *batch()).backward()
    optimizer.step()
    assert torch.equal(model[2].weight, before[2]) and not torch.equal(model[0].weight, before[0])


def test_a_glob_that_matches_nothing_is_an_error_that_names_the_layers() -> None:
    model = network()
    with pytest.raises(ValueError, match=r"no layer matches 'layers\.\*'.*'0', '2', '4'"):
        SpeedLimited(sgd(model), model, {"layers.*": 1.0, "*": 2.0})
    with pytest.raises(ValueError, match="earlier globs decide"):
        SpeedLimited(sgd(model), model, {"*": 1.0, "0": 2.0})
    with pytest.raises(ValueError, match="no layer matches '2'"):  # frozen: not the optimiser's to move
        SpeedLimited(torch.optim.SGD(model[0].parameters(), lr=0.1), model, {"2": 1.0})
    with pytest.raises(ValueError, match="no parameter of this model"):
        SpeedLimited(sgd(network()), model, {"*": 1.0})


@pytest.mark.parametrize(
    "wrong", [{"speeds": {}}, {"speeds": {"*": -1.0}}, {"eps": -0.1}, {"speeds": {"*": float("nan")}}]
)
def test_speeds_and_eps_that_are_no_lengths_are_refused(wrong: dict) -> None:
    model = network()
    with pytest.raises(ValueError):
        SpeedLimited(sgd(model), model, **({"speeds": {"*": 1.0}} | wrong))


def test_a_speed_may_follow_a_schedule_of_steps() -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"0": lambda step: 8.0 / 2**step})
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, *batch()).backward()
        optimizer.step()
        seen.append(optimizer.gradient_norms()["0"])
    assert seen == pytest.approx([8, 4, 2], rel=1e-6)


def test_a_learning_rate_schedule_of_torch_drives_the_wrapped_optimiser() -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model, lr=1.0), model, {"*": 1.0})
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for expected in (1.0, 0.5, 0.25):
            before = model[0].weight.detach().clone(), model[0].bias.detach().clone()
            optimizer.zero_grad()
            loss_of(model, *batch()).backward()
            optimizer.step()
            schedule.step()
            moved = (model[0].weight - before[0]).square().sum() + (model[0].bias - before[1]).square().sum()
            assert abs(moved.sqrt() - expected) < 1e-5
    assert optimizer.optimizer.param_groups[0]["lr"] == 0.125


def test_accumulated_gradients_are_limited_once_as_the_whole_batchs() -> None:
    inputs, targets = batch(12)
    whole, parts = network(), network()
    optimizers = [SpeedLimited(sgd(model), model, {"*": 0.7}) for model in (whole, parts)]
    loss_of(whole, inputs, targets).backward()
    for chunk, wanted in zip(inputs.split(4), targets.split(4)):
        (loss_of(parts, chunk, wanted) / 3).backward()
    for optimizer in optimizers:
        optimizer.step()
    for one, other in zip(parameters_of(whole), parameters_of(parts)):
        assert torch.allclose(one, other, atol=1e-6)


def test_a_closures_gradients_are_limited_at_every_evaluation() -> None:
    model = network()
    norms = []

    class Watching(torch.optim.LBFGS):
        def step(self, closure):  # noqa: ANN001, ANN202
            def watched():  # noqa: ANN202
                loss = closure()
                norms.append(torch.cat([p.grad.flatten() for p in model[0].parameters()]).norm().item())
                return loss

            return super().step(watched)

    optimizer = SpeedLimited(Watching(model.parameters(), lr=0.01, max_iter=5), model, {"0": 0.25})

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, *batch())
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert len(norms) > 1 and norms == pytest.approx([0.25] * len(norms), rel=1e-6)
    assert loss.item() > 0 and optimizer.steps == 1


def test_a_gradient_scaler_unscales_before_the_limit_and_skips_overflown_steps() -> None:
    inputs, targets = batch()
    plain, scaled = network(), network()
    first = SpeedLimited(sgd(plain), plain, {"*": 0.7}, eps=0.05)
    second = SpeedLimited(sgd(scaled), scaled, {"*": 0.7}, eps=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    loss_of(plain, inputs, targets).backward()
    first.step()
    scaler.scale(loss_of(scaled, inputs, targets)).backward()
    scaler.step(second)
    scaler.update()
    for one, other in zip(parameters_of(plain), parameters_of(scaled)):
        assert torch.allclose(one, other, atol=1e-7)
    before = parameters_of(scaled)
    second.zero_grad()
    scaler.scale(loss_of(scaled, inputs, targets) * float("inf")).backward()
    scaler.step(second)
    scaler.update()
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(scaled)))
    assert second.steps == 1 and scaler.get_scale() == 2.0**9


def run_steps(model: nn.Module, optimizer: SpeedLimited, steps: int) -> None:
    inputs, targets = batch()
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, inputs, targets).backward()
        optimizer.step()


def limited_with_momentum(model: nn.Module) -> SpeedLimited:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SpeedLimited(
            sgd(model, lr=0.05, momentum=0.9), model, {"0": lambda step: 3.0 / (1 + step), "*": 0.3}, eps=0.01
        )


def test_checkpoint_and_resume_is_bit_identical() -> None:
    straight = network()
    run_steps(straight, limited_with_momentum(straight), 7)

    stopped = network()
    optimizer = limited_with_momentum(stopped)
    run_steps(stopped, optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": stopped.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = network()
    resumed.load_state_dict(saved["model"])
    fresh = limited_with_momentum(resumed)
    fresh.load_state_dict(saved["optimizer"])
    assert fresh.steps == 3
    run_steps(resumed, fresh, 4)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters()))
    fresh.param_groups[0]["lr"] = 7.0
    assert fresh.optimizer.param_groups[0]["lr"] == 7.0  # still one list after loading


def test_loading_restores_speeds_and_refuses_the_state_of_something_else() -> None:
    model = network()
    saved = SpeedLimited(sgd(model), model, {"0": 2.0, "2": 1.0}, eps=0.3).state_dict()
    other = SpeedLimited(sgd(model), model, {"0": 9.0, "2": 9.0})
    other.load_state_dict(saved)
    assert other.speeds == {"0": 2.0, "2": 1.0} and other.eps == 0.3
    with pytest.raises(ValueError, match="limits"):
        SpeedLimited(sgd(model), model, {"0": 2.0}).load_state_dict(saved)
    with pytest.raises(ValueError, match="not the state"):
        other.load_state_dict(sgd(model).state_dict())
    scheduled = SpeedLimited(sgd(model), model, {"0": lambda step: 1.0, "2": 1.0}).state_dict()
    with pytest.raises(ValueError, match="was a function"):
        other.load_state_dict(scheduled)


def test_a_deep_copy_is_an_optimiser_of_its_own() -> None:
    model = network()
    model_copy, optimizer = copy.deepcopy((model, SpeedLimited(sgd(model), model, {"*": 1.0})))
    before = parameters_of(model)
    run_steps(model_copy, optimizer, 2)
    assert all(torch.equal(a, b) for a, b in zip(before, parameters_of(model)))
    assert optimizer.steps == 2 and not torch.equal(before[0], parameters_of(model_copy)[0])


@pytest.mark.parametrize(
    ("optimizer", "word"),
    [
        (lambda p: torch.optim.Adam(p), "size"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "momentum"),
        (lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1), "weight decay"),
        (lambda p: torch.optim.RMSprop(p), "size"),
        (lambda p: torch.optim.Adadelta(p), "size"),
        (lambda p: torch.optim.Adagrad(p), "size"),
        (lambda p: torch.optim.Rprop(p), "size"),
        (lambda p: torch.optim.Adafactor(p), "size"),
        (lambda p: torch.optim.ASGD(p), "weight decay"),
        (lambda p: torch.optim.LBFGS(p), "differences"),
    ],
)
def test_an_optimiser_under_which_speeds_mean_something_else_warns(optimizer, word: str) -> None:  # noqa: ANN001
    model = network()
    with pytest.warns(UserWarning, match=word):
        SpeedLimited(optimizer(model.parameters()), model, {"*": 1.0})


@pytest.mark.parametrize("undoing", [torch.optim.Adam, torch.optim.Adagrad, torch.optim.Rprop, torch.optim.RMSprop])
def test_optimisers_that_divide_by_their_gradients_size_undo_a_constant_speed(undoing) -> None:  # noqa: ANN001
    slow, fast = network(), network()
    for model, speed in ((slow, 1.0), (fast, 100.0)):
        settings = {} if undoing is torch.optim.Rprop else {"eps": 1e-30}
        with pytest.warns(UserWarning, match="undoes constant speeds"):
            optimizer = SpeedLimited(undoing(model.parameters(), lr=0.01, **settings), model, {"0": speed})
        run_steps(model, optimizer, 3)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(parameters_of(slow), parameters_of(fast)))


def test_a_state_loaded_into_the_wrapped_optimiser_leaves_schedules_in_charge() -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"*": 1.0})
    optimizer.optimizer.load_state_dict(sgd(model).state_dict())  # makes new groups
    assert optimizer.param_groups is optimizer.optimizer.param_groups and optimizer.state is optimizer.optimizer.state
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    run_steps(model, optimizer, 1)
    schedule.step()
    assert optimizer.optimizer.param_groups[0]["lr"] == 0.05


def test_an_optimiser_that_has_already_run_keeps_its_state() -> None:
    model = network()
    plain = sgd(model, momentum=0.9)
    run_steps(model, plain, 2)
    buffer = plain.state[model[0].weight]["momentum_buffer"]
    with pytest.warns(UserWarning, match="momentum"):
        optimizer = SpeedLimited(plain, model, {"*": 1.0})
    assert optimizer.state[model[0].weight]["momentum_buffer"] is buffer and len(plain.param_groups) == 1


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e-22, 1.0, 1e19, 1e37])
def test_gradients_of_any_size_get_their_norm(size: float) -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"*": 2.0})
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, size)
    assert optimizer.gradient_norms()["0"] == pytest.approx(size * 30**0.5, rel=1e-6)
    optimizer.limit()
    assert optimizer.gradient_norms() == pytest.approx(dict.fromkeys(("0", "2", "4"), 2.0), rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_hidden(bad: float) -> None:
    model = network()
    optimizer = SpeedLimited(sgd(model), model, {"*": 2.0})
    loss_of(model, *batch()).backward()
    model[0].weight.grad[0, 0] = bad
    optimizer.limit()
    assert not model[0].weight.grad.isfinite().all()


def test_complex_gradients_keep_their_direction() -> None:
    model = nn.Linear(2, 2, bias=False, dtype=torch.complex64)
    optimizer = SpeedLimited(sgd(model), model, {"": 3.0})
    model.weight.grad = torch.tensor([[3 + 4j, 0], [0, 0]], dtype=torch.complex64)
    optimizer.limit()
    assert torch.allclose(model.weight.grad[0, 0], torch.tensor(1.8 + 2.4j))


def test_parameters_added_later_are_limited_by_the_same_globs() -> None:
    model = network()
    optimizer = SpeedLimited(torch.optim.SGD(model[0].parameters(), lr=0.1), model, {"*": 2.0})
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.3})
    assert [group["lr"] for group in optimizer.optimizer.param_groups] == [0.1, 0.3]
    loss_of(model, *batch()).backward()
    optimizer.limit()
    assert optimizer.gradient_norms() == pytest.approx({"0": 2.0, "2": 2.0})


@pytest.mark.parametrize("speed", ["2", None, [1.0], True])
def test_a_speed_that_is_neither_number_nor_function_is_refused(speed: object) -> None:
    model = network()
    with pytest.raises(TypeError, match="a number or a function"):
        unchecked(sgd(model), model, {"*": speed})


def test_a_class_a_list_or_nothing_in_place_of_the_arguments_is_refused() -> None:
    model = network()
    with pytest.raises(TypeError, match="optimiser that was built"):
        unchecked(torch.optim.SGD, model, {"*": 1.0})
    with pytest.raises(TypeError, match="the module whose layers"):
        unchecked(sgd(model), None, {"*": 1.0})
    with pytest.raises(TypeError, match="map globs to numbers"):
        unchecked(sgd(model), model, [("*", 1.0)])


def test_a_compiled_model_is_limited_under_its_own_names() -> None:
    model = network()
    compiled = torch.compile(model, backend="eager")
    assert list(SpeedLimited(sgd(compiled), compiled, {"0": 1.0}).speeds) == ["0"]


def one_of_two_processes(rank: int, port: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    inputs, targets = batch(12)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = SpeedLimited(sgd(model), model, {"0": 0.7, "*": 0.1})
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, inputs[rank::2], targets[rank::2]).backward()
        optimizer.step()
    torch.save([parameters_of(model), optimizer.gradient_norms()], Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_under_ddp_take_the_steps_of_one(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(one_of_two_processes, args=(port, str(tmp_path)), nprocs=2)
    alone = network()
    optimizer = SpeedLimited(sgd(alone), alone, {"0": 0.7, "*": 0.1})
    run_steps(alone, optimizer, 3)
    for rank in (0, 1):
        parameters, norms = torch.load(tmp_path / f"{rank}.pt")
        assert norms["0"] == pytest.approx(0.7, rel=1e-6) and norms["4"] == pytest.approx(0.1, rel=1e-6)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(parameters, parameters_of(alone)))
