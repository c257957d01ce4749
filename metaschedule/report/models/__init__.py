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

from . import language, other, vision

PAPER = ("resnet50", "mobilenet_v2", "googlenet", "bert", "gpt2")


@dataclass(frozen=True)
class Definition:
    make: Callable[..., nn.Module]
    inputs: Callable[..., Tensor]
    size: tuple[int, ...]  # of the input, without the batch
    small_size: tuple[int, ...]
    small: dict[str, Any] = field(default_factory=dict)  # keywords of `make`


token_ids = partial(torch.randint, 0, 64)  # within the vocabulary of the small configurations as well
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
}


def names() -> list[str]:
    return list(MODELS)


def create(name: str, *, small: bool = False, **changes: Any) -> tuple[nn.Module, tuple[Tensor]]:
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
    return model.eval().requires_grad_(False), (inputs,)


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
