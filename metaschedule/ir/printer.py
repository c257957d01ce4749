"""The one printer: programs as the script that `metaschedule.script` parses.

`program_lines` yields (text, node) per line, so that marking, colouring and diffing need no second
printer; `underline` marks nodes with a label. Names are made unique here, at print time, and only where
scopes overlap. The output depends on nothing but the program. What is deeper than programs may be (see
`depth.py`) is shown as `...`.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .buffer import Buffer, Region
from .depth import MOST_DEPTH
from .dtypes import INDEX, is_float, literal_dtype, numpy_dtype
from .expr import FUNCTIONS, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from .program import Program
from .stmt import Annotations, Assert, Block, Body, For, If, Stmt, Store, TupleStore, While

INDENT = "    "
MOST_INDENTED = 100  # levels, which is what Python reads; deeper statements, and expressions, are `...`
LONGEST_MARKED = 400  # characters of a line in an error
RESERVED = frozenset({"T", "ms", "range", "True", "False", "None"})

# Python's precedences, loosest first.
PRECEDENCE = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 4),
    "|": 5,
    "^": 6,
    "&": 7,
    **dict.fromkeys(("<<", ">>"), 8),
    **dict.fromkeys(("+", "-"), 9),
    **dict.fromkeys(("*", "/", "//", "%"), 10),
}
ATOM = 12
UNARY_PRECEDENCE = 11


class Line(NamedTuple):
    text: str
    node: Any  # the statement, program or buffer that this line introduces


def print_program(program: Program) -> str:
    return "\n".join(line.text for line in program_lines(program))


def print_stmt(stmt: Stmt) -> str:
    return "\n".join(line.text for line in Printer().stmt(stmt, 0))


def print_expr(expr: Expr) -> str:
    return Printer().expr(expr)


def underline(program: Program, marks: Mapping[Any, str], context: int = 40) -> str:
    """The program with the line of each marked node underlined and labelled.

    Programs of more than `context` lines are folded to the marked lines, the lines that enclose them
    and a few neighbours.
    """
    lines = list(program_lines(program, separate=marks))
    keep = set(range(len(lines)))
    if len(lines) > context:
        keep = set(range(min(3, len(lines))))
        for at, line in enumerate(lines):
            if line.node in marks:
                keep.update(range(max(0, at - 3), min(len(lines), at + 4)))
                keep.update(_enclosing(lines, at))
    out: list[str] = []
    for at, (text, node) in enumerate(lines):
        if at not in keep:
            if at - 1 in keep or at == 0:
                out.append(_indent_of(text) + "...")
            continue
        text = text if len(text) <= LONGEST_MARKED else text[: LONGEST_MARKED - 3] + "..."
        out.append(text)
        if marks.get(node):
            code = text.strip()
            out.append(_indent_of(text) + "^" * len(code) + "  " + marks[node])
    return "\n".join(out)


def _indent_of(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _enclosing(lines: list[Line], at: int) -> Iterator[int]:
    depth = len(_indent_of(lines[at].text))
    for above in range(at - 1, -1, -1):
        if (indent := len(_indent_of(lines[above].text))) < depth:
            depth = indent
            yield above


def program_lines(program: Program, separate: Mapping[Any, str] | None = None) -> Iterator[Line]:
    """The lines of a program. Loops in `separate` get a line of their own; other runs of plain loops
    are joined to one `T.grid`."""
    return Printer(separate or {}).program(program)


def number(c: Const) -> str:
    """A constant as a Python literal, shortest form that reads back the same."""
    if not is_float(c.dtype):
        return repr(c.value)
    if c.dtype == "float64":
        text = repr(float(c.value))
    else:
        text = str(numpy_dtype(c.dtype).type(c.value))
    return text if any(mark in text for mark in ".en") else text + ".0"


def is_bare(c: Const, partner: str | None) -> bool:
    """Whether the parser gives the bare literal of `c` the dtype of `c` in this place."""
    finite = not isinstance(c.value, float) or math.isfinite(c.value)
    return finite and literal_dtype(c.value, partner) == c.dtype


class Printer:
    def __init__(self, separate: Mapping[Any, str] | None = None) -> None:
        self.separate = separate or {}
        self.names: dict[Any, str] = {}  # variable or buffer -> its name here
        self.taken: set[str] = set()  # names visible now
        self.inside = 0  # how many expressions are around

    # --- names ---

    def declare(self, node: Var | Buffer) -> str:
        base = identifier(node.name)
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.names[node] = name
        self.taken.add(name)
        return name

    @contextmanager
    def scope(self) -> Iterator[None]:
        outer = set(self.taken)
        yield
        self.taken = outer

    def name(self, node: Var | Buffer) -> str:
        """The name of something declared above, or (in a fragment) of something free."""
        return self.names.get(node) or self.declare(node)

    # --- expressions ---

    def expr(self, e: Expr, partner: str | None = None) -> str:
        return self.print_ranked(e, partner)[0]

    def print_ranked(self, e: Expr, partner: str | None = None) -> tuple[str, int]:
        """Text and precedence. `partner` is the dtype a bare literal would take here."""
        if isinstance(e, Var):
            return self.name(e), ATOM
        if isinstance(e, Const):
            if is_bare(e, partner):
                text = number(e)
                return text, UNARY_PRECEDENCE if text.startswith("-") else ATOM
            text = number(e) if math.isfinite(e.value) else f'"{e.value}"'
            return f"T.{e.dtype}({text})", ATOM
        if self.inside == MOST_DEPTH:
            return "...", ATOM
        self.inside += 1
        result = self.binary(e) if isinstance(e, Binary) else self.compound(e)
        self.inside -= 1
        return result

    def compound(self, e: Expr) -> tuple[str, int]:
        if isinstance(e, Unary):
            if isinstance(e.a, Const) and e.op == "-":  # `-1` would read back as a constant
                return f"T.neg({self.expr(e.a)})", ATOM
            rank = PRECEDENCE["not"] if e.op == "not" else UNARY_PRECEDENCE
            space = " " if e.op == "not" else ""
            return f"{e.op}{space}{self.at_least(e.a, rank)}", rank
        if isinstance(e, Load):
            return f"{self.name(e.buffer)}[{self.indices(e.indices)}]", ATOM
        if isinstance(e, Select):
            a, b = self.pair(e.a, e.b)
            return f"T.select({self.expr(e.cond)}, {self.expr(e.a, a)}, {self.expr(e.b, b)})", ATOM
        if isinstance(e, Cast):
            return f'T.cast({self.expr(e.a)}, "{e.dtype}")', ATOM
        if isinstance(e, Call):
            partners = self.pair(*e.args) if len(e.args) == 2 else (None,) * len(e.args)
            args = [self.print_ranked(x, p)[0] for x, p in zip(e.args, partners, strict=True)]
            if e.name not in FUNCTIONS and "." in e.name:
                return f"""T.instruction("{e.name}", {", ".join(args)})""", ATOM
            return f"T.{e.name}({', '.join(args)})", ATOM
        return f"<{type(e).__name__}>", ATOM

    def pair(self, a: Expr, b: Expr) -> tuple[str | None, str | None]:
        """The dtypes that bare literals take in a two-operand place: each from the other operand."""
        return (
            None if isinstance(b, Const) else b.dtype,
            None if isinstance(a, Const) else a.dtype,
        )

    def binary(self, e: Binary) -> tuple[str, int]:
        for_a, for_b = self.pair(e.a, e.b)
        if e.op in ("min", "max"):
            return f"T.{e.op}({self.expr(e.a, for_a)}, {self.expr(e.b, for_b)})", ATOM
        rank = PRECEDENCE[e.op]
        # Operators associate to the left, and comparisons do not chain: parenthesise accordingly.
        left = rank + 1 if rank == PRECEDENCE["<"] else rank
        return f"{self.at_least(e.a, left, for_a)} {e.op} {self.at_least(e.b, rank + 1, for_b)}", rank

    def at_least(self, e: Expr, rank: int, partner: str | None = None) -> str:
        text, own = self.print_ranked(e, partner)
        return text if own >= rank else f"({text})"

    def indices(self, indices: tuple[Expr, ...]) -> str:
        return ", ".join(self.expr(i) for i in indices) or "()"

    def region(self, r: Region) -> str:
        parts: list[str] = []
        for start, extent in r.ranges:
            if isinstance(extent, Const) and extent.value == 1 and extent.dtype == INDEX:
                parts.append(self.expr(start))
            else:
                parts.append(f"{self.expr(start)} : T.size({self.expr(extent)})")
        return f"{self.name(r.buffer)}[{', '.join(parts) or '()'}]"

    # --- statements ---

    def body(self, body: Body, depth: int) -> Iterator[Line]:
        with self.scope():
            if not body:
                yield Line(INDENT * depth + "pass", None)
            for s in body:
                yield from self.stmt(s, depth)

    def stmt(self, s: Stmt, depth: int) -> Iterator[Line]:
        pad = INDENT * depth
        if depth > MOST_INDENTED:
            yield Line(f"{pad}...", s)
        elif isinstance(s, For):
            yield from self.loop(s, depth)
        elif isinstance(s, Block):
            yield from self.block(s, depth)
        elif isinstance(s, Store):
            target = f"{self.name(s.buffer)}[{self.indices(s.indices)}]"
            yield Line(f"{pad}{target} = {self.expr(s.value, s.buffer.dtype)}", s)
        elif isinstance(s, TupleStore):
            left = ", ".join(f"{self.name(x.buffer)}[{self.indices(x.indices)}]" for x in s.stores)
            right = ", ".join(self.expr(x.value, x.buffer.dtype) for x in s.stores)
            yield Line(f"{pad}{left} = {right}", s)
        elif isinstance(s, If):
            yield Line(f"{pad}if {self.expr(s.cond)}:", s)
            yield from self.body(s.then, depth + 1)
            while len(s.orelse) == 1 and isinstance(s.orelse[0], If):
                s = s.orelse[0]
                yield Line(f"{pad}elif {self.expr(s.cond)}:", s)
                yield from self.body(s.then, depth + 1)
            if s.orelse:
                yield Line(f"{pad}else:", None)
                yield from self.body(s.orelse, depth + 1)
        elif isinstance(s, While):
            yield Line(f"{pad}while {self.expr(s.cond)}:", s)
            yield from self.body(s.body, depth + 1)
        elif isinstance(s, Assert):
            message = f", {quote(s.message)}" if s.message else ""
            yield Line(f"{pad}assert {self.expr(s.cond)}{message}", s)
        else:
            yield Line(f"{pad}<{type(s).__name__}>", s)

    def loop(self, s: For, depth: int) -> Iterator[Line]:
        pad = INDENT * depth
        with self.scope():
            run = [s]
            while len(run[-1].body) == 1 and self.joins(run[-1], run[-1].body[0]):
                run.append(run[-1].body[0])  # pyright: ignore[reportArgumentType]
            extents = [self.expr(f.extent) for f in run]  # none uses a variable of the run
            names = ", ".join([self.declare(f.var) for f in run])
            if len(run) > 1:
                head = f"T.grid({', '.join(extents)})"
            elif s.kind == "serial" and not s.annotations:
                head = f"range({extents[0]})"
            else:
                kind = "bind" if "." in s.kind else s.kind
                axis = f", {quote(s.kind)}" if "." in s.kind else ""
                notes = f", annotations={annotation(s.annotations)}" if s.annotations else ""
                head = f"T.{kind}({extents[0]}{axis}{notes})"
            yield Line(f"{pad}for {names} in {head}:", s)
            yield from self.body(run[-1].body, depth + 1)

    def joins(self, outer: For, inner: Stmt) -> bool:
        """Whether `inner` can share the line of `outer` in a `T.grid`."""
        return (
            isinstance(inner, For)
            and inner.fixed_extent is not None
            and outer.fixed_extent is not None
            and outer.kind == inner.kind == "serial"
            and not (outer.annotations or inner.annotations)
            and not (outer in self.separate or inner in self.separate)
        )

    def block(self, s: Block, depth: int) -> Iterator[Line]:
        pad = INDENT * (depth + 1)
        yield Line(f"{INDENT * depth}with T.block({quote(s.name)}):", s)
        with self.scope():
            for at, it in enumerate(s.iters):
                bound = self.expr(s.bindings[at]) if at < len(s.bindings) else "<unbound>"
                extent = self.expr(it.extent)
                yield Line(f"{pad}{self.declare(it.var)} = T.{it.kind}({extent}, {bound})", it)
            for condition in s.predicate:
                yield Line(f"{pad}T.where({self.expr(condition)})", condition)
            yield Line(f"{pad}T.reads({', '.join(map(self.region, s.reads))})", None)
            yield Line(f"{pad}T.writes({', '.join(map(self.region, s.writes))})", None)
            if s.annotations:
                yield Line(f"{pad}T.annotate({annotation(s.annotations)})", None)
            yield from self.allocs(s.allocs, depth + 1)
            if s.init:
                yield Line(f"{pad}with T.init():", None)
                yield from self.body(s.init, depth + 2)
            if s.body:
                for child in s.body:
                    yield from self.stmt(child, depth + 1)

    def allocs(self, buffers: tuple[Buffer, ...], depth: int) -> Iterator[Line]:
        pad = INDENT * depth
        for b in buffers:
            name = self.declare(b)
            if b.data is not None:
                yield Line(f"{pad}{name} = T.table({table(b)}, {self.spec(b)})", b)
            else:
                yield Line(f"{pad}{name} = T.alloc({self.spec(b)})", b)

    def spec(self, b: Buffer) -> str:
        scope = f", scope={quote(b.scope)}" if b.scope != "global" else ""
        constant = ", constant=True" if b.constant else ""
        strides = f", strides={b.strides}" if b.layout is not None else ""
        offset = f", offset={b.offset}" if b.offset else ""
        return f"{b.shape}, {quote(b.dtype)}{scope}{constant}{strides}{offset}"

    def program(self, p: Program) -> Iterator[Line]:
        yield Line("@ms.program", None)
        params: list[str] = []
        for kind, group in (("Tensor", p.inputs), ("Output", p.outputs)):
            params += [f"{self.declare(b)}: T.{kind}({self.spec(b)})" for b in group]
        head = f"def {identifier(p.name)}({', '.join(params)}):"
        if len(head) <= 100 and not any(b in self.separate for b in p.params):
            yield Line(head, p)
        else:
            yield Line(f"def {identifier(p.name)}(", p)
            for text, b in zip(params, p.params, strict=True):
                yield Line(f"{INDENT}{text},", b)
            yield Line("):", None)
        if p.annotations:
            yield Line(f"{INDENT}T.annotate({annotation(p.annotations)})", None)
        yield from self.allocs(p.allocs, 1)
        yield from self.body(p.body, 1)


def identifier(name: str) -> str:
    """`name` made a Python identifier that means nothing else in the script."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name) or "_"
    if text[0].isdigit():
        text = "_" + text
    return text + "_" if keyword.iskeyword(text) or text in RESERVED else text


def quote(text: str) -> str:
    return '"' + repr(text)[1:-1].replace('"', '\\"') + '"'


def annotation(annotations: Annotations) -> str:
    return "{" + ", ".join(f"{quote(k)}: {_value(v)}" for k, v in annotations.items()) + "}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_value(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return annotation(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'T.float64("{value}")'
    return repr(value)


def table(b: Buffer) -> str:
    """The elements of an embedded table, flat."""
    assert b.data is not None
    values = np.ravel(b.data).tolist()
    parts: list[str] = []
    for value in values:
        c = Const(value, b.dtype)
        finite = not isinstance(value, float) or math.isfinite(value)
        parts.append(number(c) if finite else f'"{value}"')
    return "[" + ", ".join(parts) + "]"
