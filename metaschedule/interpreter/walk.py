"""The scalar walk: what every expression and statement means, one element at a time.

Each node is turned once into a closure that does what the node says; running the program is calling
them. Values are NumPy scalars of the node's dtype, so arithmetic rounds and wraps as NumPy's does.
Loops of every kind run one iteration after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from metaschedule import ir

from .errors import InterpreterError
from .lanes import find_nest
from .memory import (
    Memory,
    find,
    fresh,
    indices_at,
    not_writable,
    origin,
    out_of_bounds,
    uninitialised_error,
)
from .numeric import binary_function, cast, math_function, unary_function

Eval = Callable[[], Any]
Run = Callable[[], None]


class Interpreter:
    def __init__(self, memory: Memory, lanes: bool | None = None) -> None:
        self.memory = memory
        self.values: dict[ir.Var, Any] = {}  # of the loops and block iterators we are in
        self.lanes = lanes

    # --- expressions ---

    def expr(self, e: ir.Expr) -> Eval:
        return EXPRESSIONS[type(e)](self, e)

    def var(self, e: ir.Var) -> Eval:
        values = self.values

        def read() -> Any:
            try:
                return values[e]
            except KeyError:
                pass
            raise InterpreterError(f"variable {e.name} is used outside its scope", f"no {e.name} here")

        return read

    def const(self, e: ir.Const) -> Eval:
        value = ir.numpy_dtype(e.dtype).type(e.value)
        return lambda: value

    def unary(self, e: ir.Unary) -> Eval:
        f, a = unary_function(e.op), self.expr(e.a)
        return lambda: f(a())

    def binary(self, e: ir.Binary) -> Eval:
        a, b = self.expr(e.a), self.expr(e.b)
        if e.op == "and":
            return lambda: a() and b()
        if e.op == "or":
            return lambda: a() or b()
        f = binary_function(e.op, e.a.dtype)
        if e.op not in ("//", "%") or ir.is_float(e.a.dtype):
            return lambda: f(a(), b())

        def divide() -> Any:
            x, y = a(), b()
            if y == 0:
                raise InterpreterError(f"integer division by zero: {x} {e.op} {y} in {e}")
            return f(x, y)

        return divide

    def select(self, e: ir.Select) -> Eval:
        cond, a, b = self.expr(e.cond), self.expr(e.a), self.expr(e.b)
        return lambda: a() if cond() else b()

    def cast(self, e: ir.Cast) -> Eval:
        return self.as_dtype(self.expr(e.a), e.a.dtype, e.dtype)

    def as_dtype(self, value: Eval, have: str, want: str) -> Eval:
        return value if have == want else lambda: cast(value(), want)

    def call(self, e: ir.Call) -> Eval:
        if (known := ir.INSTRUCTIONS.get(e.name)) is not None:
            return self.expr(known.expand(e.args))
        f, args = math_function(e.name, e.args[0].dtype), [self.expr(a) for a in e.args]
        return lambda: f(*[a() for a in args])

    def load(self, e: ir.Load) -> Eval:
        memory, buffer = self.memory, e.buffer
        address = self.address("read of", buffer, e.indices)

        def read() -> Any:
            tensor = find(memory, buffer)
            at = address()
            if tensor.written is not None and not tensor.written[at]:
                raise uninitialised_error(buffer, indices_at(buffer, at))
            return tensor.data[at]

        return read

    def address(self, access: str, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> Callable[[], int]:
        """Where the element is in the flat buffer, once every index is seen to be in bounds."""
        if len(indices) == 1 and buffer.layout is None:  # the general case below, without its loop
            index, extent = self.expr(indices[0]), buffer.shape[0]

            def only() -> int:
                at = index().__index__()
                if not 0 <= at < extent:
                    raise out_of_bounds(access, buffer, [at])
                return at

            return only
        parts = list(zip(map(self.expr, indices), buffer.shape, buffer.strides, strict=True))
        first = origin(buffer)

        def flat() -> int:
            at = first
            for index, extent, stride in parts:
                i = index().__index__()  # a Python int
                if not 0 <= i < extent:
                    raise out_of_bounds(access, buffer, [index() for index, _, _ in parts])
                at += i * stride
            return at

        return flat

    # --- statements ---

    def stmt(self, s: ir.Stmt) -> Run:
        """What `s` does; errors on the way out learn that it was in `s`."""
        run = STATEMENTS[type(s)](self, s)

        def run_located() -> None:
            try:
                run()
            except InterpreterError as error:
                error.at(s)
                raise

        return run_located

    def body(self, body: ir.Body) -> Run:
        runs = [self.stmt(s) for s in body]
        if len(runs) == 1:
            return runs[0]

        def each() -> None:
            for run in runs:
                run()

        return each

    def loop(self, s: ir.For) -> Run:
        values, var, extent = self.values, s.var, self.expr(s.extent)
        nest = None if self.lanes is False else find_nest(s, self)
        body: Run | None = None  # compiled when first needed: not, where lanes do the work

        def run() -> None:
            nonlocal body
            if nest is not None and nest.run():
                return
            if body is None:
                body = self.body(s.body)
            for value in np.arange(extent(), dtype=ir.numpy_dtype(var.dtype)):
                values[var] = value
                try:
                    body()
                except InterpreterError as error:
                    error.inside_loop(var.name, int(value))
                    raise
            values.pop(var, None)  # out of scope

        return run

    def block(self, s: ir.Block) -> Run:
        values, memory = self.values, self.memory
        predicate = [(condition, self.expr(condition)) for condition in s.predicate]
        bindings = [
            (it, self.as_dtype(self.expr(e), e.dtype, it.var.dtype), self.expr(it.extent))
            for it, e in zip(s.iters, s.bindings, strict=True)
        ]
        reduced = [it.var for it in s.iters if it.kind == "reduce"]
        init = self.body(s.init) if s.init else None
        body = self.body(s.body)

        def bind() -> bool:
            """Whether this instance runs, and if so with which values of the iterators."""
            node: Any = s
            try:
                for node, holds in predicate:  # noqa: B007
                    if not holds():
                        return False
                for node, binding, extent in bindings:
                    values[node.var] = value = binding()
                    size = extent()
                    if not 0 <= value < size:
                        raise InterpreterError(
                            f"iterator {node.var.name} of block {s.name} is bound to {value}, "
                            f"outside its range of {size}",
                            label=f"{node.var.name} = {value}: out of range",
                        )
            except InterpreterError as error:
                error.at(node)
                raise
            return True

        def run() -> None:
            bound: list[Any] = []
            try:
                if not bind():
                    return
                bound += s.iters
                for buffer in s.allocs:
                    memory[buffer] = fresh(buffer)
                if init is not None and not any(values[v] for v in reduced):
                    init()
                body()
            except InterpreterError as error:
                error.inside_block(s.name, [(it.var.name, int(values[it.var])) for it in bound])
                raise
            for it in s.iters:  # out of scope
                del values[it.var]
            for buffer in s.allocs:
                del memory[buffer]

        return run

    def assign(self, s: ir.Store) -> tuple[Eval, Callable[[], int], Callable[[int, Any], None]]:
        """The three steps of a store: its value, its address, the writing."""
        memory, buffer = self.memory, s.buffer
        value = self.as_dtype(self.expr(s.value), s.value.dtype, buffer.dtype)

        def write(at: int, value: Any) -> None:
            tensor = find(memory, buffer)
            if tensor.written is None:
                raise not_writable(buffer, indices_at(buffer, at))
            tensor.data[at] = value
            tensor.written[at] = True

        return value, self.address("write of", buffer, s.indices), write

    def store(self, s: ir.Store) -> Run:
        value, address, write = self.assign(s)
        return lambda: write(address(), value())

    def tuple_store(self, s: ir.TupleStore) -> Run:
        steps = [self.assign(store) for store in s.stores]

        def run() -> None:
            ready = [(address(), value()) for value, address, _ in steps]
            for (at, x), (_, _, write) in zip(ready, steps):
                write(at, x)

        return run

    def branch(self, s: ir.If) -> Run:
        cond, then, orelse = self.expr(s.cond), self.body(s.then), self.body(s.orelse)
        return lambda: then() if cond() else orelse()

    def repeat(self, s: ir.While) -> Run:
        cond, body = self.expr(s.cond), self.body(s.body)

        def run() -> None:
            while cond():
                body()

        return run

    def check(self, s: ir.Assert) -> Run:
        cond = self.expr(s.cond)

        def run() -> None:
            if not cond():
                raise InterpreterError(s.message or f"assertion failed: {s.cond}", "does not hold")

        return run


EXPRESSIONS: dict[type, Callable[[Interpreter, Any], Eval]] = {
    ir.Var: Interpreter.var,
    ir.Const: Interpreter.const,
    ir.Unary: Interpreter.unary,
    ir.Binary: Interpreter.binary,
    ir.Select: Interpreter.select,
    ir.Cast: Interpreter.cast,
    ir.Call: Interpreter.call,
    ir.Load: Interpreter.load,
}
STATEMENTS: dict[type, Callable[[Interpreter, Any], Run]] = {
    ir.For: Interpreter.loop,
    ir.Block: Interpreter.block,
    ir.Store: Interpreter.store,
    ir.TupleStore: Interpreter.tuple_store,
    ir.If: Interpreter.branch,
    ir.While: Interpreter.repeat,
    ir.Assert: Interpreter.check,
}
