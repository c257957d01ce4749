"""From a node of ATen to tensor expressions: the registry, and `lower`, which calls it.

A lowering is a function of the ATen operator's own arguments, with `te.Tensor` in the place of tensors.
The files of `lowerings/` register them, one family each.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload

from .. import te
from ..errors import InternalError
from ..ir import DTYPES
from .graph import Spec, Target

F = TypeVar("F", bound=Callable[..., Any])

# Where and how torch keeps the result: a program decides that itself.
STORAGE = frozenset(["device", "layout", "memory_format", "non_blocking", "pin_memory"])


class NotLowered(Exception):
    """A node that we cannot express; its reason is for people, and the node runs in eager."""


class Kind(enum.IntEnum):
    """How the elements of the result depend on those of the inputs, which decides what may be fused."""

    VIEW = 0  # the same elements in the same row-major order: reshape, unsqueeze
    ELEMENTWISE = 1  # from the same (or the broadcast) element of each input
    INJECTIVE = 2  # from one element at another place: permute, slice, cat, gather
    REDUCTION = 3  # from many: sums, softmax, normalisation, pooling
    HEAVY = 4  # from many, each used many times: convolution, matrix product


@dataclass(frozen=True)
class Lowering:
    function: Callable[..., te.Tensor | Sequence[te.Tensor | None]]
    kind: Kind


LOWERINGS: dict[Target, Lowering] = {}


def lowers(*targets: Target, kind: Kind) -> Callable[[F], F]:
    """Registers a function as the lowering of ATen overloads, or of operators of ours (by name)."""

    def register(function: F) -> F:
        for target in targets:
            assert target not in LOWERINGS, target
            LOWERINGS[target] = Lowering(function, kind)
        return function

    return register


def lower(
    target: Target, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Spec | None]
) -> tuple[te.Tensor | None, ...]:
    """The results of a node as tensor expressions of its arguments.

    `outputs` says the shape and dtype that torch gives each result, None where nobody reads it.

    >>> from torch import ops
    >>> x = te.placeholder((2, 3), name="x")
    >>> lower(ops.aten.relu.default, [x], {}, [((2, 3), "float32")])
    (<tensor relu: float32[2, 3], elements are relu[i0, i1]>,)
    """
    if target not in LOWERINGS:
        raise NotLowered(f"{target} has no lowering")
    for output in outputs:
        if output is not None and output[1] not in DTYPES:
            raise NotLowered(f"no programs with {output[1]}")
    if isinstance(target, OpOverload):
        args, kwargs = fill_defaults(target, args, kwargs)
    try:
        results = LOWERINGS[target].function(*args, **kwargs)
    except (TypeError, ValueError) as why:  # what tensor expressions refuse: a dtype, mostly
        raise NotLowered(f"{target}: {why}") from why
    if isinstance(results, te.Tensor):
        results = (results,)
    return tuple([cast_result(target, *pair) for pair in zip(results, outputs, strict=True)])


def fill_defaults(
    overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """All arguments of the schema, positional ones by position, those not given by their default."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for at, argument in enumerate(overload._schema.arguments):
        if at < len(args):
            value = args[at]
        else:
            value = kwargs.get(argument.name, argument.default_value)
        check_static(value, argument.name)
        if argument.name in STORAGE:
            continue
        if argument.kwarg_only:
            keywords[argument.name] = value
        else:
            positional.append(value)
    return positional, keywords


def check_static(value: Any, name: str) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            check_static(item, name)
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise NotLowered(f"{name} is known only at run time")
    elif isinstance(value, complex):
        raise NotLowered(f"{name} is complex")


def cast_result(target: Target, result: te.Tensor | None, output: Spec | None) -> te.Tensor | None:
    """The result, in the dtype that torch gives it."""
    if output is None:
        return result
    if result is None:
        raise NotLowered(f"{target}: a result that we do not compute is read")
    shape, dtype = output
    if result.shape != tuple(shape):
        raise InternalError(f"the lowering of {target} gives {result.shape}, torch {tuple(shape)}")
    if result.dtype == dtype:
        return result
    return te.compute(result.shape, lambda *i: te.cast(result[i], dtype), name=result.name)
