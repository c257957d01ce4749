"""Reductions inside tensor expressions: axes, combiners, and sum, prod, min, max, argmax, argmin.

A reduction in an expression is a `Component` of a `Reduction` (its only one, or one of a tuple).
These nodes live only until `compute` has made stages of them; `rebuild` and `Replace` walk
expressions that may hold them, as `ir.map_operands` and `ir.substitute` do for those that do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ir
from ..validation import check_arguments, describe_value
from .tensor import Tensor, check_extent, dynamic


class Axis(ir.Var):
    """A variable to reduce over: `low`, `low + 1`, ..., `extent` values in all."""

    __slots__ = ("extent", "low")

    def __init__(self, name: str, low: ir.Expr, extent: ir.Expr) -> None:
        super().__init__(name, ir.INDEX)
        self.low = low
        self.extent = extent


@dataclass(eq=False, slots=True)
class Reducer:
    """An associative, commutative way of combining values (or tuples of values) with an identity.

    Call it: `r(value, axis=k)` is an expression, `r((a, b), axis=k)` a tuple of them.
    """

    combine: Callable[[Any, Any], Any]
    identity: Callable[..., Any]
    name: str = "reduce"

    def __call__(self, values: Any, axis: Any) -> Any:
        several = isinstance(values, tuple)
        exprs = tuple([expression(v, self.name) for v in (values if several else (values,))])
        reduction = Reduction(self, exprs, check_axes(axis, self.name), several)
        self.combine_values(reduction, exprs, exprs)  # fails here, beside the user's call, or never
        parts = tuple([Component(reduction, at) for at in range(len(exprs))])
        return parts if several else parts[0]

    def identities(self, reduction: Reduction) -> tuple[ir.Expr, ...]:
        dtypes = [value.dtype for value in reduction.values]
        return self._convert("identity", self.identity(*dtypes), reduction)

    def combine_values(
        self, reduction: Reduction, left: Sequence[ir.Expr], right: Sequence[ir.Expr]
    ) -> tuple[ir.Expr, ...]:
        if reduction.several:
            result = self.combine(tuple(left), tuple(right))
        else:
            result = self.combine(left[0], right[0])
        return self._convert("combine", result, reduction)

    def _convert(self, what: str, result: Any, reduction: Reduction) -> tuple[ir.Expr, ...]:
        """What a user's function returned, as one expression per value and of the value's dtype."""
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(reduction.values):
            raise ValueError(
                f"{self.name}: {what} must give {len(reduction.values)} value(s), gave {len(results)}"
            )
        typed: list[ir.Expr] = []
        for item, value in zip(results, reduction.values, strict=True):
            if isinstance(item, ir.Expr) and item.dtype != value.dtype:
                raise TypeError(
                    f"{self.name}: {what} gives {item.dtype} where the value is {value.dtype}: "
                    "cast the value before reducing it, or the result in the combiner"
                )
            typed.append(item if isinstance(item, ir.Expr) else ir.const(item, value.dtype))
        return tuple(typed)


@dataclass(eq=False, slots=True)
class Reduction:
    """`values` combined by `reducer` over `axes`; `several`: the combiner speaks of tuples."""

    reducer: Reducer
    values: tuple[ir.Expr, ...]
    axes: tuple[Axis, ...]
    several: bool


class Component(ir.Expr):
    """The result of a reduction, or one of the results of a tuple reduction."""

    __slots__ = ("position", "reduction")

    def __init__(self, reduction: Reduction, position: int) -> None:
        self.reduction = reduction
        self.position = position

    @property
    def dtype(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.reduction.values[self.position].dtype

    def __str__(self) -> str:
        return f"{self.reduction.reducer.name}(...)"


# --- what users call ----------------------------------------------------------------------------


@check_arguments
def reduce_axis(extent: Any, name: str = "k") -> Any:
    """A variable to reduce over: `extent` values from 0, or `(low, high)` with `high` left out.

    Either may be an expression of the indices of the `compute` in whose function it is made, or of
    elements of tensors (triangular loops, adaptive pooling, compressed sparse rows).
    """
    if isinstance(extent, tuple) and len(extent) != 2:
        raise ValueError(
            f"reduce_axis {name}: extent must be a number or (low, high), got {describe_value(extent)}"
        )
    low, high = extent if isinstance(extent, tuple) else (0, extent)
    for bound in (low, high):
        if isinstance(bound, ir.Expr):
            if not ir.is_integer(bound.dtype):
                raise TypeError(f"reduce_axis {name}: bounds must be integers, got {bound.dtype}")
        elif isinstance(bound, bool) or not isinstance(bound, (int, np.integer)):
            raise TypeError(f"reduce_axis {name}: bounds must be integers{dynamic(bound)}")
    low, high = ir.cast(low, ir.INDEX), ir.cast(high, ir.INDEX)
    count = ir.binary("-", high, low)
    if (known := ir.as_int(count)) is not None:
        check_extent(known, f"reduce_axis {name}: the extent")
    return Axis(name, low, count)


@check_arguments
def reducer(
    combine: Callable[[Any, Any], Any], identity: Callable[..., Any], name: str = "reduce"
) -> Reducer:
    """A reduction of your own.

    `combine(lhs, rhs)` gets and gives expressions, or tuples of them if the reducer is called with
    a tuple of values; it must be associative and commutative. `identity` gets the values' dtypes.

    >>> xor = reducer(lambda a, b: a ^ b, lambda dtype: 0, name="xor")
    >>> mean_and_mass = reducer(
    ...     lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda value, weight: (0, 0), name="mass"
    ... )
    """
    return Reducer(combine, identity, name)


def sum(value: ir.Operand, axis: Any) -> ir.Expr:
    """The sum, accumulated in the dtype of `value`: cast it first if that is too narrow."""
    return reduce_over(SUM, value, axis)


def prod(value: ir.Operand, axis: Any) -> ir.Expr:
    """The product over an axis, or over several; 1 of nothing."""
    return reduce_over(PROD, value, axis)


def min(value: ir.Operand, axis: Any) -> ir.Expr:
    """The smallest value; NaN if there is a NaN; infinity (or the dtype's limit) of nothing."""
    return reduce_over(MIN, value, axis)


def max(value: ir.Operand, axis: Any) -> ir.Expr:
    """The largest value; NaN if there is a NaN; -infinity (or the dtype's limit) of nothing."""
    return reduce_over(MAX, value, axis)


def argmax(value: ir.Operand, axis: Any, dtype: str = ir.INDEX) -> ir.Expr:
    """Where the largest value is: its first position, counted over all axes in the order given.

    As in NumPy NaN is larger than anything. The pairs (value, position) are combined by a total
    order, so the reduction may be reordered.
    """
    return _position("argmax", ">", value, axis, dtype)


def argmin(value: ir.Operand, axis: Any, dtype: str = ir.INDEX) -> ir.Expr:
    """Where the smallest value is; see `argmax`."""
    return _position("argmin", "<", value, axis, dtype)


def reduce_over(reducer: Reducer, value: ir.Operand, axis: Any) -> ir.Expr:
    if isinstance(value, tuple):
        raise TypeError(f"{reducer.name}: value must be one expression, got a tuple: see te.reducer")
    return reducer(value, axis)


SUM = Reducer(lambda a, b: a + b, lambda dtype: 0, "sum")
PROD = Reducer(lambda a, b: a * b, lambda dtype: 1, "prod")
MIN = Reducer(lambda a, b: ir.binary("min", a, b), ir.highest, "min")
MAX = Reducer(lambda a, b: ir.binary("max", a, b), ir.lowest, "max")


def _position(name: str, better: str, value: ir.Operand, axis: Any, dtype: str) -> ir.Expr:
    axes = check_axes(axis, name)
    if any(ir.as_int(a.extent) == 0 for a in axes):
        raise ValueError(f"{name} of an empty axis: there is no position to give")
    if not ir.is_integer(dtype):
        raise TypeError(f"{name}: dtype= is that of a position, an integer's, got {dtype}")
    if (last := math.prod([ir.as_int(a.extent) or 1 for a in axes]) - 1) > ir.integer_limits(dtype)[1]:
        raise ValueError(f"{name}: dtype={dtype} does not hold position {last}")
    position: ir.Expr = ir.const(0, ir.INDEX)
    for a in axes:
        position = position * a.extent + (a - a.low)

    def combine(a: tuple[ir.Expr, ir.Expr], b: tuple[ir.Expr, ir.Expr]) -> tuple[ir.Expr, ir.Expr]:
        (x, i), (y, j) = a, b
        ahead, tie = ir.binary(better, x, y), x == y
        if ir.is_float(x.dtype):  # comparisons with NaN are False
            ahead, tie = ahead | ir.call("isnan", x), tie | (ir.call("isnan", x) & ir.call("isnan", y))
        keep = ir.select(tie, i < j, ahead)
        return ir.select(keep, x, y), ir.select(keep, i, j)

    def identity(kind: str, index: str) -> tuple[Any, Any]:
        worst = ir.lowest(kind) if better == ">" else ir.highest(kind)
        return worst, ir.integer_limits(index)[1]  # a tie with any real element is lost

    pair = Reducer(combine, identity, name)
    return pair((value, ir.cast(position, dtype)), axes)[1]


def check_axes(axis: Any, name: str) -> tuple[Axis, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for a in axes:
        if not isinstance(a, Axis):
            raise TypeError(f"{name}: axis= takes what te.reduce_axis gives, got {a!r}")
    if not axes:
        raise ValueError(f"{name}: at least one axis to reduce over is needed")
    if len({id(a) for a in axes}) != len(axes):
        raise ValueError(f"{name}: an axis is given twice")
    for at, a in enumerate(axes):
        later = frozenset(axes[at:])
        for bound in (a.low, a.extent):
            if any(v in later for v in unbound(bound)):
                raise ValueError(f"{name}: the bounds of axis {a.name} use an axis given after it")
    return axes


def expression(value: Any, where: str) -> ir.Expr:
    if isinstance(value, Tensor):
        raise TypeError(f"{where}: {value.name} is a tensor: index it, {value.element}")
    return ir.as_expr(value)


# --- walking ------------------------------------------------------------------------------------


def parts(e: ir.Expr) -> tuple[ir.Expr, ...]:
    """Direct subexpressions; of a reduction its values and the bounds of its axes."""
    if isinstance(e, Component):
        bounds = [bound for a in e.reduction.axes for bound in (a.low, a.extent)]
        return (*e.reduction.values, *bounds)
    return () if isinstance(e, ir.Var) else ir.operands(e)


def rebuild(e: ir.Expr, f: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """`e` with `f` applied to its direct subexpressions; reductions and variables are kept."""
    return e if isinstance(e, (ir.Var, Component)) else ir.map_operands(e, f)


def unbound(e: ir.Expr, bound: frozenset[ir.Var] = frozenset()) -> Iterator[ir.Var]:
    """The variables of `e` that no reduction inside it binds."""
    waiting, seen = [(e, bound)], set[tuple[int, frozenset[ir.Var]]]()
    while waiting:
        e, bound = waiting.pop()
        if isinstance(e, ir.Var):
            if e not in bound:
                yield e
            continue
        if (id(e), bound) in seen:  # expressions share parts: x + x, twice over, has four paths to x
            continue
        seen.add((id(e), bound))
        if isinstance(e, Component):
            bound = bound | frozenset(e.reduction.axes)
        waiting += [(part, bound) for part in reversed(parts(e))]


class Replace:
    """Replaces variables, also inside reductions; components of one reduction stay together."""

    def __init__(self, values: Mapping[ir.Var, ir.Expr]) -> None:
        self.values = dict(values)
        self.reductions: dict[Reduction, Reduction] = {}

    def expr(self, e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Var):
            return self.values.get(e, e)
        if isinstance(e, Component):
            return Component(self.reduction(e.reduction), e.position)
        return rebuild(e, self.expr)

    def reduction(self, r: Reduction) -> Reduction:
        if r not in self.reductions:
            outer, axes = dict(self.values), []
            for a in r.axes:
                axes.append(Axis(a.name, self.expr(a.low), self.expr(a.extent)))
                self.values[a] = axes[-1]
            values = tuple([self.expr(v) for v in r.values])
            self.reductions[r] = Reduction(r.reducer, values, tuple(axes), r.several)
            self.values = outer
        return self.reductions[r]
