"""Models to compile whole: those of the paper's second experiment and some others, with random weights.

    model, args = create("resnet50")
    model, args = create("resnet50", small=True)  # the same structure, narrow and shallow, for tests

A model with its arguments is the same at every call, in evaluation mode and without gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import dense, language, light, other, sequences, vision

PAPER = ("resnet50", "mobilenet_v2", "googlenet", "bert", "gpt2")


@dataclass(frozen=True)
class Definition:
    make: Callable[..., nn.Module]
    inputs: Callable[..., Tensor | tuple[Tensor, ...]]
    size: tuple[int, ...]  # of the input, without the batch
    small_size: tuple[int, ...]
    small: dict[str, Any] = field(default_factory=dict)  # keywords of `make`


token_ids = partial(torch.randint, 0, 64)  # within the vocabulary of the small configurations as well
IMAGE, SMALL_IMAGE = (3, 224, 224), (3, 40, 40)


def steps(size: tuple[int, ...]) -> Tensor:
    """Time first, then the batch."""
    batch, length, features = size
    return torch.randn(length, batch, features)


def numbers_and_ids(size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    batch, numbers, tables, rows = size
    return torch.randn(batch, numbers), torch.randint(0, rows, (batch, tables))


def image_time_and_text(size: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    batch, width, side, length, text = size
    return torch.randn(batch, width, side, side), torch.randn(batch, width), torch.randn(batch, length, text)


MODELS = {
    "resnet50": Definition(
        vision.ResNet, torch.randn, (3, 224, 224), (3, 40, 40), {"blocks": (1, 2), "width": 8, "classes": 10}
    ),
    "mobilenet_v2": Definition(
        vision.MobileNetV2,
        torch.randn,
        (3, 224, 224),
        (3, 40, 40),
        {"stages": ((1, 8, 1, 1), (6, 12, 2, 2)), "stem": 16, "head": 32, "classes": 10},
    ),
    "googlenet": Definition(
        vision.GoogLeNet,
        torch.randn,
        (3, 224, 224),
        (3, 40, 40),
        {"stages": (((8, 6, 10, 4, 6, 5), (7, 5, 9, 4, 8, 6)),), "stem": (8, 12), "classes": 10},
    ),
    "bert": Definition(language.bert, token_ids, (128,), (11,), language.SMALL_BERT),
    "bert_large": Definition(language.bert_large, token_ids, (128,), (11,), language.SMALL_BERT),
    "gpt2": Definition(language.gpt2, token_ids, (128,), (11,), language.SMALL_GPT2),
    "dcgan": Definition(
        other.DCGANGenerator, torch.randn, (100, 1, 1), (10, 1, 1), {"latent": 10, "width": 4}
    ),
    "lstm": Definition(other.LSTM, torch.randn, (64, 256), (5, 6), {"features": 6, "hidden": 9}),
    "convnext": Definition(other.ConvNeXtBlock, torch.randn, (96, 56, 56), (8, 9, 9), {"channels": 8}),
    "mixer": Definition(
        other.MLPMixer,
        torch.randn,
        (3, 224, 224),
        (3, 12, 12),
        {"image": 12, "patch": 4, "width": 16, "token_width": 8, "depth": 2, "classes": 10},
    ),
    "mobilenet_v3": Definition(
        light.MobileNetV3, torch.randn, IMAGE, SMALL_IMAGE,
        {"blocks": ((3, 16, 16, True, False, 2), (5, 24, 12, True, True, 1)), "head": 24, "classes": 10},
    ),
    "efficientnet": Definition(
        light.EfficientNet, torch.randn, IMAGE, SMALL_IMAGE,
        {"stages": ((1, 8, 1, 1, 3), (4, 12, 2, 2, 5)), "stem": 8, "head": 32, "classes": 10},
    ),
    "shufflenet": Definition(
        light.ShuffleNetV2, torch.randn, IMAGE, SMALL_IMAGE,
        {"units": (2, 2), "widths": (8, 12, 24, 32), "classes": 10},
    ),
    "ghostnet": Definition(
        light.GhostNet, torch.randn, IMAGE, SMALL_IMAGE,
        {"blocks": ((16, 16, 1), (24, 12, 2), (24, 12, 1)), "classes": 10},
    ),
    "squeezenet": Definition(
        light.SqueezeNet, torch.randn, IMAGE, SMALL_IMAGE,
        {"stages": (((4, 8), (4, 8)), ((6, 12),)), "stem": 8, "classes": 10},
    ),
    "densenet": Definition(
        dense.DenseNet, torch.randn, IMAGE, SMALL_IMAGE, {"blocks": (2, 2), "growth": 8, "classes": 10}
    ),
    "unet": Definition(
        dense.UNet, torch.randn, (3, 128, 128), (3, 16, 16), {"width": 4, "depth": 2}
    ),
    "detector": Definition(
        dense.Detector, torch.randn, (3, 256, 256), (3, 32, 32), {"width": 4, "pyramid": 8, "classes": 3}
    ),
    "diffusion": Definition(
        dense.DiffusionBlock, image_time_and_text, (128, 16, 32, 256), (16, 4, 5, 12),
        {"width": 16, "side": 4, "text": 12, "heads": 2},
    ),
    "gru_steps": Definition(
        sequences.GRUSteps, steps, (8, 128), (3, 6), {"features": 6, "hidden": 9, "classes": 5}
    ),
    "tagger": Definition(
        sequences.Tagger, token_ids, (32,), (4,), {"words": 64, "features": 6, "hidden": 9, "tags": 5}
    ),
    "stacked_gru": Definition(
        sequences.StackedGRU, torch.randn, (24, 64), (3, 6), {"features": 6, "hidden": 9, "layers": 2}
    ),
    "speech": Definition(
        sequences.Speech, torch.randn, (80, 256), (8, 16),
        {"bins": 8, "width": 12, "heads": 2, "depth": 1, "kernel": 5, "tokens": 7},
    ),
    "keywords": Definition(
        sequences.KeywordSpotter, torch.randn, (1, 16000), (1, 4000), {"width": 8, "classes": 7}
    ),
    "forecast": Definition(
        sequences.TemporalConvolutions, torch.randn, (16, 192), (3, 20),
        {"series": 3, "width": 8, "depth": 2, "ahead": 4},
    ),
    "nbeats": Definition(
        sequences.NBeats, torch.randn, (96,), (12,), {"past": 12, "ahead": 4, "width": 16, "blocks": 2}
    ),
    "recommender": Definition(
        sequences.Recommender, numbers_and_ids, (13, 12, 10000), (5, 3, 20),
        {"rows": (20,) * 3, "width": 8, "numbers": 5, "hidden": 16},
    ),
    "bert_small": Definition(language.bert_small, token_ids, (64,), (11,), language.SMALL_BERT),
    "llama": Definition(language.llama, token_ids, (64,), (11,), {
        "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 40, "vocab_size": 64,
    }),
    "vit": Definition(language.vit, torch.randn, IMAGE, (3, 16, 16), {
        "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 40,
        "image_size": 16, "patch_size": 4,
    }),
    "swin": Definition(language.swin, torch.randn, IMAGE, (3, 32, 32), {
        "embed_dim": 12, "depths": [2], "num_heads": [2], "window_size": 4, "image_size": 32, "patch_size": 4,
    }),
}  # fmt: skip
TRANSFORMERS = ("bert", "bert_large", "bert_small", "gpt2", "llama", "vit", "swin")  # by that package
# What `bench models` measures: none has another's structure, and a call of most takes less than 50 ms.
COMPARED = (
    "resnet50", "squeezenet", "mobilenet_v2", "mobilenet_v3", "efficientnet", "shufflenet", "ghostnet",
    "densenet", "unet", "detector", "diffusion", "dcgan", "convnext", "mixer", "vit", "swin", "bert_small",
    "llama", "lstm", "gru_steps", "tagger", "stacked_gru", "speech", "keywords", "forecast", "nbeats",
    "recommender",
)  # fmt: skip


def names() -> list[str]:
    return list(MODELS)


def create(name: str, *, small: bool = False, **changes: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model and the arguments of one call, batch 1. `changes` are keywords of what makes the model, such
    as `num_hidden_layers`."""
    if name not in MODELS:
        raise ValueError(f"no model {name!r}: one of {', '.join(MODELS)}")
    definition = MODELS[name]
    # Weights made in inference mode would have no count of changes, and compilers take them for inputs.
    with torch.inference_mode(False), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = definition.make(**{**(definition.small if small else {}), **changes})
        model.apply(randomise)
        inputs = definition.inputs((1, *(definition.small_size if small else definition.size)))
    return model.eval().requires_grad_(False), inputs if isinstance(inputs, tuple) else (inputs,)


def randomise(module: nn.Module) -> None:
    """Weights with which values do not vanish; statistics and scales that are not the neutral ones."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        nn.init.uniform_(module.weight, 0.5, 1.5)
        nn.init.normal_(module.bias, std=0.1)
    if isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.get_buffer("running_mean"), std=0.1)
        nn.init.uniform_(module.get_buffer("running_var"), 0.5, 1.5)
