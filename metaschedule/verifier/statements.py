"""Declarations, statements and blocks: the walk through a program."""

from __future__ import annotations

from typing import Any

from .. import ir
from ..errors import VerifyError
from ..ir.annotations import annotation_problem
from ..ir.buffer import SCOPES
from .expressions import Expressions


class Verifier(Expressions):
    # --- declarations ---

    def run(self) -> None:
        p = self.program
        for b in p.params:
            if b in self.seen:
                self.fail(f"{b.name} is a parameter twice", "the same buffer again")
            if b.data is not None:
                self.fail(f"parameter {b.name} has data", "holds values", "put tables in allocs", b)
            self.declare_buffer(b)
            if b.offset:
                self.fail(
                    f"parameter {b.name} has offset {b.offset}",
                    "begins at the address that is passed",
                    "pass the address of its first element",
                    b,
                )
        for b in p.outputs:
            if b.constant:
                self.fail(f"output {b.name} is constant", "only inputs can be", at=b)
            self.separate_elements(b)
        for b in p.allocs:
            self.declare_alloc(b)
        self.annotations(p.annotations)
        for s in p.body:
            if any(isinstance(part, ir.Assert) for part in ir.walk(s)):
                self.certain = False  # it may stop the program before what is next, or next time around
            self.body((s,))
        for b in p.outputs:
            if b not in self.written and b.size > 0:
                self.fail(f"output {b.name} is never written", "nothing stores to it", at=b)

    def declare_var(self, var: ir.Var, node: ir.For | ir.Iter) -> None:
        if var in self.seen:
            self.fail(f"variable {var.name} is declared twice", "again here", "make a new Var", node)
        if var.dtype != ir.INDEX:
            self.fail(f"variable {var.name} is {var.dtype}, not {ir.INDEX}", "declared here", at=node)
        self.seen.add(var)
        self.visible.add(var)

    def declare_buffer(self, b: ir.Buffer) -> None:
        if b in self.seen:
            self.fail(f"buffer {b.name} is declared twice", "the same buffer", at=b)
        if b.dtype not in ir.DTYPES:
            self.fail(f"buffer {b.name} has unknown dtype {b.dtype!r}", at=b)
        if b.scope not in SCOPES:
            known = ", ".join(SCOPES)
            self.fail(f"buffer {b.name} has unknown scope {b.scope!r}", help=f"one of {known}", at=b)
        self.seen.add(b)
        self.buffers.add(b)

    def declare_alloc(self, b: ir.Buffer) -> None:
        self.declare_buffer(b)
        if b.data is not None and b.data.dtype != ir.numpy_dtype(b.dtype):
            self.fail(f"table {b.name} is {b.dtype} and its data {b.data.dtype}", at=b)
        if b.constant and b.data is None:
            self.fail(f"buffer {b.name} is constant but no input", "only inputs can be", at=b)
        if (first := b.offset + ir.reach(b.shape, b.strides)[0]) < 0:
            self.fail(
                f"buffer {b.name} reaches {-first} element(s) before its memory",
                f"{b.layout}",
                f"an offset of {b.offset - first} is the least",
                b,
            )
        self.separate_elements(b)

    def separate_elements(self, b: ir.Buffer) -> None:
        """What is stored to one element must not change another."""
        if b.layout is not None and ir.may_overlap(b.shape, b.strides):
            message = f"elements of {b.name}, which is no input, share memory"
            self.fail(message, f"shape {b.shape}, {b.layout}", at=b)

    def annotations(self, annotations: ir.Annotations) -> None:
        for key, value in annotations.items():
            if not isinstance(key, str) or not is_plain(value):
                self.fail(
                    f"annotation {key!r} is not plain data: {type(value).__name__}",
                    help="use strings, numbers, bools, None, and tuples, lists and dicts of them",
                )
            elif why := annotation_problem(key, value):
                self.fail(f"annotation {key!r} {why}", help="other keys are free to hold what you like")

    # --- statements ---

    def body(self, body: ir.Body) -> None:
        for s in body:
            self.at = s
            self.stmt(s)

    def stmt(self, s: ir.Stmt) -> None:
        if isinstance(s, ir.For):
            self.loop(s)
        elif isinstance(s, ir.Block):
            self.block(s)
        elif isinstance(s, ir.Store):
            self.store(s)
        elif isinstance(s, ir.TupleStore):
            if len(s.stores) < 2:
                self.fail("a tuple store of fewer than two stores", help="use a plain Store")
            for one in s.stores:
                self.store(one)
        elif isinstance(s, ir.If):
            self.expr(s.cond, "the condition", "bool")
            with self.in_guard():
                self.body(s.then)
                self.body(s.orelse)
        elif isinstance(s, ir.While):
            self.expr(s.cond, "the condition", "bool")
            with self.in_guard():
                self.body(s.body)
        elif isinstance(s, ir.Assert):
            self.expr(s.cond, "the condition", "bool")
        else:
            self.fail(f"a {type(s).__name__} is not a statement")

    def store(self, s: ir.Store) -> None:
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
            self.fail(f"{b.name} holds {b.dtype} and the value is {s.value.dtype}", "", "cast the value")
        self.written.add(b)

    def extent(self, extent: ir.Expr, what: str) -> None:
        self.expr(extent, what, "integer")
        if (number := ir.as_int(extent)) is not None and number < 0:
            self.fail(f"{what} is negative: {number}")

    def loop(self, s: ir.For) -> None:
        if s.kind not in ir.LOOP_KINDS:
            self.fail(f"unknown loop kind {s.kind!r}", help=f"one of {', '.join(ir.LOOP_KINDS)}")
        self.extent(s.extent, "the extent of a loop")
        self.annotations(s.annotations)
        if s.kind in ir.GPU_AXES:
            self.axis(s)
        before = self.certain, self.domain
        self.declare_var(s.var, s)
        self.certain = self.certain and (s.fixed_extent or 0) >= 1
        if self.certain:
            self.domain = self.domain.with_loop(s.var, s.extent)
        self.body(s.body)
        self.certain, self.domain = before
        self.visible.discard(s.var)
        if s.kind in ir.GPU_AXES:
            self.bound.pop()

    def axis(self, s: ir.For) -> None:
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

    def block(self, s: ir.Block) -> None:
        if len(s.bindings) != len(s.iters):
            self.fail(f"block {s.name} has {len(s.iters)} iterator(s) and {len(s.bindings)} binding(s)")
        reduces = any(it.kind == "reduce" for it in s.iters)
        if s.init and not reduces:
            self.fail(f"block {s.name} has an init and no reduce iterator", "", "store before the block")
        outer = self.visible, self.hidden, self.certain, self.values, self.buffers
        self.bindings(s)
        self.visible = outer[0]
        with self.in_guard():
            for condition in s.predicate:
                self.at = condition
                self.expr(condition, "a predicate", "bool")
        self.at = s
        self.hidden = self.hidden | outer[0]
        self.visible = {it.var for it in s.iters}
        self.certain = self.certain and not s.predicate
        self.annotations(s.annotations)
        self.buffers = set(self.buffers)
        for b in s.allocs:
            self.declare_alloc(b)
        self.stack.append(s)
        for region in s.reads + s.writes:
            self.region(s, region)
        if s.init:
            runs = self.certain
            self.certain = runs and self.init_runs(s)
            self.body(s.init)
            self.certain = runs
        self.body(s.body)
        self.stack.pop()
        self.visible, self.hidden, self.certain, self.values, self.buffers = outer

    def bindings(self, s: ir.Block) -> None:
        outer, values = self.visible, dict(self.values)
        for it, binding in zip(s.iters, s.bindings, strict=True):
            self.at = it
            if it.kind not in ir.ITER_KINDS:
                self.fail(f"unknown iterator kind {it.kind!r}", help="one of spatial, reduce")
            self.visible = outer
            self.expr(binding, "a binding", "integer")
            self.visible = outer | {i.var for i in s.iters[: s.iters.index(it)]}
            with self.in_description():
                self.extent(it.extent, "the extent of an iterator")
            self.declare_var(it.var, it)
            limits, size = self.exact(binding) if self.certain else None, ir.as_int(it.extent)
            if s.predicate or limits is None or size is None:
                pass
            elif limits[0] < 0 or limits[1] >= size:
                self.fail(
                    f"{it.var.name} of block {s.name} is bound to {binding}, which goes from "
                    f"{limits[0]} to {limits[1]}, outside its extent {size}",
                    help="make the loops fit, or exclude the rest with T.where",
                )
            values[it.var] = ir.substitute(binding, self.values)
        self.values = values

    def region(self, s: ir.Block, r: ir.Region) -> None:
        if r.buffer not in self.buffers:
            self.fail(f"the signature of block {s.name} names {r.buffer.name}, not declared here")
        if len(r.ranges) != len(r.buffer.shape):
            self.fail(f"the signature of block {s.name} gives {r.buffer.name} {len(r.ranges)} ranges")
        with self.in_description():
            for start, extent in r.ranges:
                self.expr(start, "the start of a region", "integer")
                self.extent(extent, "the size of a region")

    def init_runs(self, s: ir.Block) -> bool:
        """Whether every combination of spatial values surely meets a first term: the reductions are
        bound to loops of their own."""
        reduced = [b for it, b in zip(s.iters, s.bindings, strict=True) if it.kind == "reduce"]
        others = [b for it, b in zip(s.iters, s.bindings, strict=True) if it.kind != "reduce"]
        used = {v for b in others for v in ir.free_vars(b)}
        return all(isinstance(b, ir.Var) and b not in used for b in reduced)


def is_plain(value: Any) -> bool:
    """Whether an annotation's value prints, hashes and parses."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)
