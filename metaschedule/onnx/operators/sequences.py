"""Sequences are lists of tensors, whose length is known; an empty optional is None."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidModel
from ..registry import Op, Tensor, operator
from ..tensors import constant, ints, number


@operator("SequenceConstruct")
def construct(*inputs: Tensor) -> tuple[list[Tensor]]:
    return (list(inputs),)


@operator("SequenceEmpty")
def empty(*, dtype: int = 1) -> tuple[list[Tensor]]:
    return ([],)


def place_of(position: Tensor, length: int) -> int:
    at = int(number(position, "a position in a sequence"))
    if not -length <= at <= length:
        raise InvalidModel(f"position {at} of a sequence of {length}")
    return at + length if at < 0 else at


@operator("SequenceAt")
def at(sequence: list[Tensor], position: Tensor) -> Tensor:
    return sequence[place_of(position, len(sequence))]


@operator("SequenceInsert")
def insert(sequence: list[Tensor], tensor: Tensor, position: Tensor | None = None) -> tuple[list[Tensor]]:
    place = len(sequence) if position is None else place_of(position, len(sequence))
    return ([*sequence[:place], tensor, *sequence[place:]],)


@operator("SequenceErase")
def erase(sequence: list[Tensor], position: Tensor | None = None) -> tuple[list[Tensor]]:
    place = len(sequence) - 1 if position is None else place_of(position, len(sequence))
    return ([*sequence[:place], *sequence[place + 1 :]],)


@operator("SequenceLength")
def length(sequence: list[Tensor]) -> Tensor:
    return constant(len(sequence), torch.int64)


@operator("ConcatFromSequence")
def concat(sequence: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    return torch.stack(sequence, axis) if new_axis else torch.cat(sequence, axis)


@operator("SplitToSequence")
def split(x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, keepdims: int = 1) -> tuple[list[Tensor]]:
    if sizes is None:
        parts = list(torch.split(x, 1, axis))
        return (parts if keepdims else [p.squeeze(axis) for p in parts],)
    given = ints(sizes, "the sizes of SplitToSequence")
    return (list(torch.split(x, given[0] if sizes.ndim == 0 else given, axis)),)


@operator("SequenceMap")
def map_(op: Op, sequence: list[Any], *others: Any, body: Any) -> tuple[Any, ...]:
    rows = [
        op.run(body, [item, *(other[n] if isinstance(other, list) else other for other in others)])
        for n, item in enumerate(sequence)
    ]
    return tuple([[row[n] for row in rows] for n in range(len(body.proto.output))])


@operator("Optional")
def optional(value: Any = None, *, type: Any = None) -> tuple[Any]:
    return (value,)


@operator("OptionalGetElement")
def get_element(value: Any) -> tuple[Any]:
    if value is None:
        raise InvalidModel("the element of an empty optional")
    return (value,)


@operator("OptionalHasElement")
def has_element(value: Any = None) -> Tensor:
    return constant(value is not None, torch.bool)
