"""Walking and rebuilding trees.

`walk` yields every statement, `expressions` every expression node. `Rewriter` rebuilds bottom-up,
returning the same object where nothing changed; passes override `expr` and `stmt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any, TypeVar

from .buffer import Buffer, Region
from .expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from .program import Program
from .stmt import Assert, Block, Body, For, If, Iter, Stmt, Store, TupleStore, While

T = TypeVar("T")


def operands(e: Expr) -> tuple[Expr, ...]:
    """Direct subexpressions, in order of evaluation."""
    if isinstance(e, Binary):
        return (e.a, e.b)
    if isinstance(e, Load):
        return e.indices
    if isinstance(e, (Unary, Cast)):
        return (e.a,)
    if isinstance(e, Select):
        return (e.cond, e.a, e.b)
    return e.args if isinstance(e, Call) else ()


def subexpressions(e: Expr) -> Iterator[Expr]:
    """`e` and everything inside it, outside first."""
    if isinstance(e, (Var, Const)):  # most often, and a replay asks thousands of times
        yield e
        return
    stack = [e]
    while stack:
        x = stack.pop()
        yield x
        stack += operands(x)[::-1]


def height(e: Expr) -> int:
    """How many expressions are inside each other: 1 for a variable."""
    level, count = [e], 0
    while level:
        level = list({id(x): x for parent in level for x in operands(parent)}.values())
        count += 1
    return count


def bodies(s: Stmt) -> tuple[Body, ...]:
    """The bodies of a statement, in order of execution."""
    if isinstance(s, (For, While)):
        return (s.body,)
    if isinstance(s, Block):
        return (s.init, s.body)
    if isinstance(s, If):
        return (s.then, s.orelse)
    if isinstance(s, TupleStore):
        return (s.stores,)
    return ()


def own_expressions(s: Stmt) -> Iterator[Expr]:
    """The expressions that a statement itself evaluates (not those of its bodies or signature)."""
    if isinstance(s, For):
        yield s.extent
    elif isinstance(s, Block):
        yield from s.bindings
        yield from s.predicate
        for it in s.iters:
            yield it.extent
    elif isinstance(s, Store):
        yield from s.indices
        yield s.value
    elif isinstance(s, (If, While, Assert)):
        yield s.cond


def walk(node: Program | Stmt | Body) -> Iterator[Stmt]:
    """Every statement below (and including) `node`, in program order, outside first."""
    body = node.body if isinstance(node, Program) else node
    waiting = list(reversed(body)) if isinstance(body, tuple) else [body]
    while waiting:
        s = waiting.pop()
        yield s
        for body in reversed(bodies(s)):
            waiting += reversed(body)


def expressions(node: Program | Stmt | Body) -> Iterator[Expr]:
    """Every expression that `node` evaluates, with all its parts."""
    for stmt in walk(node):
        for e in own_expressions(stmt):
            yield from subexpressions(e)


def buffers_read(node: Program | Stmt | Body) -> set[Buffer]:
    """The buffers that `node` loads from."""
    return {e.buffer for e in expressions(node) if isinstance(e, Load)}


def buffers_written(node: Program | Stmt | Body) -> set[Buffer]:
    """The buffers that `node` stores to."""
    return {s.buffer for s in walk(node) if isinstance(s, Store)}


def blocks(node: Program | Stmt | Body) -> list[Block]:
    return [s for s in walk(node) if isinstance(s, Block)]


def free_vars(e: Expr) -> list[Var]:
    """The variables of an expression, each once, in order of appearance."""
    if isinstance(e, Var):
        return [e]
    return list(dict.fromkeys([x for x in subexpressions(e) if isinstance(x, Var)]))


def map_operands(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """`e` with `f` applied to its direct subexpressions; `e` itself if none changed."""
    if isinstance(e, Binary):
        a, b = f(e.a), f(e.b)
        return e if a is e.a and b is e.b else Binary(e.op, a, b, e.dtype)
    if isinstance(e, (Var, Const)):
        return e
    if isinstance(e, Load):
        indices = map_all(e.indices, f)
        return e if indices is e.indices else Load(e.buffer, indices)
    if isinstance(e, Select):
        cond, a, b = f(e.cond), f(e.a), f(e.b)
        same = cond is e.cond and a is e.a and b is e.b
        return e if same else Select(cond, a, b, e.dtype)
    if isinstance(e, Call):
        if len(e.args) == 1:  # most often; a chain of calls takes two stack frames less for each
            a = f(e.args[0])
            return e if a is e.args[0] else Call(e.name, (a,), e.dtype)
        args = map_all(e.args, f)
        return e if args is e.args else Call(e.name, args, e.dtype)
    if isinstance(e, Cast):
        a = f(e.a)
        return e if a is e.a else Cast(a, e.dtype)
    if isinstance(e, Unary):
        a = f(e.a)
        return e if a is e.a else Unary(e.op, a, e.dtype)
    return e


def map_all(items: tuple[T, ...], f: Callable[[T], T]) -> tuple[T, ...]:
    """`f` of each item; the same tuple if none changed."""
    new = tuple([f(item) for item in items])
    return items if all(x is y for x, y in zip(new, items, strict=True)) else new


class Rewriter:
    """Rebuilds programs. Override `expr` (call `super().expr(e)` to go into operands), `stmt` (may
    return one statement, or a tuple to splice in) and `buffer`."""

    def expr(self, e: Expr) -> Expr:
        e = map_operands(e, self.expr)
        if isinstance(e, Load) and (buffer := self.buffer(e.buffer)) is not e.buffer:
            return Load(buffer, e.indices)
        return e

    def buffer(self, b: Buffer) -> Buffer:
        return b

    def exprs(self, items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return map_all(items, self.expr)

    def body(self, body: Body) -> Body:
        new: list[Stmt] = []
        for s in body:
            result = self.stmt(s)
            new.extend(result) if isinstance(result, tuple) else new.append(result)
        same = len(new) == len(body) and all(x is y for x, y in zip(new, body, strict=True))
        return body if same else tuple(new)

    def region(self, r: Region) -> Region:
        ranges = map_all(r.ranges, lambda p: _pair(p, self.expr))
        buffer = self.buffer(r.buffer)
        return r if ranges is r.ranges and buffer is r.buffer else Region(buffer, ranges)

    def iter(self, it: Iter) -> Iter:
        extent = self.expr(it.extent)
        return it if extent is it.extent else Iter(it.var, extent, it.kind)

    def stmt(self, s: Stmt) -> Stmt | Body:
        if isinstance(s, For):
            return replace_fields(s, extent=self.expr(s.extent), body=self.body(s.body))
        if isinstance(s, Block):
            return replace_fields(
                s,
                iters=map_all(s.iters, self.iter),
                bindings=self.exprs(s.bindings),
                predicate=self.exprs(s.predicate),
                reads=map_all(s.reads, self.region),
                writes=map_all(s.writes, self.region),
                init=self.body(s.init),
                body=self.body(s.body),
                allocs=map_all(s.allocs, self.buffer),
            )
        if isinstance(s, Store):
            return replace_fields(
                s,
                buffer=self.buffer(s.buffer),
                indices=self.exprs(s.indices),
                value=self.expr(s.value),
            )
        if isinstance(s, TupleStore):
            return replace_fields(s, stores=self.body(s.stores))
        if isinstance(s, If):
            return replace_fields(
                s, cond=self.expr(s.cond), then=self.body(s.then), orelse=self.body(s.orelse)
            )
        if isinstance(s, While):
            return replace_fields(s, cond=self.expr(s.cond), body=self.body(s.body))
        if isinstance(s, Assert):
            return replace_fields(s, cond=self.expr(s.cond))
        raise TypeError(f"unknown statement {type(s).__name__}")

    def program(self, p: Program) -> Program:
        return replace_fields(
            p,
            inputs=map_all(p.inputs, self.buffer),
            outputs=map_all(p.outputs, self.buffer),
            allocs=map_all(p.allocs, self.buffer),
            body=self.body(p.body),
        )


class StmtRewriter(Rewriter):
    """Rebuilds statements and leaves expressions as they are."""

    def expr(self, e: Expr) -> Expr:
        return e


def _pair(p: tuple[Expr, Expr], f: Callable[[Expr], Expr]) -> tuple[Expr, Expr]:
    a, b = f(p[0]), f(p[1])
    return p if a is p[0] and b is p[1] else (a, b)


def replace_fields(node: T, **fields: Any) -> T:
    """`node` with some fields replaced; `node` itself if they are what it has already."""
    for name, value in fields.items():
        if getattr(node, name) is not value:
            break
    else:
        return node
    cls: Any = type(node)
    names = cls.__match_args__
    return cls(*map(fields.get, names, map(getattr, repeat(node), names)))


class Substitute(Rewriter):
    """Replaces variables by expressions and buffers by buffers."""

    def __init__(self, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> None:
        self.values = values
        self.buffers = buffers or {}

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Var):
            return self.values.get(e, e)
        return super().expr(e)

    def buffer(self, b: Buffer) -> Buffer:
        return self.buffers.get(b, b)


def substitute(e: Expr, values: Mapping[Var, Expr]) -> Expr:
    """`e` with variables replaced."""
    if isinstance(e, Var):
        return values.get(e, e)
    return map_operands(e, lambda child: substitute(child, values))


def has_load(e: Expr) -> bool:
    """Whether an expression reads memory."""
    return any(type(x) is Load for x in subexpressions(e))


def loads(*exprs: Expr) -> list[Load]:
    """The loads in expressions, outside first."""
    found: list[Load] = []
    waiting = list(reversed(exprs))
    while waiting:
        e = waiting.pop()
        kind = type(e)
        if type(e) is Binary:
            waiting.append(e.b)
            waiting.append(e.a)
        elif kind is not Var and kind is not Const:
            if type(e) is Load:
                found.append(e)
            waiting += reversed(operands(e))
    return found
