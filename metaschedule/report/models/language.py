"""BERT and GPT-2 of `transformers` by configuration, nothing downloaded. Results are tuples of tensors."""

from __future__ import annotations

from typing import Any

from torch import nn

BERT_LARGE = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
}  # fmt: skip
SMALL_BERT = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "vocab_size": 64, "max_position_embeddings": 32,
}  # fmt: skip
SMALL_GPT2 = {
    "n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 64, "n_positions": 32, "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip


def bert(**config: Any) -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(return_dict=False, **config))


def bert_large(**config: Any) -> nn.Module:
    return bert(**{**BERT_LARGE, **config})


def gpt2(**config: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    return GPT2Model(GPT2Config(return_dict=False, use_cache=False, **config))
