"""The workloads by name, with their configurations; `create` makes the program of one.

Configuration 0 is the paper's, batch 1. The others are layers of real networks, named beside them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ..ir import Program, check_dtype
from ..validation import check_arguments
from . import convolutions as conv
from . import others

Config = dict[str, Any]


def _conv2d(h: int, w: int, ci: int, co: int, k: int, s: int, p: int, **more: int) -> Config:
    return {"n": 1, "h": h, "w": w, "ci": ci, "co": co, "k": k, "s": s, "p": p, **more}


class Workload(NamedTuple):
    """`weights` are the inputs that a network learns: the same at every call."""

    function: Callable[..., Program]
    configurations: tuple[Config, ...]
    weights: tuple[str, ...] = ()


CATALOGUE: dict[str, Workload] = {
    "GMM": Workload(
        others.gmm,
        (
            {"b": 1, "n": 128, "m": 128, "k": 128},
            {"b": 1, "n": 128, "m": 3072, "k": 768},  # BERT, feed-forward
            {"b": 12, "n": 128, "m": 64, "k": 128},  # BERT, attention times values
            {"b": 1, "n": 77, "m": 768, "k": 768},  # a text encoder's 77 tokens
            {"b": 1, "n": 49, "m": 2048, "k": 512},  # ResNet-50, 1x1 at 7x7
        ),
        weights=("Y",),
    ),
    "C1D": Workload(
        conv.c1d,
        (
            {"n": 1, "l": 256, "ci": 64, "co": 128, "k": 3, "s": 2, "p": 1},
            {"n": 1, "l": 128, "ci": 128, "co": 256, "k": 1, "s": 2, "p": 0},
            {"n": 1, "l": 77, "ci": 256, "co": 256, "k": 5, "s": 1, "p": 2},
            {"n": 1, "l": 109, "ci": 128, "co": 128, "k": 3, "s": 1, "p": 1},
        ),
        weights=("W",),
    ),
    "C2D": Workload(
        conv.c2d,
        (
            _conv2d(224, 224, 3, 64, k=7, s=2, p=3),  # ResNet-50, first layer
            _conv2d(56, 56, 64, 64, k=1, s=1, p=0),  # ResNet-50
            _conv2d(28, 28, 128, 128, k=3, s=1, p=1),  # ResNet-50
            _conv2d(7, 7, 512, 512, k=3, s=1, p=1),  # ResNet-50, last stage
            _conv2d(55, 55, 64, 64, k=3, s=2, p=1),  # odd in, even out
            _conv2d(109, 109, 16, 32, k=3, s=2, p=0),
        ),
        weights=("W",),
    ),
    "C3D": Workload(
        conv.c3d,
        (
            {"n": 1, "d": 16, **_conv2d(224, 224, 3, 64, k=7, s=2, p=3)},
            {"n": 1, "d": 16, **_conv2d(56, 56, 64, 64, k=1, s=1, p=0)},
            {"n": 1, "d": 16, **_conv2d(56, 56, 64, 64, k=3, s=1, p=1)},
            {"n": 1, "d": 5, **_conv2d(7, 7, 128, 128, k=3, s=1, p=1)},
        ),
        weights=("W",),
    ),
    "DEP": Workload(
        conv.dep,
        (
            {"n": 1, "h": 112, "w": 112, "c": 32, "k": 3, "s": 1, "p": 1},  # MobileNet
            {"n": 1, "h": 112, "w": 112, "c": 64, "k": 3, "s": 2, "p": 1},  # MobileNet
            {"n": 1, "h": 7, "w": 7, "c": 1024, "k": 3, "s": 1, "p": 1},  # MobileNet
            {"n": 1, "h": 55, "w": 55, "c": 96, "k": 5, "s": 2, "p": 2},
        ),
        weights=("W",),
    ),
    "DIL": Workload(
        conv.dil,
        (
            _conv2d(224, 224, 3, 64, k=7, s=2, p=3, dilation=2),
            _conv2d(56, 56, 64, 64, k=3, s=1, p=2, dilation=2),  # ResNet-50, dilated
            _conv2d(28, 28, 128, 128, k=3, s=1, p=2, dilation=2),
            _conv2d(55, 55, 32, 64, k=3, s=1, p=3, dilation=3),
        ),
        weights=("W",),
    ),
    "GRP": Workload(
        conv.grp,
        (
            _conv2d(56, 56, 64, 128, k=3, s=2, p=1, groups=4),
            _conv2d(56, 56, 128, 128, k=3, s=1, p=1, groups=32),  # ResNeXt-50
            _conv2d(28, 28, 128, 256, k=1, s=2, p=0, groups=4),
            _conv2d(7, 7, 512, 512, k=3, s=1, p=1, groups=4),
        ),
        weights=("W",),
    ),
    "T2D": Workload(
        conv.t2d,
        (
            _conv2d(4, 4, 512, 256, k=4, s=2, p=1),  # DCGAN
            _conv2d(8, 8, 256, 128, k=4, s=2, p=1),  # DCGAN
            _conv2d(32, 32, 64, 3, k=4, s=2, p=1),  # DCGAN, last layer
            _conv2d(7, 7, 128, 64, k=5, s=2, p=2),
            _conv2d(1, 1, 100, 512, k=4, s=1, p=0),  # DCGAN, first layer
        ),
        weights=("W",),
    ),
    "CBR": Workload(
        conv.cbr,
        (
            _conv2d(224, 224, 3, 64, k=7, s=2, p=3),  # ResNet-50, first layer
            _conv2d(56, 56, 64, 64, k=3, s=1, p=1),  # ResNet-50
            _conv2d(7, 7, 512, 512, k=3, s=1, p=1),  # ResNet-50
            _conv2d(7, 7, 2048, 512, k=1, s=1, p=0),  # ResNet-50
            _conv2d(109, 109, 8, 24, k=3, s=2, p=1),
        ),
        weights=("W", "bias", "bn_scale", "bn_offset"),
    ),
    "TBG": Workload(
        others.tbg,
        (
            {"b": 1, "s": 128, "h": 12, "d": 64},  # BERT-base
            {"b": 1, "s": 128, "h": 16, "d": 64},  # BERT-large
            {"b": 1, "s": 384, "h": 12, "d": 64},  # BERT, SQuAD
            {"b": 1, "s": 77, "h": 8, "d": 64},
        ),
    ),
    "NRM": Workload(
        others.nrm,
        (
            {"b": 1, "m": 256, "n": 256},
            {"b": 8, "m": 256, "n": 256},
            {"b": 1, "m": 4096, "n": 1024},
            {"b": 3, "m": 109, "n": 251},
        ),
    ),
    "SFM": Workload(
        others.sfm,
        (
            {"shape": (256, 256)},
            {"shape": (12, 128, 128)},  # BERT, attention
            {"shape": (1, 1000)},  # ResNet-50, classes
            {"shape": (8, 77, 77)},
            {"shape": (30011,)},
        ),
    ),
    "CAP": Workload(
        conv.cap,
        (
            _conv2d(16, 16, 32, 32, k=3, s=2, p=1, cap=4),
            _conv2d(14, 14, 32, 16, k=3, s=1, p=0, cap=4),
            _conv2d(7, 7, 16, 32, k=3, s=2, p=1, cap=4),
            _conv2d(11, 11, 8, 8, k=3, s=1, p=1, cap=3),
        ),
        weights=("W",),
    ),
    "FDENSE": Workload(
        others.fdense,
        (
            {"m": 1024, "n": 4096, "k": 1024},
            {"m": 128, "n": 3072, "k": 768},  # BERT-base
            {"m": 77, "n": 3072, "k": 768},
            {"m": 128, "n": 512, "k": 128},
            {"m": 1, "n": 1000, "k": 509},
        ),
        weights=("W", "bias"),
    ),
}


def names() -> tuple[str, ...]:
    """The workloads there are."""
    return tuple(CATALOGUE)


@check_arguments
def configurations(name: str) -> tuple[Config, ...]:
    """The configurations of a workload, as keywords for `create`.

    >>> configurations("GMM")[0]
    {'b': 1, 'n': 128, 'm': 128, 'k': 128}
    """
    return tuple([dict(config) for config in _entry(name).configurations])


@check_arguments
def weights(name: str) -> tuple[str, ...]:
    """The inputs of a workload that are weights, which a network would pass as constants.

    >>> weights("CBR"), weights("TBG")
    (('W', 'bias', 'bn_scale', 'bn_offset'), ())
    """
    return _entry(name).weights


@check_arguments
def create(name: str, config: int = 0, **overrides: Any) -> Program:
    """The program of a workload: one of its configurations, with any value overridden by keyword.

    >>> create("GMM", b=1, n=77, m=768, k=768)
    <Program GMM(X: float32[1, 77, 768], Y: float32[1, 768, 768]) -> matmul: float32[1, 77, 768]>
    """
    return _entry(name).function(**resolve(name, config, overrides))


def resolve(name: str, config: int, overrides: Config) -> Config:
    """All keywords of a workload's function, checked."""
    function, configs, _ = _entry(name)
    if isinstance(config, bool) or not isinstance(config, int):
        raise TypeError(f"{name}: config must be a number, got {config!r}")
    if not 0 <= config < len(configs):
        raise ValueError(f"{name} has configurations 0 to {len(configs) - 1}, got {config}")
    known = list(inspect.signature(function).parameters)
    if unknown := [key for key in overrides if key not in known]:
        raise TypeError(f"{name} has no {', '.join(unknown)}; its keywords are {', '.join(known)}")
    values: Config = {"dtype": "float32", **configs[config], **overrides}
    values["dtype"] = check_dtype(values["dtype"])
    for key, value in values.items():
        if key not in ("dtype", "shape"):
            _check_number(name, key, value)
    return values


def _check_number(name: str, key: str, value: Any) -> None:
    least = 0 if key == "p" else 1
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: {key} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: {key} must be at least {least}, got {value}")


def _entry(name: str) -> Workload:
    try:
        return CATALOGUE[name]
    except (KeyError, TypeError):
        raise ValueError(f"no workload {name!r}; there are {', '.join(CATALOGUE)}") from None
