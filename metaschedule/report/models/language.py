"""BERT and GPT-2 of `transformers` by configuration, nothing downloaded. Results are tuples of tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

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


def bert_small(**config: Any) -> nn.Module:
    """Four layers, 512 wide."""
    size = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}
    return bert(**{**size, **config})


def llama(**config: Any) -> nn.Module:
    """A decoder with rotary positions, fewer keys than queries and gated layers."""
    from transformers import LlamaConfig, LlamaModel

    size = {
        "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 1408, "vocab_size": 8000,
    }  # fmt: skip
    return LlamaModel(LlamaConfig(return_dict=False, use_cache=False, **{**size, **config}))


def vit(**config: Any) -> nn.Module:
    """A vision transformer, tiny."""
    from transformers import ViTConfig, ViTModel

    size = {
        "hidden_size": 192, "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768,
    }  # fmt: skip
    return ViTModel(ViTConfig(return_dict=False, **{**size, **config}), add_pooling_layer=False)


class LastState(nn.Module):
    """Of a model that cannot return tuples."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).last_hidden_state


def swin(**config: Any) -> nn.Module:
    """A vision transformer with shifted windows, half as deep as the tiny one."""
    from transformers import SwinConfig, SwinModel

    size = {"embed_dim": 96, "depths": [2, 2, 2, 2], "num_heads": [3, 6, 12, 24], "window_size": 7}
    return LastState(SwinModel(SwinConfig(**{**size, **config}), add_pooling_layer=False))
