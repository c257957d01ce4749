"""Statements to LLVM: loops of every kind, conditions, stores.

Unrolled loops are unrolled here, by binding their variable to a constant, so that conditions on it fold
and register tiles come out as straight-line code; vectorised loops bind theirs to the lane number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import ir
from ...arith import Domain, conjuncts
from ...errors import InternalError
from ...runtime import Failure
from ..lower.lanes import REDUCTIONS, vector_widths
from ..lower.model import VECTORS_AT_ONCE
from ..lower.scope import inside, is_harmless
from .affine import Affine
from .function import Function
from .memory import memory_suffix
from .tiles import Shape, TileEmitter
from .transpose import find_interleaving, find_transposition
from .values import BYTES, Operand, constant, intrinsic_suffix, memory_type

if TYPE_CHECKING:
    from .module import Module


class StatementEmitter(TileEmitter):
    """Writes statements into one function of a module."""

    def __init__(self, module: Module, function: Function, in_parallel: bool) -> None:
        super().__init__(function, module.target.vector_bytes, module.fma)
        self.hide_masks = module.target.has("avx512f")
        self.module = module
        self.in_parallel = in_parallel
        self.unproved = module.lowered.unproved
        self.declared = module.declared
        self.math_used = module.math_used
        self.externals = module.externals
        self.target = module.target
        self.instructions_used = module.instructions_used
        self.products = {}
        self.target_tiles = module.target.matrix_registers if module.has_tiles else 0
        self.shapes_last = in_parallel or not module.is_parallel

    def status(self, failure: Failure) -> int:
        return self.module.status(failure)

    def base(self, buffer: ir.Buffer) -> str:
        known = self.module.pointer_name(buffer)
        if known is not None:
            return known
        if buffer not in self.stack:
            count = max(1, buffer.room)
            self.stack[buffer] = self.f.alloca(f"[{count} x {memory_type(buffer.dtype)}]", 64)
        return self.stack[buffer]

    def palette(self, shapes: list[Shape]) -> str:
        return self.module.palette(shapes)

    def stmt(self, s: ir.Stmt) -> None:
        if isinstance(s, ir.For):
            self.loop(s)
        elif isinstance(s, ir.Store):
            self.store(s, None)
        elif isinstance(s, ir.TupleStore):
            ready = [(self.place(x), self.evaluate(x.value)) for x in s.stores]
            for x, (at, value) in zip(s.stores, ready, strict=True):
                self.store(x, value, at)
        elif isinstance(s, ir.If):
            self.condition(s)
        elif isinstance(s, ir.While):
            self.repeat(s)
        elif isinstance(s, ir.Assert):
            self.check(s)
        else:
            raise TypeError(f"{type(s).__name__} should have been lowered before")

    # --- loops ---

    def loop(self, s: ir.For) -> None:
        extent = s.fixed_extent
        if extent is not None and extent <= 0:
            return
        if self.nest is not None and s.kind == "vectorized":
            product = self.find_product(s)
            assert product is not None
            self.emit_product(product)
            return
        if self.may_be_nest(s) and (nest := self.find_nest(s)) is not None:
            self.emit_nest(s, nest)
            return
        if "." in s.kind:
            raise ValueError(
                f"the loop over {s.var.name} is bound to {s.kind}: a CPU has no such axis; "
                "build for a GPU or make it a serial or parallel loop"
            )
        if s.kind == "serial":
            self.serial(s)
            return
        if extent is None or (s.kind != "unrolled" and self.lanes > 1):
            raise InternalError(f"the loop over {s.var.name} cannot run {s.kind} here: lowering left it so")
        if s.kind == "unrolled":
            tile = find_transposition(self, s) or find_interleaving(self, s)
            if tile is not None:
                tile.emit()
            else:
                self.emit_unrolled(s, extent)
        elif s.kind == "vectorized":
            self.emit_vectorized(s, extent)
        elif self.in_parallel:
            raise InternalError(f"the loop over {s.var.name} is parallel within another one")
        else:
            self.module.parallel(self, s)

    def serial(self, s: ir.For) -> None:
        stop = self.cast(self.evaluate(s.extent), "int64")
        self.between(s, "0", stop.text, s.fixed_extent is not None)

    def between(self, s: ir.For, start: str, stop: str, certain: bool) -> None:
        """The iterations start..stop as a loop."""
        saved = self.domain
        with self.f.loop(start, stop, certain) as var, self.scope():
            self.env[s.var] = Affine(0, {var: 1})
            self.domain = inside(saved, s)
            self.body(s.body)
        self.leave(s, saved)

    def leave(self, s: ir.For, outside: Domain) -> None:
        """Forget the variable of a loop that is written."""
        del self.env[s.var]
        self.domain = outside

    def emit_unrolled(self, s: ir.For, extent: int) -> None:
        saved = self.domain
        self.domain = saved.with_loop(s.var, extent)
        for n in range(extent):
            self.env[s.var] = Affine(n)
            self.body(s.body)
        self.leave(s, saved)

    def emit_vectorized(self, s: ir.For, extent: int) -> None:
        """Pieces of a power of two of lanes; a long loop repeats its widest piece."""
        if self.lanes > 1:
            raise InternalError(f"the loop over {s.var.name} is vectorised within another one")
        most = max(VECTORS_AT_ONCE * self.vector_bytes // 4, instruction_lanes(s))
        saved = self.domain
        self.domain = saved.with_loop(s.var, extent)
        pieces = vector_widths(extent, most)
        full = sum(1 for _, lanes in pieces if lanes == most)
        if full > VECTORS_AT_ONCE:
            with self.f.loop("0", str(full), True) as var, self.scope():
                self.lanes = most
                self.env[s.var] = Affine(0, {var: most}, 1)
                self.body(s.body)
                self.lanes = 1
            pieces = pieces[full:]
        for first, lanes in pieces:
            self.lanes = lanes
            self.env[s.var] = Affine(first, {}, 1 if lanes > 1 else 0)
            self.body(s.body)
        self.lanes = 1
        self.leave(s, saved)

    def repeat(self, s: ir.While) -> None:
        head, inside, end = self.f.label("while"), self.f.label("do"), self.f.label("end")
        self.f.branch(head)
        self.f.begin(head)
        with self.scope():
            cond = self.evaluate(s.cond)
            self.f.branch_if(cond.text, inside, end)
            self.f.begin(inside)
            self.body(s.body)
            self.f.branch(head)
        self.f.begin(end)

    # --- conditions ---

    def condition(self, s: ir.If) -> None:
        if self.lanes > 1 and not s.orelse:  # a branch where lanes agree, masks for the rest
            tests = conjuncts(s.cond)
            shared = [c for c in tests if self.is_uniform(c) and is_harmless(c)]
            if shared and len(shared) < len(tests):
                rest = ir.all_of([c for c in tests if not any(c is x for x in shared)])
                s = ir.If(ir.all_of(shared), (ir.If(rest, s.then),))
        cond = self.evaluate(s.cond)
        if cond.truth is not None:
            self.body(s.then if cond.truth else s.orelse)
        elif cond.lanes > 1:
            with self.under_mask(self.mask_and(cond)):
                self.body(s.then)
            if s.orelse:
                with self.under_mask(self.mask_and(self.negate(cond))):
                    self.body(s.orelse)
        else:
            with self.f.when(cond.text), self.scope():
                self.body(s.then)
            if s.orelse:
                with self.f.when(self.negate(cond).text), self.scope():
                    self.body(s.orelse)

    def check(self, s: ir.Assert) -> None:
        cond = self.evaluate(s.cond)
        if cond.truth:
            return
        self.stop_if(self.negate(cond), Failure(s.message or f"assertion failed: {s.cond}"))

    # --- stores ---

    def store(self, s: ir.Store, value: Operand | None, at: Affine | None = None) -> None:
        at = at or self.place(s)
        if at.is_uniform and self.lanes > 1:
            term = ir.reduction_term(s, REDUCTIONS) if value is None else None
            if term is not None and self.mask is None:
                self.horizontal(s.buffer, at, *term)
                return
            if term is not None:  # where no lane is active there may be no such element
                with self.f.when(self.intrinsic_any(self.active())), self.scope():
                    self.horizontal(s.buffer, at, *term)
                return
            value = value or self.evaluate(s.value)
            if self.mask is not None:
                with self.f.when(self.intrinsic_any(self.mask)), self.scope():
                    self.scalar_store(s.buffer, at, value)
                return
            self.scalar_store(s.buffer, at, value)
            return
        value = value or self.evaluate(s.value)
        if at.is_uniform:
            self.scalar_store(s.buffer, at, value)
            return
        value = self.spread(value)
        memory, align = memory_type(s.buffer.dtype, self.lanes), BYTES[s.buffer.dtype]
        if at.lane == 1 and not at.vectors:
            raw = self.to_memory(value)
            if self.mask is not None and not self.has_all_lanes(s.buffer, s.indices):
                self.store_masked_lanes(s.buffer, at, raw, self.mask)
                return
            where = f"ptr {self.pointer(s.buffer, at)}, align {align}"
            if self.mask is not None:
                before = self.f.emit(f"load {memory}, {where}")
                raw = f"{memory} {self.f.emit(f'select {self.mask.typed}, {raw}, {memory} {before}')}"
            self.f.effect(f"store {raw}, {where}")
            return
        symbol = f"@llvm.masked.scatter.{memory_suffix(s.buffer.dtype, self.lanes)}.v{self.lanes}p0"
        pointers = f"<{self.lanes} x ptr>"
        self.declare(f"void {symbol}({memory}, {pointers}, i32 immarg, <{self.lanes} x i1>)")
        raw, where = self.to_memory(value), self.lane_pointers(s.buffer, at)
        self.f.effect(
            f"call void {symbol}({raw}, {pointers} {where.text}, i32 {align}, {self.active().typed})"
        )

    def scalar_store(self, buffer: ir.Buffer, at: Affine, value: Operand) -> None:
        if value.lanes > 1:  # the same in every lane
            value = Operand(self.f.emit(f"extractelement {value.typed}, i64 0"), value.dtype)
        raw = self.to_memory(value)
        self.f.effect(f"store {raw}, ptr {self.pointer(buffer, at)}, align {BYTES[buffer.dtype]}")

    def horizontal(self, buffer: ir.Buffer, at: Affine, op: str, term: ir.Expr) -> None:
        """`buffer[at] = buffer[at] op term` over all active lanes at once."""
        vector = self.spread(self.evaluate(term))
        dtype = vector.dtype
        if self.mask is not None:
            idle = constant(identity(op, dtype), dtype, self.lanes)
            vector = self.operation(f"select {self.mask.typed}, {vector.typed}, {idle.typed}", dtype, vector)
        total = Operand(self.reduce_lanes(op, vector), dtype)
        if op in ("+", "*") and ir.is_float(dtype):
            total = self.round_narrow(total)
        own = self.scalar_load(buffer, at)
        saved, self.lanes = self.lanes, 1
        name = {"+": "add", "*": "mul"}.get(op)
        if name is None:
            kind = "" if ir.is_float(dtype) else ("u" if dtype == "uint8" else "s")
            result = (
                self.float_extreme(op, own, total)
                if ir.is_float(dtype)
                else self.intrinsic(kind + op, dtype, own, total)
            )
        elif ir.is_float(dtype):
            result = self.round_narrow(
                self.operation(f"f{name} {self.contracting(dtype)}{own.typed}, {total.text}", dtype, own)
            )
        else:
            result = self.operation(f"{name} {own.typed}, {total.text}", dtype, own)
        self.scalar_store(buffer, at, result)
        self.lanes = saved

    def reduce_lanes(self, op: str, v: Operand) -> str:
        """All lanes combined. The order of a float sum changes: that is what vectorising one asks for."""
        scalar = Operand("", v.dtype).type
        suffix = intrinsic_suffix(v.dtype, v.lanes)
        if ir.is_float(v.dtype) and op in ("+", "*"):
            name = "fadd" if op == "+" else "fmul"
            start = constant(identity(op, v.dtype), v.dtype)
            self.declare(f"{scalar} @llvm.vector.reduce.{name}.{suffix}({scalar}, {v.type})")
            return self.f.emit(
                f"call reassoc {scalar} @llvm.vector.reduce.{name}.{suffix}({start.typed}, {v.typed})"
            )
        if ir.is_float(v.dtype):  # LLVM's own reduction that heeds NaN does so at every step
            name = f"@llvm.vector.reduce.f{op}.{suffix}"
            self.declare(f"{scalar} {name}({v.type})")
            best = Operand(self.f.emit(f"call nnan {scalar} {name}({v.typed})"), v.dtype)
            nan = self.intrinsic_any(self.operation(f"fcmp uno {v.typed}, {v.text}", "bool", v))
            other = constant(float("nan"), v.dtype)
            return self.f.emit(f"select i1 {nan}, {other.typed}, {best.typed}")
        if op in ("+", "*"):
            name = "add" if op == "+" else "mul"
        else:
            name = ("u" if v.dtype == "uint8" else "s") + op
        self.declare(f"{scalar} @llvm.vector.reduce.{name}.{suffix}({v.type})")
        return self.f.emit(f"call {scalar} @llvm.vector.reduce.{name}.{suffix}({v.typed})")


def identity(op: str, dtype: str) -> int | float:
    """The neutral element of a reduction operator."""
    if op == "+":
        return -0.0 if ir.is_float(dtype) else 0
    if op == "*":
        return 1.0 if ir.is_float(dtype) else 1
    return ir.highest(dtype) if op == "min" else ir.lowest(dtype)


def instruction_lanes(s: ir.For) -> int:
    """The most lanes that an instruction on vectors has in a loop: it is not cut into shorter ones."""
    calls = [e.name for e in ir.expressions(s.body) if isinstance(e, ir.Call)]
    known = [ir.INSTRUCTIONS[name] for name in calls if name in ir.INSTRUCTIONS]
    return max([each.lanes for each in known if not each.tiles], default=0)
