"""The head finds itself in any model, its input is read where the outputs look, and nothing is left behind."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from tangentlens.errors import BadInput
from tangentlens.kernels.features import features, stream_features


class RawHead(nn.Module):
    """A head that is no module: a product written one of several ways."""

    def __init__(self, product: Callable[[Tensor, Tensor], Tensor], transposed: bool) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.head = nn.Parameter(torch.randn(3, 5) if transposed else torch.randn(5, 3))
        self.product = product

    def forward(self, x: Tensor) -> Tensor:
        return self.product(self.body(x).tanh(), self.head)


class Tokens(nn.Module):
    """A small language model with a tied head; `read` says which places the outputs come from."""

    def __init__(self, read: Callable[[Tensor], Tensor], tied: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.lm_head = nn.Linear(8, 11, bias=False)
        if tied:
            self.lm_head.weight = self.embedding.weight
        self.read = read

    def states(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        return self.norm(states + self.mix(states, states, states)[0])

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.lm_head(self.states(tokens)))


MLP = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))


def test_the_head_of_a_sequential_model_is_its_last_linear_layer() -> None:
    x = torch.randn(9, 6)
    found = features(MLP, x)
    assert (found.layer, found.reading) == ("2", "input of 2")
    torch.testing.assert_close(found.values, MLP[:2](x).detach())
    torch.testing.assert_close(found.outputs, found.values @ found.weight.T + found.bias)
    assert not found.values.requires_grad and not found.outputs.requires_grad


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("way", ["matmul", "mm", "addmm", "einsum", "linear"])
def test_a_head_written_as_a_product_is_found(way: str, transposed: bool) -> None:
    shift = torch.randn(3)
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "matmul": lambda a, w: a @ (w.T if transposed else w),
        "mm": lambda a, w: torch.mm(a, w.T if transposed else w),
        "addmm": lambda a, w: torch.addmm(shift, a, w.T if transposed else w),
        "einsum": lambda a, w: torch.einsum("nu,ou->no" if transposed else "nu,uo->no", a, w),
        "linear": lambda a, w: nn.functional.linear(a, w if transposed else w.T),
    }
    model, x = RawHead(ways[way], transposed), torch.randn(4, 6)
    found = features(model, x)
    torch.testing.assert_close(found.values, model.body(x).tanh().detach())
    torch.testing.assert_close(found.values @ found.weight.T + (0 if found.bias is None else found.bias), found.outputs)
    assert (found.layer, found.reading) == ("head", "input of head")


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("way", ["divided", "normalised", "factors", "masked"])
def test_a_head_whose_weight_is_computed_from_parameters_is_read_at_its_own_input(way: str, frozen: bool) -> None:
    ways: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
        "divided": lambda m, a: a @ (m.w / m.w.norm()).T,
        "normalised": lambda m, a: nn.functional.normalize(a, dim=1) @ nn.functional.normalize(m.w, dim=1).T,
        "factors": lambda m, a: a @ (m.low @ m.high).T,
        "masked": lambda m, a: torch.matmul(a, torch.cat([m.w[:2] * m.mask, m.w[2:]]).t()),
    }

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.w = nn.Linear(6, 5), nn.Parameter(torch.randn(3, 5))
            self.low, self.high = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(2, 5))
            self.register_buffer("mask", torch.tensor([1.0, 0, 1, 1, 0]))

        def forward(self, x: Tensor) -> Tensor:
            return ways[way](self, self.body(x).tanh())

    model, x = Made().requires_grad_(not frozen), torch.randn(4, 6)
    found, hidden = features(model, x), model.body(x).tanh().detach()
    torch.testing.assert_close(found.values, nn.functional.normalize(hidden, dim=1) if way == "normalised" else hidden)
    torch.testing.assert_close(found.values @ found.weight.T, found.outputs)
    name = "low" if way == "factors" else "w"
    assert (found.layer, found.reading) == (name, f"input of {name}")


def test_a_product_of_two_activations_is_no_head() -> None:
    class Attentive(RawHead):
        def forward(self, x: Tensor) -> Tensor:
            scores = super().forward(x)
            return scores @ (scores.T @ scores).softmax(1)

    found = features(Attentive(nn.functional.linear, transposed=True), torch.randn(4, 6))
    assert found.layer == "head" and "something follows" in found.reading


def test_a_tied_head_is_known_by_its_own_name_and_read_at_the_last_token() -> None:
    model, tokens = Tokens(lambda z: z[:, -1]), torch.randint(11, (5, 4))
    found = features(model, tokens)
    torch.testing.assert_close(found.values, model.states(tokens)[:, -1].detach())
    assert (found.layer, found.reading) == ("lm_head", "input of lm_head at the place the outputs look at")
    torch.testing.assert_close(found.outputs, found.values @ found.weight.T)


def test_outputs_for_a_few_tokens_are_read_at_the_same_place() -> None:
    model, tokens = Tokens(lambda z: z), torch.randint(11, (5, 4))
    found = features(model, tokens, outputs=lambda z: z[:, 2, [3, 7]])
    torch.testing.assert_close(found.values, model.states(tokens)[:, 2].detach())
    assert found.outputs.shape == (5, 2) and "selects" in found.reading


def test_the_last_real_token_may_differ_between_examples() -> None:
    last = torch.tensor([0, 3, 1, 2, 3])
    model, tokens = Tokens(lambda z: z[torch.arange(len(z)), last[: len(z)]]), torch.randint(11, (5, 4))
    torch.testing.assert_close(features(model, tokens).values, model.states(tokens)[torch.arange(5), last].detach())


def test_every_place_with_outputs_of_its_own_is_a_row() -> None:
    model, tokens = Tokens(lambda z: z), torch.randint(11, (5, 4))
    found = features(model, tokens)
    torch.testing.assert_close(found.values, model.states(tokens).detach().reshape(20, 8))
    assert found.outputs.shape == (20, 11) and found.reading == "input of lm_head, each of its 4 places a row"
    torch.testing.assert_close(found.values @ found.weight.T, found.outputs)


@pytest.mark.parametrize("merge", [False, True])
def test_places_before_examples_and_merged_places_are_told_apart(merge: bool) -> None:
    class Turned(Tokens):
        def forward(self, tokens: Tensor) -> Tensor:
            states = self.states(tokens).transpose(0, 1)  # place first
            states = states.reshape(-1, 8) if merge else states
            return self.lm_head(states).view(tokens.shape[1], len(tokens), 11)[-1]

    model, tokens = Turned(lambda z: z), torch.randint(11, (6, 4))
    torch.testing.assert_close(features(model, tokens).values, model.states(tokens)[:, -1].detach())


def test_outputs_averaged_over_places_average_the_features_as_well() -> None:
    model, tokens = Tokens(lambda z: z.mean(1)), torch.randint(11, (5, 4))
    found = features(model, tokens)
    torch.testing.assert_close(found.values, model.states(tokens).mean(1).detach())
    torch.testing.assert_close(found.values @ found.weight.T, found.outputs)
    assert "averaged over 4 places" in found.reading


def test_a_convolution_with_pooling_behind_it_is_a_head_on_pooled_features() -> None:
    body, head = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU()), nn.Conv2d(6, 3, 1)
    model = nn.Sequential(body, head, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.randn(4, 2, 6, 6)
    found = features(model, x)
    torch.testing.assert_close(found.values, body(x).mean((2, 3)).detach())
    assert found.layer == "1"


@pytest.mark.parametrize("convolution", [nn.Conv2d(2, 3, 5, padding=1), nn.Conv1d(2, 3, 4, stride=2)])
def test_a_convolution_that_is_itself_the_end_is_read_in_patches(convolution: nn.Module) -> None:
    x = torch.randn(4, 2, 3, 3) if isinstance(convolution, nn.Conv2d) else torch.randn(4, 2, 4)
    found = features(nn.Sequential(convolution, nn.Flatten()), x)
    torch.testing.assert_close(found.values @ found.weight.T + found.bias, found.outputs, rtol=1e-4, atol=1e-5)


def test_frozen_weights_and_token_inputs_still_show_the_head() -> None:
    model, tokens = Tokens(lambda z: z[:, -1]).requires_grad_(False), torch.randint(11, (5, 4))
    torch.testing.assert_close(features(model, tokens).values, model.states(tokens)[:, -1])
    assert not any(p.requires_grad for p in model.parameters())


def test_a_model_that_works_in_place_is_read_before_it_does() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x).relu_()).mul_(2.0)

    for model in (InPlace(), InPlace().requires_grad_(False)):
        x = torch.randn(4, 6)
        found = features(model, x)
        torch.testing.assert_close(found.values, model.body(x).relu().detach())
        torch.testing.assert_close(found.outputs, 2 * model.head(found.values).detach())
        assert "something follows" in found.reading


def test_other_layers_are_read_flattened_or_averaged_and_say_so() -> None:
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.Linear(16, 3))
    x = torch.randn(5, 2, 6, 6)
    hidden = model[:2](x).detach()
    flat, mean = features(model, x, "2"), features(model, x, "2", places="mean")
    torch.testing.assert_close(flat.values, hidden.flatten(1))
    torch.testing.assert_close(mean.values, hidden.mean((2, 3)))
    assert (
        flat.reading == "input of 2, 6x4x4 flattened" and mean.reading == "input of 2, 6x4x4 averaged over its places"
    )
    torch.testing.assert_close(flat.outputs, model(x).detach())
    tokens, language = torch.randint(11, (5, 4)), Tokens(lambda z: z[:, -1])
    torch.testing.assert_close(features(language, tokens, "lm_head", places="mean").values,
                               language.states(tokens).mean(1).detach())  # fmt: skip


def test_a_stream_of_batches_gives_what_one_batch_gives() -> None:
    model, tokens = Tokens(lambda z: z[:, -1]), torch.randint(11, (10, 4))
    whole = features(model, tokens)
    parts = list(stream_features(model, tokens.split(3)))
    torch.testing.assert_close(torch.cat([part.values for part in parts]), whole.values)
    torch.testing.assert_close(torch.cat([part.outputs for part in parts]), whole.outputs)


def test_dictionaries_tuples_and_wrapped_models_are_taken_as_they_are() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 2)

        def forward(self, x: Tensor, shift: Tensor) -> dict[str, Tensor]:
            return {"scores": self.head(x + shift)}

    model, x, shift = Two(), torch.randn(4, 6), torch.randn(4, 6)
    by_name = features(model, {"x": x, "shift": shift}, outputs=lambda out: out["scores"])
    by_place = features(nn.DataParallel(model), (x, shift), outputs=lambda out: out["scores"])
    torch.testing.assert_close(by_name.values, x + shift)
    torch.testing.assert_close(by_place.values, x + shift)
    assert by_place.layer == "head"


@pytest.mark.parametrize("layer", [None, "0"])
def test_reading_leaves_model_and_random_state_untouched_also_after_an_error(layer: str | None) -> None:
    class Breaks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.rand(3)
            if x.shape[1] == 3:
                raise RuntimeError("broken on purpose")
            return x

    fine = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.BatchNorm1d(4), Breaks()), nn.Linear(4, 2)).eval()
    broken = nn.Sequential(nn.Linear(6, 3), Breaks(), nn.Linear(3, 2)).train()
    for model in (fine, broken):
        before = copy.deepcopy(model.state_dict())
        flags, state, gradients = [m.training for m in model.modules()], torch.get_rng_state(), torch.is_grad_enabled()
        with pytest.raises(RuntimeError, match="on purpose") if model is broken else nullcontext():
            features(model, torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), layer)
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
        assert [m.training for m in model.modules()] == flags
        assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled() == gradients
        assert all(not m._forward_pre_hooks and not m._forward_hooks for m in model.modules())
        assert all(p.grad is None for p in model.parameters())


def test_reading_works_where_gradients_are_switched_off() -> None:
    with torch.no_grad():
        assert features(MLP, torch.randn(4, 6)).layer == "2"
    with torch.inference_mode():
        x = torch.randn(4, 6)
        assert features(MLP, x).layer == "2"


def test_a_model_without_one_head_is_refused_with_the_candidates() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.left(x) + self.right(x)

    with pytest.raises(BadInput, match=r"left, right.*layer="):
        features(Parallel(), torch.randn(4, 6))
    assert features(Parallel(), torch.randn(4, 6), "left").values.shape == (4, 6)
    with pytest.raises(BadInput, match="none was found"):
        features(nn.Sequential(nn.ReLU()), torch.randn(4, 6))
    with pytest.raises(BadInput, match="one of: left, right"):
        features(Parallel(), torch.randn(4, 6), "middle")


def test_batch_norm_in_train_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="eval"):
        features(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), torch.randn(4, 6))


def test_hugging_face_models_show_their_heads() -> None:
    transformers = pytest.importorskip("transformers")
    tokens = torch.randint(50, (3, 7))
    for family, sizes in (
        ("GPT2", {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}),
        ("Llama", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}),
    ):
        config = getattr(transformers, f"{family}Config")(vocab_size=50, **sizes)
        model = getattr(transformers, f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")(
            config
        ).eval()
        found = features(model, {"input_ids": tokens}, outputs=lambda out: out.logits[:, -1])
        with torch.no_grad():
            states = model.base_model(input_ids=tokens).last_hidden_state[:, -1]
        torch.testing.assert_close(found.values, states)
        assert found.layer == "lm_head"
        torch.testing.assert_close(found.values @ found.weight.T, found.outputs, rtol=1e-4, atol=1e-5)
