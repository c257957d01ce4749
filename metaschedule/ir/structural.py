"""Structural equality and hash: what two programs share whatever their variables are called.

Both come from one canonical encoding, a list of words in which variables and buffers are numbered in the
order they are met. Names of variables, buffers, blocks and of the program do not count; shapes, layouts,
dtypes, scopes, flags, constants, annotations and the values of embedded tables do. The hash is a digest of
the words, so it is the same in every process and on every platform.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..validation import check_arguments
from .buffer import Buffer, Region
from .expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from .program import Program
from .stmt import Assert, Block, Body, For, If, Stmt, Store, TupleStore, While
from .visit import bodies, operands

Node = Program | Stmt | Expr


@check_arguments
def structural_equal(a: Node, b: Node) -> bool:
    """Whether two programs (statements, expressions) are the same up to names."""
    return encode(a) == encode(b)


@check_arguments
def structural_hash(node: Node) -> str:
    """32 hexadecimal digits, equal for structurally equal nodes, stable across processes.

    >>> from metaschedule import te
    >>> def double(name):
    ...     x = te.placeholder((4,), name=name)
    ...     return te.program([x], [te.compute((4,), lambda i: x[i] * 2.0)])
    >>> structural_hash(double("A")) == structural_hash(double("B"))
    True
    """
    return hashlib.blake2b("\n".join(encode(node)).encode(), digest_size=16).hexdigest()


def encode(node: Node) -> list[str]:
    """The canonical words of a node."""
    encoder = Encoder()
    if isinstance(node, Program):
        encoder.program(node)
    elif isinstance(node, Expr):
        encoder.expr(node)
    else:
        encoder.stmts(node)
    return encoder.words


class Encoder:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.ids: dict[Var | Buffer, str] = {}

    def id(self, node: Var | Buffer) -> str:
        """The number of a variable or buffer; on first sight, what it is follows the number."""
        known = self.ids.get(node)
        if known is None:
            known = self.ids[node] = f"#{len(self.ids)}"
            if isinstance(node, Var):
                return f"{known}:{node.dtype}"
            data = "" if node.data is None else digest(node.data)
            layout = "" if node.layout is None else f"@{node.strides}{node.offset:+}"
            return f"{known}:{node.shape}{node.dtype}{node.scope}{node.constant:d}{data}{layout}"
        return known

    def expr(self, e: Expr) -> None:
        words = self.words
        waiting: list[Expr] = []
        while True:
            if isinstance(e, Var):
                words.append(self.id(e))
            elif isinstance(e, Const):
                words.append(f"{e.dtype}={e.value!r}")
            elif isinstance(e, Binary):
                words.append(e.op)
                waiting.append(e.b)
                e = e.a
                continue
            else:
                words.append(self.head(e))
                waiting += operands(e)[::-1]
            if not waiting:
                return
            e = waiting.pop()

    def head(self, e: Expr) -> str:
        """What an expression is, without its operands."""
        if isinstance(e, Load):
            return "load " + self.id(e.buffer)
        if isinstance(e, Select):
            return "select"
        if isinstance(e, Unary):
            return "unary " + e.op
        if isinstance(e, Cast):
            return "cast " + e.dtype
        if isinstance(e, Call):
            return "call " + e.name
        raise TypeError(f"cannot encode {type(e).__name__}")

    def stmts(self, *found: Stmt | Body) -> None:
        """Statements and bodies, in order, with everything below them."""
        waiting: list[Stmt | Body] = list(reversed(found))
        while waiting:
            node = waiting.pop()
            if isinstance(node, tuple):
                self.words.append(f"{len(node)}{{")
                waiting += reversed(node)
            else:
                self.stmt(node)
                waiting += reversed(bodies(node))

    def regions(self, regions: tuple[Region, ...]) -> None:
        self.words.append(f"{len(regions)}[")
        for r in regions:
            self.words.append(self.id(r.buffer))
            for start, extent in r.ranges:
                self.expr(start)
                self.expr(extent)

    def buffers(self, buffers: tuple[Buffer, ...]) -> None:
        self.words.append(f"{len(buffers)}(")
        self.words += [self.id(b) for b in buffers]

    def annotations(self, annotations: Any) -> None:
        if annotations:
            self.words.append(plain(dict(annotations)))

    def stmt(self, s: Stmt) -> None:
        """A statement without its bodies, which follow."""
        words = self.words
        if isinstance(s, For):
            words.append("for " + s.kind)
            self.expr(s.extent)
            words.append(self.id(s.var))
            self.annotations(s.annotations)
        elif isinstance(s, Block):
            words.append(f"block {len(s.iters)} {len(s.predicate)}")
            for it, binding in zip(s.iters, s.bindings, strict=True):
                self.expr(it.extent)
                self.expr(binding)
                words.append(it.kind + self.id(it.var))
            for condition in s.predicate:
                self.expr(condition)
            self.regions(s.reads)
            self.regions(s.writes)
            self.annotations(s.annotations)
            self.buffers(s.allocs)
        elif isinstance(s, Store):
            words.append("store " + self.id(s.buffer))
            for index in s.indices:
                self.expr(index)
            self.expr(s.value)
        elif isinstance(s, TupleStore):
            words.append("together")
        elif isinstance(s, (If, While)):
            words.append("if" if isinstance(s, If) else "while")
            self.expr(s.cond)
        elif isinstance(s, Assert):
            words.append(f"assert {s.message!r}")
            self.expr(s.cond)
        else:
            raise TypeError(f"cannot encode {type(s).__name__}")

    def program(self, p: Program) -> None:
        self.buffers(p.inputs)
        self.buffers(p.outputs)
        self.buffers(p.allocs)
        self.annotations(p.annotations)
        self.stmts(p.body)


def plain(value: Any) -> str:
    """An annotation's value as text: key order and list-or-tuple do not count."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{k!r}:{plain(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ",".join(map(plain, value)) + ")"
    return repr(value)


def digest(data: np.ndarray) -> str:
    """Content of a table, in little-endian bytes whatever the platform."""
    if data.dtype.kind in "fV":  # all NaNs are one value, as in the script
        data = np.where(np.isnan(data), data.dtype.type("nan"), data)
    little = data.astype(data.dtype.newbyteorder("<"), copy=False) if data.dtype.kind in "iufb" else data
    return hashlib.blake2b(np.ascontiguousarray(little).tobytes(), digest_size=16).hexdigest()


def expr_key(e: Expr) -> Any:
    """Equal for expressions spelled the same over the *same* variables and buffers."""
    if isinstance(e, Var):
        return id(e)
    if isinstance(e, Const):
        return e.dtype, repr(e.value)
    own = tuple([getattr(e, field, None) for field in ("op", "name", "dtype")])
    buffer = id(e.buffer) if isinstance(e, Load) else None
    return type(e).__name__, own, buffer, tuple([expr_key(x) for x in operands(e)])


def same_expr(a: Expr, b: Expr) -> bool:
    """Whether two expressions are spelled the same over the *same* variables and buffers."""
    if a is b:
        return True
    if isinstance(a, Var) or type(a) is not type(b) or a.dtype != b.dtype:
        return False
    if isinstance(a, Const) and isinstance(b, Const):
        return repr(a.value) == repr(b.value)  # -0.0 is not 0.0
    if isinstance(a, (Binary, Unary)) and isinstance(b, (Binary, Unary)) and a.op != b.op:
        return False
    if isinstance(a, Load) and isinstance(b, Load) and a.buffer is not b.buffer:
        return False
    if isinstance(a, Call) and isinstance(b, Call) and a.name != b.name:
        return False
    return all(map(same_expr, operands(a), operands(b)))


def same_exprs(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """The same of as many expressions each, one by one."""
    return a is b or (len(a) == len(b) and all(map(same_expr, a, b)))
