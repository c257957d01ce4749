"""Expressions and accesses: scopes, dtypes, bounds and signatures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .. import ir
from ..arith import Domain
from ..errors import VerifyError


class Expressions:
    """What is known where the walk is, and the checks of expressions there."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.at: Any = program  # the node that a message underlines
        self.visible: set[ir.Var] = set()
        self.hidden: set[ir.Var] = set()  # of the loops around a block, not to be used inside
        self.seen: set[ir.Var | ir.Buffer] = set()
        self.buffers: set[ir.Buffer] = set()
        self.written: set[ir.Buffer] = set()
        self.stack: list[ir.Block] = []
        self.bound: list[ir.For] = []  # GPU loops around
        self.axes: dict[str, list[ir.For]] = {}  # GPU loops of this nest
        self.values: dict[ir.Var, ir.Expr] = {}  # iterators of blocks in terms of the loops
        self.domain = Domain({})  # of the loops around, as long as `certain`
        self.computed = True  # False in what describes a block: signatures, extents of iterators
        self.certain = True  # whether what is visited now runs for every point of `domain`

    def fail(self, message: str, label: str = "", help: str = "", at: Any = None) -> NoReturn:
        marks = {self.at if at is None else at: label or "here"}
        raise VerifyError(message, marks, help, self.program)

    @contextmanager
    def in_guard(self) -> Iterator[None]:
        """Around what runs only sometimes."""
        before, self.certain = self.certain, False
        yield
        self.certain = before

    @contextmanager
    def in_description(self) -> Iterator[None]:
        """Around what says something of a block and is not computed when it runs."""
        with self.in_guard():
            self.computed = False
            yield
            self.computed = True

    # --- expressions ---

    def expr(self, e: ir.Expr, what: str, dtype: str | None = None) -> None:
        """Check `e`, and that it has the dtype its place asks for ("integer": any of those)."""
        self.parts(e)
        if dtype == "integer" and not ir.is_integer(e.dtype):
            self.fail(f"{what} must be an integer, got {e.dtype}: {e}")
        if dtype not in (None, "integer") and e.dtype != dtype:
            self.fail(f"{what} must be {dtype}, got {e.dtype}: {e}")

    def parts(self, e: ir.Expr) -> None:
        if isinstance(e, ir.Var):
            self.variable(e)
        elif isinstance(e, ir.Const):
            self.constant(e)
        elif isinstance(e, ir.Binary):
            self.parts(e.a)
            if e.op in ("and", "or"):
                with self.in_guard():
                    self.parts(e.b)
            else:
                self.parts(e.b)
            if e.a.dtype != e.b.dtype:
                self.fail(f"operands of `{e.op}` are {e.a.dtype} and {e.b.dtype}: {e}")
            self.agree(e, lambda: ir.typed_binary(e.op, ir.Var("a", e.a.dtype), ir.Var("b", e.b.dtype)))
        elif isinstance(e, ir.Load):
            for index in e.indices:
                self.parts(index)
            self.access(e.buffer, e.indices, "reads")
        elif isinstance(e, ir.Select):
            self.expr(e.cond, "the condition of a select", "bool")
            with self.in_guard():
                self.expr(e.a, "a branch of a select", e.dtype)
                self.expr(e.b, "a branch of a select", e.dtype)
        elif isinstance(e, ir.Unary):
            self.parts(e.a)
            self.agree(e, lambda: ir.unary(e.op, ir.Var("a", e.a.dtype)))
        elif isinstance(e, ir.Cast):
            self.parts(e.a)
            if e.dtype not in ir.DTYPES:
                self.fail(f"cast to unknown dtype {e.dtype!r}: {e}")
        elif isinstance(e, ir.Call):
            self.call(e)
        else:
            self.fail(f"a {type(e).__name__} is not an expression")

    def variable(self, v: ir.Var) -> None:
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

    def constant(self, c: ir.Const) -> None:
        if ir.is_float(c.dtype):
            good = isinstance(c.value, float)
        elif c.dtype == "bool":
            good = isinstance(c.value, bool)
        else:
            good = type(c.value) is int and ir.is_integer(c.dtype)
            good = good and ir.integer_limits(c.dtype)[0] <= c.value <= ir.integer_limits(c.dtype)[1]
        if not good:
            self.fail(f"{c.value!r} is not a constant of dtype {c.dtype}")

    def agree(self, e: ir.Expr, typed: Any) -> None:
        """Fail unless `typed` can build such a node and gives it the dtype that `e` has."""
        try:
            dtype = typed().dtype
        except (TypeError, ValueError) as wrong:
            self.fail(f"{wrong}: {e}")
        if dtype != e.dtype:
            self.fail(f"the result of `{e}` is {dtype}, not {e.dtype}")

    def call(self, e: ir.Call) -> None:
        if e.name in ir.INSTRUCTIONS:
            self.instruction(e)
            return
        if ir.FUNCTIONS.get(e.name) != len(e.args):
            self.fail(f"no function {e.name} of {len(e.args)} argument(s): {e}")
        for arg in e.args:
            self.parts(arg)
        kind = e.args[0].dtype
        if not ir.is_float(kind) and not (e.name == "abs" and ir.is_integer(kind)):
            self.fail(f"{e.name} takes a float, got {kind}: {e}")
        result = "bool" if e.name in ("isnan", "isinf") else kind
        if any(arg.dtype != kind for arg in e.args) or e.dtype != result:
            self.fail(f"arguments and result of {e.name} do not have one dtype: {e}")

    def instruction(self, e: ir.Call) -> None:
        known = ir.INSTRUCTIONS[e.name]
        for arg in e.args:
            self.parts(arg)
        given = [arg.dtype for arg in e.args]
        if given != [arg.dtype for arg in known.arguments] or e.dtype != known.dtype:
            self.fail(f"operands of {e.name} do not have the number and dtypes that it takes: {e}")

    # --- accesses ---

    def access(self, b: ir.Buffer, indices: tuple[ir.Expr, ...], verb: str) -> None:
        if b not in self.buffers:
            if b in self.seen:
                self.fail(f"buffer {b.name} is used outside the block that allocates it", verb)
            self.fail(f"buffer {b.name} is not declared", verb, "add it to inputs, outputs or allocs")
        if len(indices) != len(b.shape):
            self.fail(f"{b.name} has {len(b.shape)} dimension(s), indexed with {len(indices)}", verb)
        for index in indices:
            if not ir.is_integer(index.dtype):
                self.fail(f"index of {b.name} must be an integer, got {index.dtype}: {index}")
        element = str(ir.Load(b, indices))
        if self.certain:
            self.bounds(b, indices, verb, element)
        for block in reversed(self.stack if self.computed else []):
            if b in block.allocs:
                break
            self.check_declared(block, b, indices, verb, element)

    def bounds(self, b: ir.Buffer, indices: tuple[ir.Expr, ...], verb: str, element: str) -> None:
        for at, (index, length) in enumerate(zip(indices, b.shape, strict=True)):
            limits = self.exact(index)
            if limits and (limits[0] < 0 or limits[1] >= length):
                low, high = limits
                values = f"is {low}" if low == high else f"goes from {low} to {high}"
                self.fail(
                    f"{element} is out of bounds: index {at} {values}, and {b.name} has shape {b.shape}",
                    verb + " there",
                    "make the loops fit the shape, or guard the access with `if` or T.select",
                )

    def check_declared(
        self, block: ir.Block, b: ir.Buffer, indices: tuple[ir.Expr, ...], verb: str, element: str
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
            limits, size = self.exact(index - start), ir.as_int(extent)
            if limits and size is not None and (limits[0] < 0 or limits[1] >= size):
                self.fail(
                    f"block {block.name} {verb} {element} outside the region it declares",
                    f"{verb} {b.name}",
                    f"widen the region in T.{verb}, or leave T.{verb} out to have it inferred",
                )

    def exact(self, e: ir.Expr) -> tuple[int, int] | None:
        """Least and greatest value over all iterations of the loops around, if known exactly."""
        e = ir.substitute(e, self.values)
        return self.domain.exact_bounds(e) if is_simple(e) else None


def is_simple(e: ir.Expr) -> bool:
    """Whether exact bounds are worth asking for: loads have none, deep quotients cost much."""
    quotients = 0
    for part in ir.subexpressions(e):
        if isinstance(part, ir.Binary):
            quotients += part.op in ("//", "%")
        elif not isinstance(part, (ir.Var, ir.Const)):
            return False
    return quotients <= 4
