"""`compute`: a function from indices to expressions, made a stage (or several).

A reduction that is the whole body is the stage's own. Every other reduction is hoisted into a stage
before it, whose dimensions are just the variables the reduction depends on: in
`exp(x[i, j]) / sum(exp(x[i, k]), axis=k)` the sum is computed once per `i`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, overload

from .. import ir
from ..validation import check_arguments
from .cut import cut
from .reduction import Axis, Component, Reducer, Reduction, Replace, expression, rebuild, unbound
from .tensor import Bounds, Stage, Tensor, check_extents

Guard = tuple[ir.Expr, ...]


@overload
def compute(
    shape: Any,
    f: Callable[..., ir.Operand],
    name: str = ...,
    *,
    axes: Sequence[str] | None = ...,
    layout: ir.Layout | None = ...,
) -> Tensor: ...
@overload
def compute(
    shape: Any,
    f: Callable[..., tuple[ir.Operand, ...]],
    name: str = ...,
    *,
    axes: Sequence[str] | None = ...,
    layout: ir.Layout | None = ...,
) -> tuple[Tensor, ...]: ...
@check_arguments
def compute(
    shape: Any,
    f: Callable[..., Any],
    name: str = "compute",
    *,
    axes: Sequence[str] | None = None,
    layout: ir.Layout | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The tensor whose element at `indices` is `f(*indices)`; loops are named as `f` names them.

    If `f` returns a tuple the result is a tuple of tensors, computed together by one block. `axes`
    names the loops where `f` cannot (`lambda *i: ...`). `layout` is how far apart its elements are.

    >>> from metaschedule import te
    >>> a = te.placeholder((4, 8), name="A")
    >>> k = te.reduce_axis(8)
    >>> row_sum = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="row_sum")
    >>> print(te.program([a], [row_sum]))
    @ms.program
    def main(A: T.Tensor((4, 8), "float32"), row_sum: T.Output((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.block("row_sum"):
                v_i = T.spatial(4, i)
                v_k = T.reduce(8, k)
                T.reads(A[v_i, v_k])
                T.writes(row_sum[v_i])
                with T.init():
                    row_sum[v_i] = 0.0
                row_sum[v_i] = row_sum[v_i] + A[v_i, v_k]
    """
    extents = check_extents(shape, name)
    indices = tuple([ir.Var(n) for n in index_names(f, len(extents), axes, name)])
    result = f(*indices)
    several = isinstance(result, tuple)
    values = tuple([expression(v, name) for v in (result if several else (result,))])
    if not values:
        raise ValueError(f"{name}: the function gives an empty tuple: at least one value is needed")
    for value in values:
        check_scope(value, indices, name)

    def stage(part: ir.Expr) -> ir.Expr:
        return make_stage(f"{name}_part", indices, extents, (part,))[0][indices]

    tensors = make_stage(name, indices, extents, tuple([cut(value, name, stage) for value in values]))
    if layout is not None:
        for tensor in tensors:
            tensor.layout = tensor.check_layout(layout)
    return tensors if several else tensors[0]


def index_names(f: Callable[..., Any], count: int, axes: Sequence[str] | None, name: str) -> list[str]:
    """Names of the indices: `axes`, else the function's parameters."""
    if axes is not None:
        if len(axes) != count:
            raise ValueError(f"{name}: {len(axes)} axis names for {count} dimension(s)")
        return list(axes)
    names: list[str] = []
    for p in inspect.signature(f).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            return names + [f"{p.name}{n}" for n in range(len(names), count)]
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
    if len(names) != count:
        raise TypeError(
            f"{name}: the shape has {count} dimension(s), but the function takes {len(names)} "
            f"index(es) ({', '.join(names)})"
        )
    return names


def check_scope(value: ir.Expr, indices: tuple[ir.Var, ...], name: str) -> None:
    known = frozenset(indices)
    for v in unbound(value):
        if isinstance(v, Axis):
            raise ValueError(f"{name}: axis {v.name} is used outside of a reduction over it")
        if v not in known:
            raise ValueError(
                f"{name}: variable {v.name} is not an index of this compute "
                f"({', '.join(i.name for i in indices) or 'it has none'})"
            )


def make_stage(
    name: str, indices: tuple[ir.Var, ...], shape: tuple[int, ...], values: tuple[ir.Expr, ...]
) -> tuple[Tensor, ...]:
    """The stage that computes `values`, and before it those of the reductions inside them."""
    hoist = Hoist(name, indices, shape)
    picks = [v for v in values if isinstance(v, Component)]
    together = join([v.reduction for v in picks]) if len(picks) == len(values) else None
    if together is None:
        stage = Stage(name, indices, shape, tuple([hoist.expr(v) for v in values]))
        names = [name] if len(values) == 1 else [f"{name}_{n}" for n in range(len(values))]
        return add_tensors(stage, names)

    reduction, offsets = together
    positions = [offsets[v.reduction] + v.position for v in picks]
    if len(set(positions)) != len(positions):
        raise ValueError(f"{name}: one result of a reduction is given twice")
    axes = tuple([hoist.enter(a) for a in reduction.axes])
    own = tuple([hoist.expr(v) for v in reduction.values])
    stage = Stage(name, indices, shape, own, axes, reduction)
    names = [f"{name}_{n}" for n in range(len(stage.values))]
    if len(picks) == 1:
        names = [f"{name}_value" for _ in names]
        names[positions[0]] = name
    tensors = add_tensors(stage, names)
    return tuple([tensors[p] for p in positions])


def add_tensors(stage: Stage, names: list[str]) -> tuple[Tensor, ...]:
    stage.tensors = tuple(
        [Tensor(n, stage.shape, v.dtype, stage=stage) for n, v in zip(names, stage.values, strict=True)]
    )
    return stage.tensors


def join(reductions: list[Reduction]) -> tuple[Reduction, dict[Reduction, int]] | None:
    """One reduction that does all of them at once, and where each one's values start in it.

    None unless they are over the same axes.
    """
    distinct = list(dict.fromkeys(reductions))
    first = distinct[0]
    if any([*map(id, r.axes)] != [*map(id, first.axes)] for r in distinct[1:]):
        return None
    if len(distinct) == 1:
        return first, {first: 0}
    offsets: dict[Reduction, int] = {}
    values: tuple[ir.Expr, ...] = ()
    for r in distinct:
        offsets[r] = len(values)
        values += r.values

    def combine(a: tuple[ir.Expr, ...], b: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        result: tuple[ir.Expr, ...] = ()
        for r in distinct:
            part = slice(offsets[r], offsets[r] + len(r.values))
            result += r.reducer.combine_values(r, a[part], b[part])
        return result

    def identity(*_: str) -> tuple[ir.Expr, ...]:
        return tuple([e for r in distinct for e in r.reducer.identities(r)])

    name = "_".join(dict.fromkeys(r.reducer.name for r in distinct))
    return Reduction(Reducer(combine, identity, name), values, first.axes, True), offsets


class Hoist:
    """Replaces the reductions inside an expression by reads of stages made for them.

    A reduction that `select`, `and` or `or` evaluates only under a condition is computed under that
    condition in its stage too (elsewhere the stage holds the identity), so what the expression does
    not read is not read.
    """

    def __init__(self, name: str, indices: tuple[ir.Var, ...], shape: tuple[int, ...]) -> None:
        self.name = name
        self.values: dict[ir.Var, ir.Expr] = {}  # axis as the user wrote it -> variable of this stage
        self.scope: dict[ir.Var, tuple[ir.Expr, ir.Expr]] = {  # variable in scope -> first value, extent
            v: (ir.const(0), ir.const(n)) for v, n in zip(indices, shape, strict=True)
        }
        self.done: dict[tuple[Any, ...], tuple[tuple[Tensor, ...], tuple[ir.Expr, ...]]] = {}

    def enter(self, axis: Axis) -> Bounds:
        """Brings an axis of the stage's own reduction into scope, as a plain variable."""
        bounds = Bounds(ir.Var(axis.name), self.expr(axis.low), self.expr(axis.extent))
        self.values[axis] = bounds.var
        self.scope[bounds.var] = bounds[1:]
        return bounds

    def expr(self, e: ir.Expr, guard: Guard = ()) -> ir.Expr:
        if isinstance(e, ir.Var):
            return self.values.get(e, e)
        if isinstance(e, Component):
            tensors, indices = self.stage(e.reduction, guard)
            return ir.Load(tensors[e.position], indices)
        if isinstance(e, ir.Select):
            cond = self.expr(e.cond, guard)
            a, b = self.expr(e.a, (*guard, cond)), self.expr(e.b, (*guard, ir.unary("not", cond)))
            same = cond is e.cond and a is e.a and b is e.b
            return e if same else ir.Select(cond, a, b, e.dtype)
        if isinstance(e, ir.Binary) and e.op in ("and", "or"):
            a = self.expr(e.a, guard)
            b = self.expr(e.b, (*guard, a if e.op == "and" else ir.unary("not", a)))
            return e if a is e.a and b is e.b else ir.Binary(e.op, a, b, e.dtype)
        return rebuild(e, lambda child: self.expr(child, guard))

    def stage(self, r: Reduction, guard: Guard) -> tuple[tuple[Tensor, ...], tuple[ir.Expr, ...]]:
        """The results of a stage for `r`, and the indices at which this place reads them."""
        for n in range(len(guard) + 1):  # one computed under fewer conditions will do
            if (r, *guard[:n]) in self.done:
                return self.done[(r, *guard[:n])]
        key = (r, *guard)
        r = Replace(self.values).reduction(r)
        if guard:
            r = guard_reduction(r, ir.all_of(guard))
        used = self.variables_used(r)
        fresh: dict[ir.Var, ir.Expr] = {}
        indices: list[ir.Var] = []
        shape: list[int] = []
        for v in used:
            low, extent = self.scope[v]
            if (known := ir.as_int(extent)) is None:
                raise ValueError(
                    f"{self.name}: a {r.reducer.name} inside a reduction over {v.name}, whose "
                    "extent is not a constant: compute the inner one as a tensor of its own first"
                )
            indices.append(ir.Var(v.name))
            shape.append(known)
            fresh[v] = indices[-1] + Replace(fresh).expr(low)
        inner = Replace(fresh).reduction(r)
        values = tuple([Component(inner, n) for n in range(len(inner.values))])
        name = f"{self.name}_{r.reducer.name}"
        tensors = make_stage(name, tuple(indices), tuple(shape), values)
        self.done[key] = tensors, tuple([v - self.scope[v][0] for v in used])
        return self.done[key]

    def variables_used(self, r: Reduction) -> list[ir.Var]:
        """The variables in scope that `r` depends on, also through the bounds of other axes."""
        found: set[ir.Var] = set()
        todo = list(unbound(Component(r, 0)))
        while todo:
            v = todo.pop()
            if v not in found:
                found.add(v)
                for bound in self.scope[v]:
                    todo += unbound(bound)
        return [v for v in self.scope if v in found]


def guard_reduction(r: Reduction, condition: ir.Expr) -> Reduction:
    """`r` where the condition holds, its identity elsewhere, reading nothing there."""
    if isinstance(condition, ir.Const) and condition.value:
        return r
    renew: dict[ir.Var, ir.Expr] = {}
    axes: list[Axis] = []
    for a in r.axes:
        low, extent = (Replace(renew).expr(bound) for bound in (a.low, a.extent))
        if ir.as_int(extent) is None:
            extent = ir.select(condition, extent, 0)
        if ir.as_int(low) is None:
            low = ir.select(condition, low, 0)
        axes.append(Axis(a.name, low, extent))
        renew[a] = axes[-1]
    values = [Replace(renew).expr(v) for v in r.values]
    safe = [ir.select(condition, v, i) for v, i in zip(values, r.reducer.identities(r), strict=True)]
    return Reduction(r.reducer, tuple(safe), tuple(axes), r.several)
