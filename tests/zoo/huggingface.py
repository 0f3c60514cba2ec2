"""Unedited models of `transformers`, built from tiny configurations: nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, randint, randn

from tests.zoo.entry import entry

VOCABULARY = 7


def last_logits(raw: Any) -> torch.Tensor:
    return raw.logits[:, -1, :3]


def pooled_state(raw: Any) -> torch.Tensor:
    return raw.last_hidden_state.mean(1)[:, :3]


def tokens(examples: int = 3, length: int = 4) -> torch.Tensor:
    return randint(1, VOCABULARY, (examples, length))


def padded(examples: int = 3, length: int = 4, side: str = "left") -> dict[str, torch.Tensor]:
    """The first example is whole, each further one loses a token more."""
    mask = torch.ones(examples, length, dtype=torch.long)
    for n in range(examples):
        mask[n, slice(0, n) if side == "left" else slice(length - n, length)] = 0
    return {"input_ids": tokens(examples, length) * mask, "attention_mask": mask}


def gpt2(attention: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 6, "vocab_size": VOCABULARY}
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = GPT2Config(**sizes, **special, initializer_range=0.3, attn_implementation=attention)
    return GPT2LMHeadModel(config).eval()


def llama_like(name: str, attention: str, **more: Any) -> nn.Module:
    import transformers

    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4}
    sizes |= {"num_key_value_heads": 1, "vocab_size": VOCABULARY, "max_position_embeddings": 8}
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = getattr(transformers, f"{name}Config")(
        **(sizes | special | {"initializer_range": 0.3, "attn_implementation": attention} | more)
    )
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


@entry("GPT-2: positions without an example axis, Conv1D by addmm, the head tied to the embedding", outputs=last_logits)
def gpt2_eager():
    return gpt2("eager"), {"input_ids": tokens()}


@entry("GPT-2 under scaled_dot_product_attention", outputs=last_logits)
def gpt2_sdpa():
    return gpt2("sdpa"), {"input_ids": tokens()}


@entry("GPT-2 with padding on the left, eager", outputs=last_logits)
def gpt2_padded_eager():
    return gpt2("eager"), padded()


@entry("GPT-2 with padding on the left, under scaled_dot_product_attention", outputs=last_logits)
def gpt2_padded_sdpa():
    return gpt2("sdpa"), padded()


@entry("GPT-2 without an `outputs`: all logits of all positions, and the examples as many as positions")
def gpt2_all_logits():
    return gpt2("eager"), tokens(2, 2)


@entry("Llama: RMS norms, rotary positions, grouped queries", outputs=last_logits)
def llama_eager():
    return llama_like("Llama", "eager"), {"input_ids": tokens()}


@entry("Llama with padding under scaled_dot_product_attention", outputs=last_logits)
def llama_padded_sdpa():
    return llama_like("Llama", "sdpa", num_hidden_layers=2, tie_word_embeddings=True), padded()


@entry("Gemma: norms with one plus the weight, embeddings scaled, the head tied", outputs=last_logits)
def gemma():
    return llama_like("Gemma", "sdpa"), {"input_ids": tokens()}


@entry("Qwen2-MoE: shared and routed experts", outputs=last_logits)
def qwen2_moe():
    sizes = {
        "moe_intermediate_size": 5,
        "shared_expert_intermediate_size": 6,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    }
    return llama_like("Qwen2Moe", "eager", experts_implementation="eager", **sizes), {"input_ids": tokens()}


@entry("Mixtral: experts stacked in one parameter, ragged rows", outputs=last_logits)
def mixtral_eager():
    sizes = {"num_local_experts": 3, "num_experts_per_tok": 2}
    return llama_like("Mixtral", "eager", experts_implementation="eager", **sizes), {"input_ids": tokens()}


@entry("Mixtral with padding, experts by batched matrix products", outputs=last_logits)
def mixtral_padded_batched():
    sizes = {"num_local_experts": 3, "num_experts_per_tok": 2}
    return llama_like("Mixtral", "sdpa", experts_implementation="batched_mm", **sizes), padded()


@entry("OLMoE: norms on queries and keys", outputs=last_logits)
def olmoe():
    sizes = {"num_experts": 3, "num_experts_per_tok": 2, "num_key_value_heads": 2}
    return llama_like("Olmoe", "sdpa", experts_implementation="eager", **sizes), {"input_ids": tokens()}


def bert(attention: str) -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 10}
    sizes |= {"vocab_size": VOCABULARY, "max_position_embeddings": 6, "num_labels": 3}
    config = BertConfig(**sizes, pad_token_id=0, initializer_range=0.3, attn_implementation=attention)
    return BertForSequenceClassification(config).eval()


@entry("a BERT classifier: three tables summed, a pooler")
def bert_eager():
    return bert("eager"), {"input_ids": tokens()}


@entry("a BERT classifier with padding on the right, under scaled_dot_product_attention")
def bert_padded_sdpa():
    return bert("sdpa"), padded(side="right")


@entry("DistilBERT with padding", outputs=pooled_state)
def distilbert():
    from transformers import DistilBertConfig, DistilBertModel

    sizes = {
        "dim": 8,
        "n_layers": 1,
        "n_heads": 2,
        "hidden_dim": 10,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 6,
    }
    return DistilBertModel(DistilBertConfig(**sizes, pad_token_id=0, initializer_range=0.3)).eval(), padded(
        side="right"
    )


@entry("a vision transformer classifier: patches by convolution, a class token, positions")
def vit():
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 10}
    sizes |= {"image_size": 4, "patch_size": 2, "num_channels": 2, "num_labels": 3}
    return ViTForImageClassification(ViTConfig(**sizes, initializer_range=0.3)).eval(), {
        "pixel_values": randn(3, 2, 4, 4)
    }


@entry("the encoder of T5: relative positions shared by all layers", outputs=pooled_state)
def t5_encoder():
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 10, "num_layers": 2, "num_heads": 2, "vocab_size": VOCABULARY}
    config = T5Config(**sizes, relative_attention_num_buckets=4, relative_attention_max_distance=6, dropout_rate=0.0)
    return T5EncoderModel(config).eval(), padded(side="right")


@entry("T5 whole: one table for encoder, decoder and head", outputs=last_logits)
def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 10, "num_layers": 1, "num_heads": 2, "vocab_size": VOCABULARY}
    config = T5Config(**sizes, relative_attention_num_buckets=4, relative_attention_max_distance=6, dropout_rate=0.0)
    model = T5ForConditionalGeneration(config).eval()
    return model, {"input_ids": tokens(), "decoder_input_ids": tokens(3, 2), "use_cache": False}


@entry("a ResNet classifier: batch normalisation in eval mode inside somebody else's code")
def resnet():
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = {
        "embedding_size": 4,
        "hidden_sizes": [4, 8],
        "depths": [1, 1],
        "num_channels": 2,
        "num_labels": 3,
        "layer_type": "basic",
    }
    model = ResNetForImageClassification(ResNetConfig(**sizes))
    model(randn(8, 2, 12, 12))
    return model.eval(), {"pixel_values": randn(3, 2, 12, 12)}


@entry("Mamba: a selective scan with a causal depthwise convolution", outputs=last_logits)
def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    sizes = {"hidden_size": 6, "state_size": 3, "num_hidden_layers": 1, "vocab_size": VOCABULARY, "time_step_rank": 2}
    return MambaForCausalLM(MambaConfig(**sizes, use_cache=False, initializer_range=0.3)).eval(), {
        "input_ids": tokens()
    }
