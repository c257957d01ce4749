"""The rules every program keeps, checked in one walk: `verify(program)`.

Read `Verifier.stmt` first. A rule is broken only where that is certain: an index is out of bounds
if an instance that is sure to run goes there. So nothing under a condition, a `while`, a predicate,
a possibly empty loop or after an assertion is held against a program, and nothing whose bounds are
not known exactly.

Refused: variables used outside their scope or declared twice, and loop variables inside a block;
buffers that are not declared; stores to inputs and tables; indices out of bounds or too few; dtypes
that do not fit; accesses a block's signature does not cover; iterators without binding or bound
outside their extent; `init` without a reduction; unknown kinds and scopes; negative extents; one
GPU axis with several extents; outputs that nothing writes; parameters given twice; annotations that are
not plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .arith import Domain
from .errors import VerifyError
from .ir import (
    DTYPES,
    FUNCTIONS,
    GPU_AXES,
    INDEX,
    ITER_KINDS,
    LOOP_KINDS,
    Annotations,
    Assert,
    Binary,
    Block,
    Body,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    If,
    Iter,
    Load,
    Program,
    Region,
    Select,
    Stmt,
    Store,
    TupleStore,
    Unary,
    Var,
    While,
    as_int,
    free_vars,
    integer_limits,
    is_float,
    is_integer,
    numpy_dtype,
    substitute,
    typed_binary,
    unary,
    walk,
)
from .ir.buffer import SCOPES


def verify(program: Program) -> None:
    """Raise `VerifyError` if `program` breaks a rule; the message shows the place."""
    Verifier(program).run()


class Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.at: Any = program  # the node that a message underlines
        self.visible: set[Var] = set()
        self.hidden: set[Var] = set()  # of the loops around a block, not to be used inside
        self.seen: set[Var | Buffer] = set()
        self.buffers: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.stack: list[Block] = []
        self.bound: list[For] = []  # GPU loops around
        self.axes: dict[str, list[For]] = {}  # GPU loops of this nest
        self.values: dict[Var, Expr] = {}  # iterators of blocks in terms of the loops
        self.domain = Domain({})  # of the loops around, as long as `certain`
        self.certain = True  # whether what is visited now runs for every point of `domain`

    def fail(self, message: str, label: str = "", help: str = "", at: Any = None) -> NoReturn:
        marks = {self.at if at is None else at: label or "here"}
        raise VerifyError(message, marks, help, self.program)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Around what runs only sometimes."""
        before, self.certain = self.certain, False
        yield
        self.certain = before

    # --- declarations ---

    def run(self) -> None:
        p = self.program
        for b in p.params:
            if b in self.seen:
                self.fail(f"{b.name} is a parameter twice", "the same buffer again")
            if b.data is not None:
                self.fail(f"parameter {b.name} has data", "holds values", "put tables in allocs", b)
            self.declare_buffer(b)
        for b in p.outputs:
            if b.constant:
                self.fail(f"output {b.name} is constant", "only inputs can be", at=b)
        for b in p.allocs:
            self.declare_alloc(b)
        self.annotations(p.annotations)
        for s in p.body:
            if any(isinstance(part, Assert) for part in walk(s)):
                self.certain = (
                    False  # it may stop the program before what is next, or next time around
                )
            self.body((s,))
        for b in p.outputs:
            if b not in self.written and b.size > 0:
                self.fail(f"output {b.name} is never written", "nothing stores to it", at=b)

    def declare_var(self, var: Var, node: For | Iter) -> None:
        if var in self.seen:
            self.fail(
                f"variable {var.name} is declared twice", "again here", "make a new Var", node
            )
        if var.dtype != INDEX:
            self.fail(f"variable {var.name} is {var.dtype}, not {INDEX}", "declared here", at=node)
        self.seen.add(var)
        self.visible.add(var)

    def declare_buffer(self, b: Buffer) -> None:
        if b in self.seen:
            self.fail(f"buffer {b.name} is declared twice", "again here", at=b)
        if b.dtype not in DTYPES:
            self.fail(f"buffer {b.name} has unknown dtype {b.dtype!r}", at=b)
        if b.scope not in SCOPES:
            known = ", ".join(SCOPES)
            self.fail(
                f"buffer {b.name} has unknown scope {b.scope!r}", help=f"one of {known}", at=b
            )
        self.seen.add(b)
        self.buffers.add(b)

    def declare_alloc(self, b: Buffer) -> None:
        self.declare_buffer(b)
        if b.data is not None and b.data.dtype != numpy_dtype(b.dtype):
            self.fail(f"table {b.name} is {b.dtype} and its data {b.data.dtype}", at=b)
        if b.constant and b.data is None:
            self.fail(f"buffer {b.name} is constant but no input", "only inputs can be", at=b)

    def annotations(self, annotations: Annotations) -> None:
        for key, value in annotations.items():
            if not isinstance(key, str) or not is_plain(value):
                self.fail(
                    f"annotation {key!r} is not plain data: {type(value).__name__}",
                    help="use strings, numbers, bools, None, and tuples, lists and dicts of them",
                )

    # --- expressions ---

    def expr(self, e: Expr, what: str, dtype: str | None = None) -> None:
        """Check `e`, and that it has the dtype its place asks for ("integer": any of those)."""
        self.parts(e)
        if dtype == "integer" and not is_integer(e.dtype):
            self.fail(f"{what} must be an integer, got {e.dtype}: {e}")
        if dtype not in (None, "integer") and e.dtype != dtype:
            self.fail(f"{what} must be {dtype}, got {e.dtype}: {e}")

    def parts(self, e: Expr) -> None:
        if isinstance(e, Var):
            self.variable(e)
        elif isinstance(e, Const):
            self.constant(e)
        elif isinstance(e, Binary):
            self.parts(e.a)
            if e.op in ("and", "or"):
                with self.guarded():
                    self.parts(e.b)
            else:
                self.parts(e.b)
            if e.a.dtype != e.b.dtype:
                self.fail(f"operands of `{e.op}` are {e.a.dtype} and {e.b.dtype}: {e}")
            self.agree(e, lambda: typed_binary(e.op, Var("a", e.a.dtype), Var("b", e.b.dtype)))
        elif isinstance(e, Load):
            for index in e.indices:
                self.parts(index)
            self.access(e.buffer, e.indices, "reads")
        elif isinstance(e, Select):
            self.expr(e.cond, "the condition of a select", "bool")
            with self.guarded():
                self.expr(e.a, "a branch of a select", e.dtype)
                self.expr(e.b, "a branch of a select", e.dtype)
        elif isinstance(e, Unary):
            self.parts(e.a)
            self.agree(e, lambda: unary(e.op, Var("a", e.a.dtype)))
        elif isinstance(e, Cast):
            self.parts(e.a)
            if e.dtype not in DTYPES:
                self.fail(f"cast to unknown dtype {e.dtype!r}: {e}")
        elif isinstance(e, Call):
            self.call(e)
        else:
            self.fail(f"{e!r} is a {type(e).__name__}, not an expression")

    def variable(self, v: Var) -> None:
        if v in self.visible:
            return
        if v in self.hidden and self.stack:
            self.fail(
                f"block {self.stack[-1].name} uses {v.name}, a variable from outside it",
                f"uses {v.name}",
                "a block speaks of its own iterators only: bind one to that variable",
            )
        where = "outside its scope" if v in self.seen else "and never declared"
        self.fail(f"variable {v.name} is used {where}", f"uses {v.name}")

    def constant(self, c: Const) -> None:
        if is_float(c.dtype):
            good = isinstance(c.value, float)
        elif c.dtype == "bool":
            good = isinstance(c.value, bool)
        else:
            good = type(c.value) is int and is_integer(c.dtype)
            good = good and integer_limits(c.dtype)[0] <= c.value <= integer_limits(c.dtype)[1]
        if not good:
            self.fail(f"{c.value!r} is not a constant of dtype {c.dtype}")

    def agree(self, e: Expr, typed: Any) -> None:
        """Fail unless `typed` can build such a node and gives it the dtype that `e` has."""
        try:
            dtype = typed().dtype
        except (TypeError, ValueError) as wrong:
            self.fail(f"{wrong}: {e}")
        if dtype != e.dtype:
            self.fail(f"the result of `{e}` is {dtype}, not {e.dtype}")

    def call(self, e: Call) -> None:
        if FUNCTIONS.get(e.name) != len(e.args):
            self.fail(f"no function {e.name} of {len(e.args)} argument(s): {e}")
        for arg in e.args:
            self.parts(arg)
        kind = e.args[0].dtype
        if not is_float(kind) and not (e.name == "abs" and is_integer(kind)):
            self.fail(f"{e.name} takes a float, got {kind}: {e}")
        result = "bool" if e.name in ("isnan", "isinf") else kind
        if any(arg.dtype != kind for arg in e.args) or e.dtype != result:
            self.fail(f"arguments and result of {e.name} do not have one dtype: {e}")

    # --- accesses ---

    def access(self, b: Buffer, indices: tuple[Expr, ...], verb: str) -> None:
        if b not in self.buffers:
            if b in self.seen:
                self.fail(f"buffer {b.name} is used outside the block that allocates it", verb)
            self.fail(
                f"buffer {b.name} is not declared", verb, "add it to inputs, outputs or allocs"
            )
        if len(indices) != len(b.shape):
            self.fail(
                f"{b.name} has {len(b.shape)} dimension(s), indexed with {len(indices)}", verb
            )
        for index in indices:
            if not is_integer(index.dtype):
                self.fail(f"index of {b.name} must be an integer, got {index.dtype}: {index}")
        element = str(Load(b, indices))
        for block in reversed(self.stack):
            if b in block.allocs:
                break
            self.declared(block, b, indices, verb, element)
        if not self.certain:
            return
        for at, (index, length) in enumerate(zip(indices, b.shape, strict=True)):
            limits = self.exact(index)
            if limits and (limits[0] < 0 or limits[1] >= length):
                self.fail(
                    f"{element} is out of bounds: index {at} goes from {limits[0]} to {limits[1]}, "
                    f"and {b.name} has shape {b.shape}",
                    verb + " there",
                    "make the loops fit the shape, or guard the access with `if` or T.select",
                )

    def declared(
        self, block: Block, b: Buffer, indices: tuple[Expr, ...], verb: str, element: str
    ) -> None:
        """Check an access against the signature of a block around it."""
        listed = block.writes if verb == "writes" else block.reads + block.writes
        regions = [r for r in listed if r.buffer is b]
        if not regions:
            self.fail(
                f"block {block.name} {verb} {element} and does not declare it",
                f"{verb} {b.name}",
                f"add the region to T.{verb}, or leave T.{verb} out to have it inferred",
            )
        if not self.certain or len(regions) > 1:
            return
        for index, (start, extent) in zip(indices, regions[0].ranges, strict=True):
            limits, size = self.exact(index - start), as_int(extent)
            if limits and size is not None and (limits[0] < 0 or limits[1] >= size):
                self.fail(
                    f"block {block.name} {verb} {element} outside the region it declares",
                    f"{verb} {b.name}",
                    f"widen the region in T.{verb}, or leave T.{verb} out to have it inferred",
                )

    def exact(self, e: Expr) -> tuple[int, int] | None:
        """Least and greatest value over all iterations of the loops around, if known exactly."""
        return self.domain.exact_bounds(substitute(e, self.values))

    # --- statements ---

    def body(self, body: Body) -> None:
        for s in body:
            self.at = s
            self.stmt(s)

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, For):
            self.loop(s)
        elif isinstance(s, Block):
            self.block(s)
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, TupleStore):
            if len(s.stores) < 2:
                self.fail("a tuple store of fewer than two stores", help="use a plain Store")
            for one in s.stores:
                self.store(one)
        elif isinstance(s, If):
            self.expr(s.cond, "the condition", "bool")
            with self.guarded():
                self.body(s.then)
                self.body(s.orelse)
        elif isinstance(s, While):
            self.expr(s.cond, "the condition", "bool")
            with self.guarded():
                self.body(s.body)
        elif isinstance(s, Assert):
            self.expr(s.cond, "the condition", "bool")
        else:
            self.fail(f"{s!r} is a {type(s).__name__}, not a statement")

    def store(self, s: Store) -> None:
        for index in s.indices:
            self.parts(index)
        self.parts(s.value)
        b = s.buffer
        if b in self.program.inputs:
            self.fail(f"{b.name} is an input and cannot be written", "writes", "use an output")
        if b.data is not None:
            self.fail(f"{b.name} is a table and cannot be written", "writes", "use a buffer")
        self.access(b, s.indices, "writes")
        if s.value.dtype != b.dtype:
            self.fail(
                f"{b.name} holds {b.dtype} and the value is {s.value.dtype}", "", "cast the value"
            )
        self.written.add(b)

    def extent(self, extent: Expr, what: str) -> None:
        self.expr(extent, what, "integer")
        if (number := as_int(extent)) is not None and number < 0:
            self.fail(f"{what} is negative: {number}")

    def loop(self, s: For) -> None:
        if s.kind not in LOOP_KINDS:
            self.fail(f"unknown loop kind {s.kind!r}", help=f"one of {', '.join(LOOP_KINDS)}")
        self.extent(s.extent, "the extent of a loop")
        self.annotations(s.annotations)
        if s.kind in GPU_AXES:
            self.axis(s)
        before = self.certain, self.domain
        self.declare_var(s.var, s)
        self.certain = self.certain and (s.fixed_extent or 0) >= 1
        if self.certain:
            self.domain = self.domain.with_loop(s.var, s.extent)
        self.body(s.body)
        self.certain, self.domain = before
        self.visible.discard(s.var)
        if s.kind in GPU_AXES:
            self.bound.pop()

    def axis(self, s: For) -> None:
        """Loops of one nest bound to one axis run on the same threads, so they have one extent."""
        if not self.bound:
            self.axes = {}
        for other in self.axes.get(s.kind, ()):
            sizes = other.fixed_extent, s.fixed_extent
            if None not in sizes and sizes[0] != sizes[1] and other not in self.bound:
                marks = {other: f"extent {sizes[0]}", s: f"extent {sizes[1]}"}
                message = f"{s.kind} has two extents in one nest"
                help = "give both loops the larger extent and guard the smaller with T.where"
                raise VerifyError(message, marks, help, self.program)
        self.axes.setdefault(s.kind, []).append(s)
        self.bound.append(s)

    # --- blocks ---

    def block(self, s: Block) -> None:
        if len(s.bindings) != len(s.iters):
            self.fail(
                f"block {s.name} has {len(s.iters)} iterator(s) and {len(s.bindings)} binding(s)"
            )
        reduces = any(it.kind == "reduce" for it in s.iters)
        if s.init and not reduces:
            self.fail(
                f"block {s.name} has an init and no reduce iterator", "", "store before the block"
            )
        outer = self.visible, self.hidden, self.certain, self.values, self.buffers
        with self.guarded():
            for condition in s.predicate:
                self.at = condition
                self.expr(condition, "a predicate", "bool")
        self.bindings(s)
        self.at = s
        self.hidden = self.hidden | outer[0]
        self.visible = {it.var for it in s.iters}
        self.certain = self.certain and not s.predicate
        self.annotations(s.annotations)
        self.buffers = set(self.buffers)
        for b in s.allocs:
            self.declare_alloc(b)
        for region in s.reads + s.writes:
            self.region(s, region)
        self.stack.append(s)
        if s.init:
            runs = self.certain
            self.certain = runs and self.init_runs(s)
            self.body(s.init)
            self.certain = runs
        self.body(s.body)
        self.stack.pop()
        self.visible, self.hidden, self.certain, self.values, self.buffers = outer

    def bindings(self, s: Block) -> None:
        outer, values = self.visible, dict(self.values)
        for it, binding in zip(s.iters, s.bindings, strict=True):
            self.at = it
            if it.kind not in ITER_KINDS:
                self.fail(f"unknown iterator kind {it.kind!r}", help="one of spatial, reduce")
            self.visible = outer
            self.expr(binding, "a binding", "integer")
            self.visible = outer | {i.var for i in s.iters[: s.iters.index(it)]}
            self.extent(it.extent, "the extent of an iterator")
            self.declare_var(it.var, it)
            limits, size = self.exact(binding) if self.certain else None, as_int(it.extent)
            if s.predicate or limits is None or size is None:
                pass
            elif limits[0] < 0 or limits[1] >= size:
                self.fail(
                    f"{it.var.name} of block {s.name} is bound to {binding}, which goes from "
                    f"{limits[0]} to {limits[1]}, outside its extent {size}",
                    help="make the loops fit, or exclude the rest with T.where",
                )
            values[it.var] = substitute(binding, self.values)
        self.values = values

    def region(self, s: Block, r: Region) -> None:
        if r.buffer not in self.buffers:
            self.fail(f"the signature of block {s.name} names {r.buffer.name}, not declared here")
        if len(r.ranges) != len(r.buffer.shape):
            self.fail(
                f"the signature of block {s.name} gives {r.buffer.name} {len(r.ranges)} ranges"
            )
        with self.guarded():
            for start, extent in r.ranges:
                self.expr(start, "the start of a region", "integer")
                self.extent(extent, "the size of a region")

    def init_runs(self, s: Block) -> bool:
        """Whether every combination of spatial values surely meets a first term: the reductions are
        bound to loops of their own."""
        reduced = [b for it, b in zip(s.iters, s.bindings, strict=True) if it.kind == "reduce"]
        others = [b for it, b in zip(s.iters, s.bindings, strict=True) if it.kind != "reduce"]
        used = {v for b in others for v in free_vars(b)}
        return all(isinstance(b, Var) and b not in used for b in reduced)


def is_plain(value: Any) -> bool:
    """Whether an annotation's value prints, hashes and parses."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
