"""The score each word, n-gram or phrase gives each label: the model's own output on it, never a re-implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tangentlens.capture.outputs import Outputs, selected_outputs
from tangentlens.capture.probe import Probe, probe
from tangentlens.capture.undisturbed import eager, undisturbed
from tangentlens.errors import BadInput
from tangentlens.kernels.weights import load_into

Phrase = str | int | np.integer | Sequence[str] | Sequence[int | np.integer] | Tensor
Encode = Mapping[str, int] | Callable[..., Any]
State = Mapping[str, Tensor]


def label_scores(
    model: nn.Module,
    phrases: Sequence[Phrase],
    *,
    encode: Encode | None = None,
    outputs: Outputs | None = None,
    initial: nn.Module | State | None = None,
    chunk: int = 256,
) -> Float[Tensor, "phrase label"]:
    """s_k(phrase): what the model answers to the phrase alone, in eval mode, less its initial answer on request.

    A phrase is a token number, a list of them, or words once `encode` turns them into numbers: a word -> number mapping
    or anything callable on the phrase, Hugging Face tokenizers among it. Phrases run only beside phrases of the same
    length, so no padding reaches the model. `initial` is a module or a state dict. Mode, buffers, gradients and random
    state are left as they were. Cost: one forward pass over the phrases, `chunk` at a time; one phrase at a time for a
    Hugging Face classifier that names no padding token, which takes no two together.

    >>> model = nn.EmbeddingBag.from_pretrained(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), mode="sum")
    >>> label_scores(model, ["good", "good bad"], encode={"good": 0, "bad": 1})
    tensor([[1., 0.], [1., 2.]])
    """
    if isinstance(phrases, str) or not len(phrases):
        raise BadInput(f"expected a list of at least one phrase, got {phrases!r}; a single phrase is a list of one")
    if chunk < 1:
        raise BadInput(f"chunk is how many phrases run at a time, at least 1, got {chunk}")
    if encode is not None and not isinstance(encode, Mapping) and not callable(encode):
        raise BadInput(f"encode= is a word -> number mapping, a tokenizer or a function, got {type(encode).__name__}")
    model = eager(model)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    encoded = [_on(device, encoded_phrase(phrase, encode)) for phrase in phrases]
    with undisturbed(model), torch.no_grad():
        model.eval()
        scores = _scores(model, encoded, phrases, outputs, chunk)
    if initial is None:
        return scores
    before = initial if isinstance(initial, nn.Module) else with_state(model, initial)
    at_first = label_scores(before, phrases, encode=encode, outputs=outputs, chunk=chunk)
    if at_first.shape != scores.shape:
        raise BadInput(
            f"expected as many initial scores as there are now, {tuple(scores.shape)}, got {tuple(at_first.shape)}; "
            "initial= is the same model with other weights"
        )
    return scores - at_first


def label_scores_over(
    model: nn.Module,
    checkpoints: Mapping[int, State | Path | str],
    phrases: Sequence[Phrase],
    *,
    encode: Encode | None = None,
    outputs: Outputs | None = None,
    minus_initial: bool = False,
    chunk: int = 256,
) -> Float[Tensor, "step phrase label"]:
    """The same scores at every checkpoint, in order of step; less those of the first step on request.

    Weights are loaded into a copy: the model handed in is not touched. A file may be of any kind that `tangentlens
    follow` reads (.pt, .ckpt, .safetensors, with the prefixes of wrappers), and is read as tensors only.
    """
    if not checkpoints:
        raise BadInput("expected at least one checkpoint (step -> state dict or file), got none")
    copy = deepcopy(eager(model))
    scores = []
    for step in sorted(checkpoints):
        _load(copy, checkpoints[step], f"the checkpoint of step {step}")
        scores.append(label_scores(copy, phrases, encode=encode, outputs=outputs, chunk=chunk))
    trajectory = torch.stack(scores)
    return trajectory - trajectory[:1] if minus_initial else trajectory


def last_position(raw: Any) -> Float[Tensor, "example label"]:
    """`outputs=` for language models: the scores of the next token, after the last one given."""
    logits = raw if isinstance(raw, Tensor) else raw.logits
    return logits[:, -1]


def encoded_phrase(phrase: Phrase, encode: Encode | None) -> Tensor | dict[str, Tensor]:
    """One phrase as a batch of one, in the form the model takes it."""
    if encode is None or isinstance(phrase, int | np.integer | Tensor) or _all_numbers(phrase):
        return _numbers(phrase, phrase)
    if isinstance(encode, Mapping):
        words = list(phrase) if not isinstance(phrase, str) else [phrase] if phrase in encode else phrase.split()
        unknown = [word for word in words if word not in encode]
        if unknown:
            raise BadInput(
                f"{unknown[0]!r} in phrase {phrase!r} is not among the {len(encode)} words of the vocabulary; "
                "leave it out or map it to the unknown word yourself"
            )
        return _numbers([encode[word] for word in words], phrase)  # type: ignore[index]
    if hasattr(encode, "model_input_names"):  # a Hugging Face tokenizer
        return _tokenized(phrase, encode)
    found = encode(phrase)
    if isinstance(found, Mapping):
        return {name: torch.as_tensor(value) for name, value in found.items()}
    return _numbers(found, phrase)


def with_state(model: nn.Module, state: State) -> nn.Module:
    """A copy of the model with other weights."""
    copy = deepcopy(model)
    _load(copy, state, "initial=")
    return copy


def _all_numbers(phrase: Phrase) -> bool:
    return (
        isinstance(phrase, list | tuple) and bool(phrase) and all(isinstance(word, int | np.integer) for word in phrase)
    )


def _numbers(numbers: Any, phrase: Phrase) -> Tensor:
    if isinstance(numbers, str) or (isinstance(numbers, Sequence) and any(isinstance(n, str) for n in numbers)):
        raise BadInput(f"phrase {phrase!r} is made of words; pass encode=, a word -> number mapping or a tokenizer")
    try:
        ids = torch.as_tensor(numbers)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"phrase {phrase!r} gave {numbers!r}, expected a list of token numbers: {error}") from error
    if ids.numel() == 0:
        raise BadInput(f"phrase {phrase!r} is empty: no token of it reaches the model; leave it out")
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise BadInput(f"phrase {phrase!r} gave {ids.dtype} numbers; token numbers are whole")
    return ids.reshape(1, -1)


def _tokenized(phrase: Phrase, tokenizer: Any) -> dict[str, Tensor]:
    words = phrase if isinstance(phrase, str) else list(phrase)  # type: ignore[arg-type]
    kind = {} if isinstance(words, str) else {"is_split_into_words": True}
    if not words or not tokenizer(words, add_special_tokens=False, **kind)["input_ids"]:
        raise BadInput(f"phrase {phrase!r} is empty: no token of it reaches the model; leave it out")
    encoded = dict(tokenizer(words, return_tensors="pt", **kind))
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is not None and (encoded["input_ids"] == unknown).any():
        raise BadInput(f"phrase {phrase!r} holds a token outside the tokenizer's vocabulary; leave it out")
    return encoded


def _on(device: torch.device, inputs: Tensor | dict[str, Tensor]) -> Tensor | dict[str, Tensor]:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    return {name: value.to(device) for name, value in inputs.items()}


def _scores(
    model: nn.Module,
    encoded: Sequence[Tensor | dict[str, Tensor]],
    phrases: Sequence[Phrase],
    outputs: Outputs | None,
    chunk: int,
) -> Tensor:
    alike: dict[Any, list[int]] = {}
    for number, inputs in enumerate(encoded):
        alike.setdefault(_shape(inputs), []).append(number)
    found: dict[int, Tensor] = {}
    chunk = chunk if _takes_many(model) else 1
    for numbers in alike.values():
        for start in range(0, len(numbers), chunk):
            part = numbers[start : start + chunk]
            together = probe(_stacked([encoded[number] for number in part]))
            found.update(zip(part, _answer(model, together, outputs, [phrases[number] for number in part])))
    return torch.stack([found[number] for number in range(len(encoded))])


def _takes_many(model: nn.Module) -> bool:
    """Hugging Face's decoders with a classification head look for the last word before padding, and must know it."""
    config = getattr(model, "config", None)
    if config is None or not type(model).__name__.endswith("ForSequenceClassification"):
        return True
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    return getattr(text, "pad_token_id", None) is not None


def _answer(model: nn.Module, inputs: Probe, outputs: Outputs | None, phrases: Sequence[Phrase]) -> Tensor:
    try:
        raw = inputs.call(model)
    except IndexError as error:
        raise BadInput(
            f"the model has no embedding for a token of {list(phrases[:5])!r}: {error}; "
            "its vocabulary is smaller than the token numbers given"
        ) from error
    logits = raw if isinstance(raw, Tensor) else getattr(raw, "logits", None)
    if outputs is None and isinstance(logits, Tensor) and logits.ndim > 2:
        raise BadInput(
            f"a phrase needs one score per label, got outputs of shape {tuple(logits.shape)}; "
            "for a language model pass outputs=last_position"
        )
    scores = selected_outputs(raw, outputs, inputs.length)
    unanswered = [phrase for phrase, row in zip(phrases, scores) if row.isnan().any()]
    if unanswered:
        raise BadInput(
            f"the model answers NaN to {unanswered[:5]!r}; leave out padding and other tokens that say nothing alone"
        )
    return scores


def _shape(inputs: Tensor | dict[str, Tensor]) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.shape
    return tuple((name, value.shape) for name, value in sorted(inputs.items()))


def _stacked(parts: Sequence[Tensor | dict[str, Tensor]]) -> Tensor | dict[str, Tensor]:
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    return {name: torch.cat([part[name] for part in parts if isinstance(part, dict)]) for name in first}


def _load(model: nn.Module, state: State | Path | str, which: str) -> None:
    try:
        if isinstance(state, Path | str):
            load_into(model, Path(state))
        else:
            model.load_state_dict(state)
    except (RuntimeError, BadInput) as error:
        raise BadInput(f"{which} does not fit the model: {error}") from error
