"""Label scores are the model's own answers, over checkpoints too, and asking for them leaves no trace."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tangentlens.errors import BadInput
from tangentlens.kernels.causal_leak import causal_leak
from tangentlens.kernels.token_scores import label_scores, label_scores_over, last_position
from tangentlens.studies.sun2023.language_model import LanguageModel
from tangentlens.studies.sun2023.models import SelfAttention, TokenMLP

WORDS = {"the": 1, "film": 2, "good": 3, "bad": 4, "not": 5}


def _model(**kind: object) -> TokenMLP:
    return TokenMLP(6, 8, labels=2, **kind)  # type: ignore[arg-type]


def test_a_label_score_is_the_models_logit_on_the_phrase_alone() -> None:
    model = _model()
    scores = label_scores(model, ["good", "not good", "the film"], encode=WORDS)
    for row, ids in zip(scores, ([3], [5, 3], [1, 2])):
        torch.testing.assert_close(row, model(torch.tensor([ids]))[0])


def test_phrases_come_as_numbers_words_or_lists_alike() -> None:
    model = _model()
    expected = label_scores(model, [[5, 3]])
    for phrase in ("not good", ["not", "good"], torch.tensor([5, 3])):
        torch.testing.assert_close(label_scores(model, [phrase], encode=WORDS), expected)
    torch.testing.assert_close(label_scores(model, [3]), label_scores(model, ["good"], encode=WORDS))
    torch.testing.assert_close(label_scores(model, ["good"], encode=lambda w: [WORDS[w]]), label_scores(model, [3]))


def test_no_score_depends_on_the_other_phrases_or_the_chunk() -> None:
    model = SelfAttention(6, 8, labels=2)
    together = label_scores(model, ["good", "not good", "bad", "not good film"], encode=WORDS, chunk=1)
    torch.testing.assert_close(label_scores(model, ["bad"], encode=WORDS), together[2:3])
    torch.testing.assert_close(
        label_scores(model, ["good", "not good", "bad", "not good film"], encode=WORDS), together
    )


class _Restless(nn.Module):
    """Dropout, batch statistics and its own draws: everything an observer could disturb."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += 1
        torch.rand(1)
        return self.head(self.drop(self.norm(self.embedding(tokens).sum(1))))


def test_asking_for_scores_leaves_mode_buffers_gradients_and_random_state_as_they_were() -> None:
    model = _Restless().train()
    model.drop.eval()  # a part in another mode than the whole
    model(torch.tensor([[1, 2], [3, 4]])).sum().backward()
    state = copy.deepcopy(model.state_dict())
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    modes = [m.training for m in model.modules()]
    random = torch.random.get_rng_state()
    first = label_scores(model, [1, 2, 3])
    torch.testing.assert_close(label_scores(model, [1, 2, 3]), first)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in state.items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients) if p.grad is not None)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not first.requires_grad


def test_initial_scores_are_subtracted_from_a_state_dict_or_a_module() -> None:
    model = _model()
    before = copy.deepcopy(model)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        model.readout += 1.0
    moved = label_scores(model, [3, 4]) - label_scores(before, [3, 4])
    torch.testing.assert_close(label_scores(model, [3, 4], initial=start), moved)
    torch.testing.assert_close(label_scores(model, [3, 4], initial=before), moved)


def test_checkpoints_are_read_in_order_of_step_and_not_into_the_model(tmp_path: Path) -> None:
    model = _model()
    states: dict[int, dict[str, Tensor] | Path] = {}
    for step in (20, 0, 5):
        states[step] = {name: value + step for name, value in model.state_dict().items()}
    torch.save(states[5], tmp_path / "five.pt")
    states[5] = tmp_path / "five.pt"
    before = label_scores(model, [3])
    seen = label_scores_over(model, states, [3, 4])
    assert seen.shape == (3, 2, 2)
    torch.testing.assert_close(seen[0], label_scores(model, [3, 4]))
    torch.testing.assert_close(label_scores_over(model, states, [3, 4], minus_initial=True), seen - seen[:1])
    torch.testing.assert_close(label_scores(model, [3]), before)


def test_a_language_model_is_read_at_its_last_position() -> None:
    model = LanguageModel(6, 8, hidden=8, dropout=0.1)
    scores = label_scores(model, [3, [1, 2]], outputs=last_position)
    model.eval()
    torch.testing.assert_close(scores[1], model(torch.tensor([[1, 2]]))[0, -1])
    with pytest.raises(BadInput, match="one score per label.*outputs=last_position"):
        label_scores(model, [3])


def test_hugging_face_classifiers_are_read_through_their_tokenizer() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    raw = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "good": 2, "not": 3, "bad": 4}, unk_token="[UNK]")
    )
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", pad_token="[PAD]")
    config = transformers.BertConfig(
        vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).train()
    scores = label_scores(model, ["good", "not good", "bad"], encode=tokenizer)
    assert scores.shape == (3, 3) and model.training
    model.eval()
    expected = model(**tokenizer("not good", return_tensors="pt")).logits[0]
    torch.testing.assert_close(scores[1], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(BadInput, match="'awful'.*outside the tokenizer's vocabulary"):
        label_scores(model, ["awful"], encode=tokenizer)


def test_a_hugging_face_decoder_without_a_padding_token_classifies_phrases_too() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=6, n_embd=8, n_layer=1, n_head=2, num_labels=2, bos_token_id=None, eos_token_id=None
    )
    assert config.pad_token_id is None
    model = transformers.GPT2ForSequenceClassification(config).eval()
    scores = label_scores(model, ["good", "bad", "not good"], encode=WORDS)
    for row, ids in zip(scores, ([3], [4], [5, 3])):
        torch.testing.assert_close(row, model(torch.tensor([ids])).logits[0])


def test_bad_phrases_are_refused_by_name() -> None:
    model = _model()
    with pytest.raises(BadInput, match="'awful' in phrase 'awful film' is not among the 5 words"):
        label_scores(model, ["good", "awful film"], encode=WORDS)
    with pytest.raises(BadInput, match="phrase '' is empty"):
        label_scores(model, [""], encode=WORDS)
    with pytest.raises(BadInput, match="made of words; pass encode="):
        label_scores(model, ["good"])
    with pytest.raises(BadInput, match="no embedding for a token of .77."):
        label_scores(model, [77])
    with pytest.raises(BadInput, match="at least one phrase"):
        label_scores(model, [])
    with pytest.raises(BadInput, match="list of at least one phrase, got 'good'"):
        label_scores(model, "good", encode=WORDS)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="at least 1, got 0"):
        label_scores(model, [3], chunk=0)
    with pytest.raises(BadInput, match=r"answers NaN to \[0\]; leave out padding"):
        label_scores(SelfAttention(6, 8), [3, 0])
    with pytest.raises(BadInput, match="phrase 'good' gave None, expected a list of token numbers"):
        label_scores(model, ["good"], encode=lambda word: None)
    with pytest.raises(BadInput, match="phrase True gave torch.bool numbers"):
        label_scores(model, [True])
    with pytest.raises(BadInput, match="encode= is a word -> number mapping, a tokenizer or a function, got list"):
        inspect.unwrap(label_scores)(model, ["good"], encode=list(WORDS))  # the tests check types before it can
    with pytest.raises(BadInput, match=r"as many initial scores as there are now, \(1, 2\), got \(1, 3\)"):
        label_scores(model, [3], initial=TokenMLP(6, 8, labels=3))
    with pytest.raises(BadInput, match="the checkpoint of step 3 does not fit"):
        label_scores_over(model, {3: {"embedding": torch.zeros(2, 2)}}, [3])


@pytest.mark.parametrize("causal", [True, False])
def test_the_leak_check_tells_a_causal_mask_from_none(causal: bool) -> None:
    model = LanguageModel(20, 16, hidden=16, causal=causal)
    leak = causal_leak(model, torch.randint(0, 20, (4, 10)), 20)
    assert (leak < 1e-5) == causal
    assert causal or leak > 0.1


def test_numbers_stay_numbers_beside_words() -> None:
    model = _model()
    first, second = (WORDS[word] for word in list(WORDS)[:2])
    expected = label_scores(model, [[first, second], first])
    torch.testing.assert_close(label_scores(model, [[first, second], list(WORDS)[0]], encode=WORDS), expected)
    torch.testing.assert_close(label_scores(model, [(first, second), first], encode=WORDS), expected)
    of_numpy = label_scores(model, [[np.int64(first), np.int64(second)], np.int64(first)], encode=WORDS)
    torch.testing.assert_close(of_numpy, expected)


def test_checkpoints_of_every_kind_that_can_be_followed_are_scored(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = _model()
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    save_file(state, tmp_path / "a.safetensors")
    torch.save({"state_dict": {f"module.{name}": value for name, value in state.items()}}, tmp_path / "b.ckpt")
    files = {0: str(tmp_path / "a.safetensors"), 1: tmp_path / "b.ckpt"}
    seen = label_scores_over(model, files, [3])
    torch.testing.assert_close(seen, label_scores(model, [3]).expand(2, -1, -1))
    with pytest.raises(BadInput, match="the checkpoint of step 7 does not fit.*none.pt"):
        label_scores_over(model, {7: str(tmp_path / "none.pt")}, [3])


def test_a_vocabulary_without_a_second_word_or_beyond_the_models_is_refused() -> None:
    model, text = LanguageModel(6, 8, hidden=8), torch.randint(0, 6, (4, 10))
    with pytest.raises(BadInput, match="at least 2 and more than the largest token number"):
        causal_leak(model, text * 0, 1)
    with pytest.raises(BadInput, match="no embedding for some of 60 words"):
        causal_leak(model, text, 60)
