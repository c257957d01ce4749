"""`elementwise`: a function of elements, registered as a lowering with torch's broadcasting and promotion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import Promotion, promote_dtypes
from ..graph import Target
from ..lowering import Kind, NotLowered, lowers

Element = Callable[..., Expr]


def elementwise(
    *targets: Target, promotion: Promotion = Promotion.DEFAULT, result: str | None = None
) -> Callable[[Element], Element]:
    """Registers a function of elements. Its parameters without a default are operands, the others are the
    numbers that ATen's arguments of that place are."""

    def register(element: Element) -> Element:
        parameters = inspect.signature(element).parameters.values()
        count = sum(p.default is p.empty for p in parameters)

        def lowering(*args: Any, **kwargs: Any) -> te.Tensor:
            def value(*operands: Any) -> Expr:
                return element(*operands, *args[count:], **kwargs)

            return pointwise(element.__name__, value, *args[:count], promotion=promotion, result=result)

        lowers(*targets, kind=Kind.ELEMENTWISE)(lowering)
        return element

    return register


def pointwise(
    name: str,
    element: Element,
    *operands: Any,
    promotion: Promotion = Promotion.DEFAULT,
    result: str | None = None,
) -> te.Tensor:
    """The tensor of `element` of the operands' elements, which it gets in the dtype that torch computes in
    (None for absent operands). `result` is the dtype of the result if the operands do not decide it."""
    given = [o for o in operands if o is not None]
    computed_in, promoted_to = promote_dtypes(*given, promotion=promotion)

    shape = broadcast_shape(*given)

    def value(*i: Expr) -> Expr:
        elements = [None if o is None else element_of(o, i, shape, computed_in) for o in operands]
        return te.cast(element(*elements), result or promoted_to)

    return te.compute(shape, value, name=name)


def broadcast_shape(*operands: Any) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*[o.shape for o in operands if isinstance(o, te.Tensor)]))


def element_of(operand: Any, index: Sequence[Expr], shape: Sequence[int], dtype: str) -> Expr:
    """The element of a tensor, or the number, that broadcasting to `shape` puts at `index`."""
    if isinstance(operand, te.Tensor):
        return te.cast(broadcast(operand, index, shape), dtype)
    try:
        return const(bool(operand) if dtype == "bool" else operand, dtype)
    except ValueError as error:
        raise NotLowered(str(error)) from None


def broadcast(x: te.Tensor, index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Only a stretched dimension reads at 0: elsewhere the loop stays visible, also if its extent is 1."""
    first = len(shape) - x.ndim
    aligned = zip(index[first:], x.shape, shape[first:], strict=True)
    return x[tuple([i if own == extent else 0 for i, own, extent in aligned])]
