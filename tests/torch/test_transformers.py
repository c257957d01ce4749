"""Architectures of `transformers`, small and with random weights, through `torch.compile`: what eager gives.

Decoders also go on from the cache of what they have read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

import metaschedule.torch  # noqa: E402, F401  (makes the backend known)

TEXT = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 32,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2}
BART = {
    "vocab_size": 64, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 32,
}  # fmt: skip
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
VISION = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip
STAGES = {
    "num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [8, 16], "patch_sizes": [3, 3],
    "strides": [2, 2],
}  # fmt: skip
XL = {"vocab_size": 64, "d_model": 32, "n_head": 4, "d_inner": 48}
SPEECH = {
    **TEXT, "conv_dim": (16, 16), "conv_kernel": (4, 3), "conv_stride": (3, 2), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """`kind` says what goes in: text (with an attention mask), decoder (that, and a second step from its
    cache), pair (encoder and decoder), image, both (text and image), sound, spectrum."""

    model: str
    config: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)


def text(name: str, config: dict[str, Any] = TEXT, **more: Any) -> Architecture:
    return Architecture(f"{name}Model", f"{name}Config", "text", {**config, **more})


def decoder(name: str, config: dict[str, Any] = TEXT, head: str = "ForCausalLM", **more: Any) -> Architecture:
    return Architecture(f"{name}{head}", f"{name}Config", "decoder", {**config, **more})


def pair(name: str, config: dict[str, Any] = BART, **more: Any) -> Architecture:
    return Architecture(f"{name}Model", f"{name}Config", "pair", {**config, **more})


def image(name: str, config: dict[str, Any] = VISION, **more: Any) -> Architecture:
    return Architecture(f"{name}Model", f"{name}Config", "image", {**config, **more})


def sound(name: str, config: dict[str, Any] = SPEECH, **more: Any) -> Architecture:
    return Architecture(f"{name}Model", f"{name}Config", "sound", {**config, **more})


GPT = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}
QUICK = [
    text("Bert"),
    decoder("GPT2", GPT, head="LMHeadModel"),
    decoder("Llama", GROUPED),
    decoder("OPT", TEXT, ffn_dim=48, word_embed_proj_dim=32),
    pair("T5", T5),
    image("ViT"),
]
OTHERS = [
    text("Roberta", max_position_embeddings=40),
    text("DistilBert", {"vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    text("Albert", embedding_size=16),
    text("Electra", embedding_size=16),
    text("DebertaV2", pos_att_type=["p2c", "c2p"], relative_attention=True, position_buckets=8),
    text("Deberta", pos_att_type=["p2c", "c2p"], relative_attention=True),
    text("MPNet", max_position_embeddings=40),
    text("Camembert", max_position_embeddings=40),
    text("XLMRoberta", max_position_embeddings=40),
    text("Ernie"),
    text("ConvBert", embedding_size=16, head_ratio=2, conv_kernel_size=3),
    text("SqueezeBert", embedding_size=32),
    text("MobileBert", embedding_size=16, intra_bottleneck_size=32, true_hidden_size=32),
    text("FNet", {k: v for k, v in TEXT.items() if k != "num_attention_heads"}),
    text("Funnel", {**XL, "d_head": 8, "block_sizes": [1, 1]}),
    text("XLNet", {**XL, "n_layer": 2}),
    text("XLM", {"vocab_size": 64, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    text("Longformer", attention_window=4, max_position_embeddings=40),
    text("ModernBert", pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2),
    decoder("OpenAIGPT", GPT, head="LMHeadModel"),
    decoder("GPTNeo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]),
    decoder("GPTNeoX"),
    decoder("GPTJ", {**GPT, "rotary_dim": 4}),
    decoder("GPTBigCode", GPT),
    decoder("CodeGen", {**GPT, "rotary_dim": 4}),
    decoder("Bloom", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    decoder("Falcon"),
    decoder("Mpt", {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 32}),
    decoder("Mistral", GROUPED),
    decoder("Mixtral", GROUPED, num_local_experts=4),
    decoder("Qwen2", GROUPED),
    decoder("Qwen3", GROUPED, head_dim=8),
    decoder("Gemma", GROUPED, head_dim=8),
    decoder("Gemma2", GROUPED, head_dim=8),
    decoder("Phi"),
    decoder("Phi3", GROUPED, pad_token_id=0),
    decoder("StableLm", GROUPED),
    decoder("Starcoder2", GROUPED),
    decoder("Cohere", GROUPED),
    decoder("Olmo", GROUPED),
    decoder("Granite", GROUPED),
    decoder("Persimmon"),
    decoder("BioGpt"),
    decoder("XGLM", {"vocab_size": 64, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48}),
    text("Mamba", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    pair("Bart"),
    pair("MBart"),
    pair("Pegasus"),
    pair("Blenderbot"),
    pair("Marian", pad_token_id=0, decoder_start_token_id=0),
    pair("MT5", T5),
    pair("LongT5", T5),
    image("DeiT"),
    image("Beit"),
    image("Yolos", image_size=[16, 16], num_detection_tokens=4),
    image("MobileViT", {
        "image_size": 32, "hidden_sizes": [8, 12, 16], "neck_hidden_sizes": [8] * 7, "num_attention_heads": 2,
    }),
    image("Dinov2"),
    image("Swin", {
        "image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2],
        "window_size": 4,
    }),
    image("ConvNext", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
    image("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    image("RegNet", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8}),
    image("Segformer", {
        **STAGES, "sr_ratios": [2, 1], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
    }),
    image("MobileNetV2", {"depth_multiplier": 0.35, "image_size": 32}),
    image("PoolFormer", {**STAGES, "padding": [1, 1]}),
    sound("Wav2Vec2"),
    sound("Hubert"),
    Architecture("WhisperModel", "WhisperConfig", "spectrum", {
        **BART, "num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }),
    Architecture("CLIPModel", "CLIPConfig", "both", {
        "text_config": {**TEXT, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
        "vision_config": VISION, "projection_dim": 16,
    }),
    Architecture("SiglipModel", "SiglipConfig", "both", {"text_config": TEXT, "vision_config": VISION}),
]  # fmt: skip


def inputs(architecture: Architecture) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    if architecture.kind == "image":
        size = architecture.options.get("image_size", 32)
        height, width = size if isinstance(size, list) else (size, size)
        return {"pixel_values": torch.randn(1, 3, height, width, generator=generator)}
    if architecture.kind == "sound":
        return {"input_values": torch.randn(1, 200, generator=generator)}
    tokens = torch.randint(3, 64, (2, 12), generator=generator)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, :3] = 0
    if architecture.kind == "spectrum":
        spectrum = torch.randn(2, 8, 20, generator=generator)
        return {"input_features": spectrum, "decoder_input_ids": tokens[:, :5]}
    given = {"input_ids": tokens, "attention_mask": mask}
    if architecture.kind == "both":
        given["pixel_values"] = torch.randn(2, 3, 16, 16, generator=generator)
    if architecture.kind == "pair":
        given["decoder_input_ids"] = tokens[:, :5]
    return given


def create(architecture: Architecture) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, architecture.config)(**architecture.options)
    return getattr(transformers, architecture.model)(config).eval()


def main_result(output: Any) -> Any:
    names = ("logits", "logits_per_image", "last_hidden_state")
    return next(output[name] for name in names if name in output)


def steps(model: Any, architecture: Architecture, wrap: Callable[[Any], Any]) -> list[Any]:
    """The results of one call; of a decoder also of a second one with its cache."""
    run, given = wrap(model), inputs(architecture)
    cached = {"use_cache": True} if architecture.kind == "decoder" else {}
    first = run(**given, **cached)
    found = [main_result(first)]
    cache = first.get("past_key_values")
    if architecture.kind == "decoder" and cache is not None:
        mask = torch.cat([given["attention_mask"], torch.ones(2, 1, dtype=torch.int64)], 1)
        found.append(
            main_result(run(input_ids=given["input_ids"][:, :1], attention_mask=mask, past_key_values=cache))
        )
    return found


def check(architecture: Architecture) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what transformers deprecates, what Dynamo cannot trace
        model = create(architecture)
        wanted = steps(model, architecture, lambda model: model)
        got = steps(model, architecture, lambda model: torch.compile(model, backend="metaschedule"))
    for y, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(y, want, rtol=1e-3, atol=1e-4 * want.abs().max().item(), equal_nan=True)


def name_of(architecture: Architecture) -> str:
    return architecture.model


@pytest.mark.parametrize("architecture", QUICK, ids=name_of)
def test_agrees_with_eager(architecture: Architecture) -> None:
    check(architecture)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", OTHERS, ids=name_of)
def test_others_agree_with_eager(architecture: Architecture) -> None:
    check(architecture)
