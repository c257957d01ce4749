"""Models in narrower numbers, as PyTorch's own tools make them.

    convert(model, args, "int8-static")   # torchao's PT2E for x86: what is quantised, and how, is torch's

| precision | what it is |
|---|---|
| float32 | the model as it is |
| bfloat16 | `model.to(torch.bfloat16)` |
| int8-dynamic | linear layers: weights int8 by channel, activations uint8 by what a call finds |
| int8-static | the same with activations uint8 by what a run with the arguments found |
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..contestants.contestant import PRECISIONS, ContestantError

Args = tuple[Tensor, ...]


def convert(model: nn.Module, args: Args, precision: str) -> tuple[nn.Module, Args]:
    """A model of its own for everything but float32, and its arguments.

    >>> model, (x,) = convert(nn.Linear(4, 2), (torch.ones(1, 4),), "bfloat16")
    >>> model(x).dtype
    torch.bfloat16
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == "float32":
        return model, args
    if precision == "bfloat16":
        narrow = copy.deepcopy(model).to(torch.bfloat16)
        return narrow, tuple([x.to(torch.bfloat16) if x.is_floating_point() else x for x in args])
    return quantise(model, args, precision == "int8-dynamic"), args


def quantise(model: nn.Module, args: Args, is_dynamic: bool) -> nn.Module:
    """By PT2E with the choices of torch's own x86 backend; calibrated with the arguments."""
    pt2e = import_torchao()
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecations inside torch and torchao
        quantiser = x86.X86InductorQuantizer()
        quantiser.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic))
        prepared = pt2e.prepare_pt2e(torch.export.export(model, args).module(), quantiser)
        prepared(*args)
        return pt2e.convert_pt2e(prepared)


def import_torchao() -> Any:
    try:
        from torchao.quantization.pt2e import quantize_pt2e
    except ModuleNotFoundError as error:
        raise ContestantError("int8 needs torchao: pip install torchao==0.18.0") from error
    return quantize_pt2e
