"""The fast path: a plain loop nest at once, one NumPy *lane* per element that it stores to.

It applies to a perfect nest of loops around stores, conditionals, assertions and blocks without
buffers of their own. The loops that the stored indices depend on become lanes: their variables are
arrays, one axis per loop, and every operation works on all lanes together. The other loops run one
iteration after the other, in their order, around the lanes. That is the meaning of the program if
no lane can see what another does, which holds because

1. what is stored to, and therefore where, does not change from step to step;
2. a buffer that is both read and written is read only where the same lane writes it (the index
   expressions are the same expressions of the loops);
3. no two lanes touch one element of a buffer that is written (checked before anything is kept).

While the nest runs, each lane keeps the elements it stores to in a `Cell`; memory changes only at
the end. So when anything is out of order (an error, two lanes on one element) the attempt is
dropped, and the scalar walk starts the nest again and reports or does what is right.

A *mask* says which lanes are active: True for all, or an array. What the others hold is arbitrary:
every check looks at active lanes only, and an inactive lane's read goes to a place that exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from metaschedule import ir
from metaschedule.ir import cast as to

from .errors import InterpreterError
from .memory import Memory, origin
from .numeric import binary_function, cast, math_function, unary_function

if TYPE_CHECKING:
    from .walk import Interpreter

MOST = 1 << 22  # lanes at once; a larger nest runs its outermost loop as written
FEW = 16  # lanes that pay for the detour

Mask = Any  # True, or an array of bool; False stands for "nothing to do" and is never passed on
Eval = Callable[[Mask], Any]
Run = Callable[[Mask], None]


class OutOfOrder(Exception):
    """The nest needs the scalar walk."""


def narrow(mask: Mask, condition: Any) -> Mask:
    """The lanes of `mask` where `condition` holds: True, an array, or False if there are none."""
    if not isinstance(condition, np.ndarray):
        return mask if condition else False
    both = condition if mask is True else mask & condition
    if both.all():
        return True
    return both if both.any() else False


def lookup(table: dict[Any, Any], key: Any) -> Any:
    if key not in table:
        raise OutOfOrder  # used outside its scope
    return table[key]


def require(mask: Mask, condition: Any) -> None:
    if not np.all(condition) and narrow(mask, ~condition) is not False:
        raise OutOfOrder


# --- which nests qualify --------------------------------------------------------------------------


def find_nest(loop: ir.For, scalar: Interpreter) -> LaneNest | None:
    """The nest that starts at `loop`, if it can run in lanes."""
    loops = [loop]
    while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], ir.For):
        loops.append(inner)
    body = loops[-1].body
    if not all(type(s) in STATEMENTS and not (isinstance(s, ir.Block) and s.allocs) for s in ir.walk(body)):
        return None
    stores = {s.buffer: s.indices for s in expanded_stores(body)}
    variables = {f.var for f in loops}

    def is_fixed(e: ir.Expr) -> bool:
        return not any(isinstance(x, ir.Load) and x.buffer in stores for x in ir.subexpressions(e))

    for f in loops:
        if not is_fixed(f.extent) or variables.intersection(ir.free_vars(f.extent)):
            return None
    touched = [(s.buffer, s.indices) for s in expanded_stores(body)]
    touched += [(e.buffer, e.indices) for e in expanded_loads(body) if e.buffer in stores]
    for buffer, indices in touched:
        if not ir.same_exprs(indices, stores[buffer]) or not all(map(is_fixed, indices)):
            return None
    used = {v for indices in stores.values() for index in indices for v in ir.free_vars(index)}
    lanes = [f for f in loops if f.var in used]
    steps = [f for f in loops if f.var not in used]
    return LaneNest(scalar, lanes, steps, body, stores) if lanes else None


def walk_expanded(
    body: ir.Body, bound: Mapping[ir.Var, ir.Expr]
) -> Iterator[tuple[ir.Stmt, Mapping[ir.Var, ir.Expr]]]:
    """Every statement, with what the block iterators in it are in terms of the loops."""
    for s in body:
        inside = bound
        if isinstance(s, ir.Block):
            pairs = zip(s.iters, s.bindings, strict=True)
            inside = {
                **bound,
                **{it.var: to(ir.substitute(e, bound), it.var.dtype) for it, e in pairs},
            }
            yield s, inside
            yield from walk_expanded(s.init + s.body, inside)
        elif isinstance(s, ir.If):
            yield s, bound
            yield from walk_expanded(s.then + s.orelse, bound)
        elif isinstance(s, ir.TupleStore):
            yield from walk_expanded(s.stores, bound)
        else:
            yield s, bound


def expanded_stores(body: ir.Body) -> Iterator[ir.Store]:
    for s, bound in walk_expanded(body, {}):
        if isinstance(s, ir.Store):
            yield ir.Store(s.buffer, tuple(ir.substitute(i, bound) for i in s.indices), s.value)


def expanded_loads(body: ir.Body) -> Iterator[ir.Load]:
    for s, bound in walk_expanded(body, {}):
        for e in ir.own_expressions(s):
            for x in ir.subexpressions(ir.substitute(e, bound)):
                if isinstance(x, ir.Load):
                    yield x


# --- running one ----------------------------------------------------------------------------------


class Cell:
    """One element of a stored buffer per lane: where it is, and what it holds as the nest runs.

    Arrays are replaced, never changed in place, so that a value read earlier stays what it was.
    """

    def __init__(self, memory: Memory, buffer: ir.Buffer, indices: Iterable[Any]) -> None:
        self.tensor = lookup(memory, buffer)
        if self.tensor.written is None or not buffer.size:
            raise OutOfOrder
        self.address, self.valid = flat_address(buffer, indices)
        self.value = self.tensor.data[self.address]
        self.written: Any = self.tensor.written[self.address]
        self.stored: Any = False  # lanes that wrote it
        self.touched: Any = False  # lanes that read or wrote it

    def read(self, mask: Mask) -> Any:
        require(mask, self.valid)
        require(mask, self.written)
        self.touched = either(self.touched, mask)
        return self.value

    def write(self, mask: Mask, value: Any) -> None:
        require(mask, self.valid)
        self.value = value if mask is True else np.where(mask, value, self.value)
        self.stored = either(self.stored, mask)
        self.touched = either(self.touched, mask)
        self.written = either(self.written, mask)

    def is_private(self, shape: tuple[int, ...]) -> bool:
        """Whether no two lanes met."""
        mine = select_lanes(self.address, self.touched, shape)
        return np.unique(mine).size == mine.size

    def keep(self, shape: tuple[int, ...]) -> None:
        at = select_lanes(self.address, self.stored, shape)
        self.tensor.data[at] = select_lanes(self.value, self.stored, shape)
        assert self.tensor.written is not None
        self.tensor.written[at] = True


def either(a: Mask, b: Mask) -> Mask:
    return True if a is True or b is True else a | b


def select_lanes(values: Any, mask: Mask, shape: tuple[int, ...]) -> np.ndarray:
    """The values of the lanes in `mask`, flat."""
    return np.broadcast_to(values, shape)[np.broadcast_to(mask, shape)]


def flat_address(buffer: ir.Buffer, indices: Iterable[Any]) -> tuple[Any, Any]:
    """Per lane the place in the flat buffer, and whether the indices are in bounds (where they are
    not, the place is 0)."""
    at, valid = np.int64(origin(buffer)), np.True_
    for index, extent, stride in zip(indices, buffer.shape, buffer.strides, strict=True):
        i = index.astype(np.int64, copy=False)
        if i.size and not (i.min() >= 0 and i.max() < extent):
            valid = valid & (i >= 0) & (i < extent)
        at = at + i * np.int64(stride)
    return at if np.all(valid) else np.where(valid, at, 0), valid


class LaneNest:
    """A qualifying nest: `run()` does it, or says that it did nothing."""

    def __init__(
        self,
        scalar: Interpreter,
        lanes: list[ir.For],
        steps: list[ir.For],
        body: ir.Body,
        stores: Mapping[ir.Buffer, tuple[ir.Expr, ...]],
    ) -> None:
        self.scalar = scalar
        self.values = scalar.values
        self.memory = scalar.memory
        self.lanes, self.steps, self.stmts, self.stores = lanes, steps, body, stores
        self.extents = [scalar.expr(f.extent) for f in lanes + steps]
        self.body: Run | None = None  # compiled when first run
        self.where: dict[ir.Buffer, list[Eval]] = {}
        self.cells: dict[ir.Buffer, Cell] = {}
        self.is_hopeless = False  # it failed before: do not try again

    def run(self) -> bool:
        if self.is_hopeless:
            return False
        try:
            extents = [int(extent()) for extent in self.extents]
        except InterpreterError:
            return False
        if min(extents) <= 0:
            return True
        shape = tuple(extents[: len(self.lanes)])
        count = math.prod(shape)
        if count > MOST or (self.scalar.lanes is None and count < FEW):
            return False
        outside = dict(self.values)
        try:
            self.attempt(shape, extents[len(self.lanes) :])
        except OutOfOrder:
            self.is_hopeless = True
        finally:
            self.values.clear()
            self.values.update(outside)
        return not self.is_hopeless

    def attempt(self, shape: tuple[int, ...], steps: list[int]) -> None:
        if self.body is None:
            self.body = self.sequence(self.stmts)
            self.where = {b: [self.expr(i) for i in at] for b, at in self.stores.items()}
        for axis, (loop, extent) in enumerate(zip(self.lanes, shape, strict=True)):
            line = np.arange(extent, dtype=ir.numpy_dtype(loop.var.dtype))
            self.values[loop.var] = line.reshape([-1 if d == axis else 1 for d in range(len(shape))])
        self.cells = {}  # the indices of stores read no stored buffer
        self.cells = {
            buffer: Cell(self.memory, buffer, [index(True) for index in indices])
            for buffer, indices in self.where.items()
        }
        ranges = [
            np.arange(extent, dtype=ir.numpy_dtype(loop.var.dtype))
            for loop, extent in zip(self.steps, steps, strict=True)
        ]
        for point in product(*ranges):
            self.values.update(zip((loop.var for loop in self.steps), point))
            self.body(True)
        cells = self.cells.values()
        if not all(cell.is_private(shape) for cell in cells):
            raise OutOfOrder
        for cell in cells:
            cell.keep(shape)

    # --- expressions ---

    def expr(self, e: ir.Expr) -> Eval:
        return EXPRESSIONS[type(e)](self, e)

    def var(self, e: ir.Var) -> Eval:
        values = self.values
        return lambda mask: lookup(values, e)

    def const(self, e: ir.Const) -> Eval:
        value = ir.numpy_dtype(e.dtype).type(e.value)
        return lambda mask: value

    def unary(self, e: ir.Unary) -> Eval:
        f, a = unary_function(e.op), self.expr(e.a)
        return lambda mask: f(a(mask))

    def binary(self, e: ir.Binary) -> Eval:
        a, b = self.expr(e.a), self.expr(e.b)
        if e.op in ("and", "or"):
            return self.logical(e.op, a, b)
        f = binary_function(e.op, e.a.dtype)
        if e.op not in ("//", "%") or ir.is_float(e.a.dtype):
            return lambda mask: f(a(mask), b(mask))

        def divide(mask: Mask) -> Any:
            x, y = a(mask), b(mask)
            if not np.all(y):
                require(mask, y != 0)
                y = np.where(y == 0, y.dtype.type(1), y)
            return f(x, y)

        return divide

    def logical(self, op: str, a: Eval, b: Eval) -> Eval:
        def both(mask: Mask) -> Any:
            x = a(mask)
            undecided = narrow(mask, x)
            return x if undecided is False else x & b(undecided)

        def one(mask: Mask) -> Any:
            x = a(mask)
            undecided = narrow(mask, ~x)
            return x if undecided is False else x | b(undecided)

        return both if op == "and" else one

    def select(self, e: ir.Select) -> Eval:
        cond, a, b = self.expr(e.cond), self.expr(e.a), self.expr(e.b)

        def pick(mask: Mask) -> Any:
            c = cond(mask)
            yes, no = narrow(mask, c), narrow(mask, ~c)
            if yes is False:
                return b(no)
            return a(yes) if no is False else np.where(c, a(yes), b(no))

        return pick

    def cast(self, e: ir.Cast) -> Eval:
        return self.as_dtype(self.expr(e.a), e.a.dtype, e.dtype)

    def as_dtype(self, value: Eval, have: str, want: str) -> Eval:
        return value if have == want else lambda mask: cast(value(mask), want)

    def call(self, e: ir.Call) -> Eval:
        if (known := ir.INSTRUCTIONS.get(e.name)) is not None:
            return self.expr(known.expand(e.args))
        f, args = math_function(e.name, e.args[0].dtype), [self.expr(a) for a in e.args]
        return lambda mask: f(*[a(mask) for a in args])

    def load(self, e: ir.Load) -> Eval:
        buffer = e.buffer
        if buffer in self.stores:
            return lambda mask: self.cells[buffer].read(mask)
        memory, indices = self.memory, [self.expr(i) for i in e.indices]

        def read(mask: Mask) -> Any:
            tensor = lookup(memory, buffer)
            if not tensor.data.size:
                raise OutOfOrder
            at, valid = flat_address(buffer, [index(mask) for index in indices])
            require(mask, valid)
            if tensor.written is not None:
                require(mask, tensor.written[at])
            return tensor.data[at]

        return read

    # --- statements ---

    def stmt(self, s: ir.Stmt) -> Run:
        return STATEMENTS[type(s)](self, s)

    def sequence(self, body: ir.Body) -> Run:
        runs = [self.stmt(s) for s in body]

        def each(mask: Mask) -> None:
            for run in runs:
                run(mask)

        return each

    def block(self, s: ir.Block) -> Run:
        values = self.values
        predicate = [self.expr(condition) for condition in s.predicate]
        bindings = [
            (it.var, self.as_dtype(self.expr(e), e.dtype, it.var.dtype), self.expr(it.extent))
            for it, e in zip(s.iters, s.bindings, strict=True)
        ]
        reduced = [it.var for it in s.iters if it.kind == "reduce"]
        init, body = self.sequence(s.init), self.sequence(s.body)

        def run(mask: Mask) -> None:
            for holds in predicate:
                mask = narrow(mask, holds(mask))
                if mask is False:
                    return
            for var, binding, extent in bindings:
                values[var] = value = binding(mask)
                require(mask, (value >= 0) & (value < extent(mask)))
            first = mask
            for var in reduced:
                first = first is not False and narrow(first, values[var] == 0)
            if s.init and first is not False:
                init(first)
            body(mask)
            for var, _, _ in bindings:  # out of scope
                del values[var]

        return run

    def store(self, s: ir.Store) -> Run:
        return self.tuple_store(ir.TupleStore((s,)))

    def tuple_store(self, s: ir.TupleStore) -> Run:
        values = [
            (x.buffer, self.as_dtype(self.expr(x.value), x.value.dtype, x.buffer.dtype)) for x in s.stores
        ]

        def run(mask: Mask) -> None:
            ready = [(buffer, value(mask)) for buffer, value in values]
            for buffer, value in ready:
                self.cells[buffer].write(mask, value)

        return run

    def branch(self, s: ir.If) -> Run:
        cond, then, orelse = self.expr(s.cond), self.sequence(s.then), self.sequence(s.orelse)

        def run(mask: Mask) -> None:
            c = cond(mask)
            yes, no = narrow(mask, c), narrow(mask, ~c)
            if yes is not False:
                then(yes)
            if no is not False:
                orelse(no)

        return run

    def check(self, s: ir.Assert) -> Run:
        cond = self.expr(s.cond)
        return lambda mask: require(mask, cond(mask))


EXPRESSIONS: dict[type, Callable[[LaneNest, Any], Eval]] = {
    ir.Var: LaneNest.var,
    ir.Const: LaneNest.const,
    ir.Unary: LaneNest.unary,
    ir.Binary: LaneNest.binary,
    ir.Select: LaneNest.select,
    ir.Cast: LaneNest.cast,
    ir.Call: LaneNest.call,
    ir.Load: LaneNest.load,
}
STATEMENTS: dict[type, Callable[[LaneNest, Any], Run]] = {
    ir.Block: LaneNest.block,
    ir.Store: LaneNest.store,
    ir.TupleStore: LaneNest.tuple_store,
    ir.If: LaneNest.branch,
    ir.Assert: LaneNest.check,
}
