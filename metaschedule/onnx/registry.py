"""Which function translates which operator.

A translation takes an operator's inputs by position (None, or its default, for those left out) and its
attributes by name, all as torch's tensors and Python's values, and gives a tensor or several. It is called on
tensors of torch as they are traced, and on real ones for whatever is known. One that has a parameter `op`
gets to know more: the version of the opset, how many results are read.

>>> from metaschedule.onnx.registry import OPERATORS
>>> x = torch.tensor([-1.0, 2.0])
>>> OPERATORS["", "LeakyRelu"].function(x, alpha=0.5)
tensor([-0.5000,  2.0000])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Op:
    """What a translation may want to know of a node beside inputs and attributes."""

    name: str
    version: int  # of the opset
    results: int  # named outputs, from the first to the last that has a name
    run: Callable[[Any, Sequence[Any]], list[Any]]  # a graph among the attributes, with its inputs


@dataclass(frozen=True)
class Operator:
    function: Callable[..., Any]
    wants_op: bool


OPERATORS: dict[tuple[str, str], Operator] = {}


def operator(*names: str, domain: str = "") -> Callable[[F], F]:
    """Registers a function as the translation of operators."""

    def register(function: F) -> F:
        wants_op = "op" in inspect.signature(function).parameters
        for name in names:
            assert (domain, name) not in OPERATORS, name
            OPERATORS[domain, name] = Operator(function, wants_op)
        return function

    return register


Tensor = torch.Tensor
