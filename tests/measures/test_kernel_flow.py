"""Kernel flow: against tiny explicit steps, against its limits, and where an explicit step fails."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import Tensor

from tangentlens.errors import BadInput
from tangentlens.kernels.infinite_width import MLPKernelProduct, mlp_kernel
from tangentlens.kernels.token_scores import label_scores
from tangentlens.measures.flow_agreement import correlation
from tangentlens.measures.kernel_flow import kernel_flow, kernel_time
from tangentlens.studies.sun2023.models import TokenMLP
from tests.reference.sun2023 import flow_by_small_steps


def _task(examples: int = 40, words: int = 12, labels: int = 2) -> tuple[Tensor, Tensor]:
    documents = torch.randint(0, words, (examples, 5))
    return mlp_kernel(documents), torch.randint(0, labels, (examples,))


@pytest.mark.parametrize("solver", ["implicit", "split"])
@pytest.mark.parametrize("labels", [1, 3])
def test_the_flow_is_the_limit_of_tiny_steps(solver: str, labels: int) -> None:
    kernel, targets = _task(labels=max(labels, 2))
    times = torch.tensor([0.0, 0.5, 3.0]) * kernel_time(kernel)
    flow = kernel_flow(kernel, targets, times, labels=labels, solver=solver)  # type: ignore[arg-type]
    scores = flow.scores(kernel)
    assert scores[0].abs().max() == 0
    for moment in (1, 2):
        slow = flow_by_small_steps(kernel, targets, float(times[moment]), 4000, labels)
        torch.testing.assert_close(scores[moment], slow, rtol=5e-3, atol=2e-3)


def test_both_solvers_agree_to_their_tolerance() -> None:
    kernel, targets = _task(examples=80)
    times = torch.tensor([0.1, 1.0, 10.0]) * kernel_time(kernel)
    exact = kernel_flow(kernel, targets, times, solver="implicit", tolerance=1e-8).scores(kernel)
    for solver in ("implicit", "split"):
        seen = kernel_flow(kernel, targets, times, solver=solver).scores(kernel)  # type: ignore[arg-type]
        assert (seen - exact).abs().max() < 1e-3


def test_a_kernel_known_by_its_products_flows_like_its_matrix() -> None:
    documents = torch.randint(0, 12, (40, 5))
    kernel, targets = mlp_kernel(documents), torch.randint(0, 2, (40,))
    times = torch.tensor([0.3, 3.0]) * kernel_time(kernel)
    product = MLPKernelProduct.of(documents)
    exact = kernel_flow(kernel, targets, times).scores(kernel)
    assert (kernel_flow(product, targets, times).scores(product) - exact).abs().max() < 1e-3
    singles = MLPKernelProduct.of([(3,), (5,)], documents)
    few = kernel_flow(kernel, targets, times).scores(mlp_kernel([(3,), (5,)], documents))
    assert (kernel_flow(product, targets, times).scores(singles) - few).abs().max() < 1e-3
    with pytest.raises(BadInput, match="needs its matrix"):
        kernel_flow(product, targets, times, solver="implicit")


def test_early_scores_are_half_the_time_times_the_signed_kernel() -> None:
    kernel, targets = _task()
    time = 1e-4 * kernel_time(kernel)
    scores = kernel_flow(kernel, targets, torch.tensor([time])).scores(kernel)[0, :, 0]
    signs = 2 * targets.double() - 1
    torch.testing.assert_close(scores, time / (2 * len(kernel)) * kernel @ signs, rtol=2e-3, atol=1e-6)


def test_other_inputs_and_initial_scores_enter_as_the_equation_says() -> None:
    documents = torch.randint(0, 8, (30, 5))
    kernel, targets = mlp_kernel(documents), torch.randint(0, 2, (30,))
    initial = torch.randn(30, 1, dtype=torch.float64)
    times = torch.tensor([1.0]) * kernel_time(kernel)
    flow = kernel_flow(kernel, targets, times, initial=initial)
    torch.testing.assert_close(
        flow.scores(mlp_kernel(documents[:4], documents), initial[:4]), flow.scores(kernel, initial)[:, :4]
    )
    untouched = kernel_flow(kernel, targets, torch.zeros(1), initial=initial).scores(kernel, initial)
    torch.testing.assert_close(untouched[0], initial)


def test_two_class_softmax_is_the_logistic_flow_at_twice_the_speed() -> None:
    kernel, targets = _task()
    times = torch.tensor([0.2, 2.0]) * kernel_time(kernel)
    one = kernel_flow(kernel, targets, 2 * times, tolerance=1e-7).scores(kernel)[..., 0]
    two = kernel_flow(kernel, targets, times, labels=2, tolerance=1e-7).scores(kernel)
    torch.testing.assert_close(two[..., 1] - two[..., 0], one, rtol=1e-4, atol=1e-5)


def test_a_wide_network_of_three_classes_trains_as_its_closed_form_kernel_says() -> None:
    words, steps, rate = 9, 60, 0.3  # three words lean to each class
    targets = torch.arange(90) % 3
    own = 3 * targets[:, None] + torch.randint(0, 3, (90, 5))
    documents = torch.where(torch.rand(90, 5) < 0.6, own, torch.randint(0, words, (90, 5)))
    model = TokenMLP(1 + words, 512, labels=3, activation="gelu", seed=0)
    initial = copy.deepcopy(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    before = model(1 + documents).detach()
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(1 + documents) - before, targets).backward()
        optimiser.step()
    trained = label_scores(model, list(range(1, 1 + words)), initial=initial)
    flow = kernel_flow(mlp_kernel(documents, activation="gelu"), targets, [rate * steps], labels=3)
    singles = mlp_kernel([(word,) for word in range(words)], documents, activation="gelu")
    predicted = flow.scores(singles)[0]
    assert correlation(predicted, trained) > 0.98
    assert (trained.argmax(1) == torch.arange(words) // 3).all()
    assert correlation(predicted.roll(1, dims=1), trained) < 0.5  # the classes are not interchangeable


def test_an_explicit_step_tuned_to_the_words_fakes_a_bias_that_the_flow_does_not_have() -> None:
    documents = torch.randint(0, 60, (200, 6))
    targets = torch.arange(200) % 2  # balanced: the bias direction should barely move
    kernel = mlp_kernel(documents)
    matching = kernel - mlp_kernel(documents, activation="relu").min()
    time = 3 * kernel_time(kernel)
    step = 7.9 * 200 / torch.linalg.eigvalsh(matching)[-2]  # just stable without the bias direction
    explicit = flow_by_small_steps(kernel, targets, float(200 * step), 200)
    flow = kernel_flow(kernel, targets, torch.tensor([time, float(200 * step)])).scores(kernel)
    assert flow[1].mean().abs() < 0.2
    assert (explicit - flow[1]).abs().max() > 1


def test_a_long_time_in_directions_the_kernel_lacks_does_not_stall() -> None:
    # the same documents with both labels: residuals never die, and live in the null space of the kernel
    documents = torch.tensor([(0, 1), (1, 2), (0, 1), (1, 2)])
    kernel, targets = mlp_kernel(documents), torch.tensor([0, 1, 1, 0])
    scores = kernel_flow(kernel, targets, torch.tensor([1e4]) * kernel_time(kernel)).scores(kernel)
    assert scores.abs().max() < 1e-6


def test_bad_input_is_refused() -> None:
    kernel, targets = _task(examples=6)
    times = torch.tensor([1.0])
    with pytest.raises(BadInput, match="square kernel"):
        kernel_flow(kernel[:, :3], targets, times)
    with pytest.raises(BadInput, match="6 examples need as many targets"):
        kernel_flow(kernel, targets[:4], times)
    with pytest.raises(BadInput, match=r"whole numbers 0..1 for 1 label score, got -1..1"):
        kernel_flow(kernel, torch.tensor([-1, 1, 1, -1, 1, 1]), times)
    with pytest.raises(BadInput, match=r"0..2 for 3 label scores, got 0..5; set labels="):
        kernel_flow(kernel, torch.arange(6), times, labels=3)
    with pytest.raises(BadInput, match="growing, non-negative"):
        kernel_flow(kernel, targets, torch.tensor([1.0, 0.5]))
    with pytest.raises(BadInput, match=r"initial scores have shape \(6, 2\), expected \(6, 1\)"):
        kernel_flow(kernel, targets, times, initial=torch.zeros(6, 2))
    with pytest.raises(BadInput, match="solver is one of auto, implicit, split, got 'euler'"):
        inspect.unwrap(kernel_flow)(kernel, targets, times, solver="euler")  # the tests check types before it can
    with pytest.raises(BadInput, match="at least 1, got 0"):
        kernel_flow(kernel, targets, times, labels=0)
    for wrong in (torch.tensor([float("nan")]), torch.zeros(0)):
        with pytest.raises(BadInput, match="growing, non-negative"):
            kernel_flow(kernel, targets, wrong)
    with pytest.raises(BadInput, match="at least one training example, got none"):
        kernel_flow(torch.zeros(0, 0), targets[:0], times)
    with pytest.raises(BadInput, match="stiff of at least 1 and a tolerance above 0, got 0 and 1e-05"):
        kernel_flow(kernel, targets, times, stiff=0)
    with pytest.raises(BadInput, match="got 4 and 0"):
        kernel_flow(kernel, targets, times, tolerance=0.0)
    with pytest.raises(BadInput, match=r"with the 6 training examples, .* got shape \(6, 2\)"):
        kernel_flow(kernel, targets, times).scores(kernel[:, :2])


@pytest.mark.parametrize("solver", ["implicit", "split"])
def test_initial_scores_of_a_broken_network_are_refused_and_not_taken_for_rest(solver: str) -> None:
    kernel, targets = _task(examples=6)
    with pytest.raises(BadInput, match="initial scores must be finite"):
        kernel_flow(kernel, targets, [1.0], initial=torch.full((6, 1), float("nan")), solver=solver)  # type: ignore[arg-type]


def test_targets_may_be_true_and_false() -> None:
    kernel, targets = _task(examples=6)
    expected = kernel_flow(kernel, targets, [1.0]).duals
    torch.testing.assert_close(kernel_flow(kernel, targets > 0, [1.0]).duals, expected)


@pytest.mark.parametrize("solver", ["implicit", "split"])
def test_a_kernel_that_is_indefinite_or_not_finite_is_refused_and_does_not_hang(solver: str) -> None:
    kernel, targets = _task(examples=6)
    for wrong, message in (
        (-kernel, "positive semi-definite"),
        (kernel - 2 * kernel.mean(), "positive semi-definite"),
        (kernel * float("nan"), "must be finite"),
    ):
        with pytest.raises(BadInput, match=message):
            kernel_flow(wrong, targets, torch.tensor([1.0]), solver=solver)  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", ["implicit", "split"])
def test_lists_and_kernels_with_a_gradient_flow_like_tensors(solver: str) -> None:
    kernel, targets = _task(examples=6)
    expected = kernel_flow(kernel, targets, torch.tensor([1.0, 2.0]), solver=solver).duals  # type: ignore[arg-type]
    seen = kernel_flow(kernel.requires_grad_(), targets.tolist(), [1.0, 2.0], solver=solver)  # type: ignore[arg-type]
    torch.testing.assert_close(seen.duals, expected)
