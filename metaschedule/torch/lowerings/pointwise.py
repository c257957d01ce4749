"""`elementwise`: a function of elements, registered as a lowering with torch's broadcasting and promotion."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import te
from ...ir import Expr, const
from ..dtypes import Promotion, promoted
from ..graph import Target
from ..lowering import Kind, lowers

Element = Callable[..., Expr]


def elementwise(
    *targets: Target, promotion: Promotion = Promotion.DEFAULT, result: str | None = None
) -> Callable[[Element], Element]:
    """Registers a function of elements. It gets those of its parameters without a default as expressions in
    the dtype that torch computes in (absent ones stay None), the others as the numbers they are.

    `result` is the dtype of the result if the operands do not decide it.
    """

    def register(element: Element) -> Element:
        parameters = inspect.signature(element).parameters.values()
        count = sum(p.default is p.empty for p in parameters)

        def lowering(*args: Any, **kwargs: Any) -> te.Tensor:
            operands, rest = args[:count], args[count:]
            given = [o for o in operands if o is not None]
            computed_in, promoted_to = promoted(*given, promotion=promotion)

            def value(*i: Expr) -> Expr:
                elements = [None if o is None else element_of(o, i, computed_in) for o in operands]
                return te.cast(element(*elements, *rest, **kwargs), result or promoted_to)

            return te.compute(broadcast_shape(*given), value, name=element.__name__.rstrip("_"))

        lowers(*targets, kind=Kind.ELEMENTWISE)(lowering)
        return element

    return register


def broadcast_shape(*operands: Any) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*[o.shape for o in operands if isinstance(o, te.Tensor)]))


def element_of(operand: Any, index: Sequence[Expr], dtype: str) -> Expr:
    """The element of a tensor, or the number, that broadcasting puts at `index`."""
    if isinstance(operand, te.Tensor):
        return te.cast(broadcast(operand, index), dtype)
    return const(operand, dtype)


def broadcast(x: te.Tensor, index: Sequence[Expr]) -> Expr:
    aligned = index[len(index) - x.ndim :]
    return x[tuple([0 if extent == 1 else i for i, extent in zip(aligned, x.shape, strict=True)])]
