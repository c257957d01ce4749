"""Loads: where an element is, and how a vector of them is read (broadcast, contiguous, reversed, masked,
gathered)."""

from __future__ import annotations

from ... import ir
from ...arith import simplify
from .affine import Affine
from .arithmetic import Arithmetic
from .values import BYTES, Operand, constant, memory_type


class MemoryAccess(Arithmetic):
    def address(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> Affine:
        """The flat offset of an element, in elements."""
        if any(has_division(index) for index in indices):
            return self.affine(self.flat_index(buffer, indices))
        total = Affine(buffer.offset)
        for index, stride in zip(reversed(indices), reversed(buffer.strides), strict=True):
            total = total.plus(self.affine(ir.cast(index, "int64")), stride)
        return total

    def flat_index(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Expr:
        """The flat offset as one expression: `(q // 3) * 3 + q % 3` is `q`, and contiguous."""
        known = self.flat.get((buffer, id(indices)))
        if known is None:
            total: ir.Expr = ir.const(buffer.offset, "int64")
            for index, stride in zip(indices, buffer.strides, strict=True):
                total = total + ir.cast(index, "int64") * stride
            known = self.flat[buffer, id(indices)] = indices, simplify(total, self.domain)
        return known[1]

    def pointer(self, buffer: ir.Buffer, at: Affine) -> str:
        """The address of the uniform part of an offset (lane 0 of a contiguous access)."""
        element = memory_type(buffer.dtype)
        key = (buffer, frozenset(at.terms.items()))
        base = next((known[key] for known in reversed(self.known) if key in known), None)
        if base is None:
            base = self.base(buffer)
            if at.terms:
                offset = self.uniform_part(Affine(0, at.terms), "nsw ")
                base = self.f.emit(f"getelementptr {element}, ptr {base}, i64 {offset}")
            self.known[-1][key] = base
        if not at.const:
            return base
        return self.f.emit(f"getelementptr {element}, ptr {base}, i64 {at.const}")

    def lane_pointers(self, buffer: ir.Buffer, at: Affine) -> Operand:
        """A vector of addresses, one per lane."""
        base = self.pointer(buffer, Affine(at.const, at.terms))
        offsets = self.materialise(Affine(0, {}, at.lane, at.vectors))
        element = memory_type(buffer.dtype)
        text = self.f.emit(f"getelementptr {element}, ptr {base}, {offsets.typed}")
        return Operand(text, "int64", self.lanes)

    def place(self, access: ir.Load | ir.Store) -> Affine:
        """The flat offset of an element that is certainly one of the buffer's, or else the kernel stops."""
        self.check_access(access)
        return self.address(access.buffer, access.indices)

    def load(self, e: ir.Load) -> Operand:
        at, dtype = self.place(e), e.buffer.dtype
        if at.is_uniform:
            if self.mask is None or self.mask.holds_somewhere:
                return self.scalar_load(e.buffer, at)

            def read() -> Operand:
                with self.scope():
                    return self.scalar_load(e.buffer, at)

            some = self.intrinsic_any(self.mask)
            return self.f.choose(some, read, lambda: constant(0, dtype))
        element, align = memory_type(dtype, self.lanes), BYTES[dtype]
        if at.vectors or at.lane not in (1, -1) or (at.lane == -1 and self.mask is not None):
            return self.gather(e.buffer, at)
        if at.lane == -1:
            at = Affine(at.const - self.lanes + 1, at.terms, 1)
            forward = self.f.emit(f"load {element}, ptr {self.pointer(e.buffer, at)}, align {align}")
            order = ", ".join(f"i32 {n}" for n in reversed(range(self.lanes)))
            raw = self.f.emit(
                f"shufflevector {element} {forward}, {element} poison, <{self.lanes} x i32> <{order}>"
            )
        elif self.mask is not None and not self.has_all_lanes(e.buffer, e.indices):
            raw = self.load_masked_lanes(e.buffer, at, self.mask)
        else:
            raw = self.f.emit(f"load {element}, ptr {self.pointer(e.buffer, at)}, align {align}")
            if self.mask is not None:  # what idle lanes hold may never have been written: some value
                raw = self.f.emit(f"freeze {element} {raw}")
        return self.from_memory(raw, dtype, self.lanes)

    def has_all_lanes(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> bool:
        """Whether all lanes, active or not, are elements of a buffer that only this thread uses: they can be
        touched then, and accumulators that are touched by masked instructions stay in memory."""
        self.base(buffer)
        return buffer in self.stack and self.is_inside(buffer, indices)

    def is_inside(self, buffer: ir.Buffer, indices: tuple[ir.Expr, ...]) -> bool:
        """Whether all lanes, active or not, are elements of a buffer."""
        pairs = zip(indices, buffer.shape, strict=True)
        return all(self.domain.is_between(index, 0, extent - 1) for index, extent in pairs)

    def pieces(self, dtype: str) -> list[tuple[int, int]]:
        """(first lane, lanes) of the hardware vectors of a masked access. LLVM 22 gets some masks wrong when
        it has to split the access itself, and then touches memory that is masked off."""
        lanes = min(self.lanes, max(1, self.vector_bytes // BYTES[dtype]))
        return [(first, lanes) for first in range(0, self.lanes, lanes)]

    def part(self, typed: str, first: int, lanes: int) -> str:
        """Some lanes of a vector, as a typed operand."""
        if lanes == self.lanes:
            return typed
        kind, _, _ = typed.rpartition("> ")
        order = ", ".join(f"i32 {n}" for n in range(first, first + lanes))
        name = self.f.emit(f"shufflevector {typed}, {kind}> poison, <{lanes} x i32> <{order}>")
        return f"<{lanes} x {kind.split(' x ')[1]}> {name}"

    def load_masked_lanes(self, buffer: ir.Buffer, at: Affine, mask: Operand) -> str:
        """Contiguous elements of the active lanes, zeros in the others."""
        align, loaded, done = BYTES[buffer.dtype], "", 0
        for first, lanes in self.pieces(buffer.dtype):
            memory, bits = memory_type(buffer.dtype, lanes), f"<{lanes} x i1>"
            symbol = f"@llvm.masked.load.{memory_suffix(buffer.dtype, lanes)}.p0"
            self.declare(f"{memory} {symbol}(ptr, i32 immarg, {bits}, {memory})")
            pointer = self.pointer(buffer, Affine(at.const + first, at.terms, 1))
            active = self.part(mask.typed, first, lanes)
            new = self.f.emit(
                f"call {memory} {symbol}(ptr {pointer}, i32 {align}, {active}, {memory} zeroinitializer)"
            )
            if not loaded:
                loaded, done = new, lanes
                continue
            so_far = memory_type(buffer.dtype, done)
            widen = ", ".join(f"i32 {n}" if n < lanes else "i32 poison" for n in range(done))
            wide = self.f.emit(f"shufflevector {memory} {new}, {memory} poison, <{done} x i32> <{widen}>")
            both = ", ".join(f"i32 {n}" for n in range(done + lanes))
            loaded = self.f.emit(
                f"shufflevector {so_far} {loaded}, {so_far} {wide}, <{done + lanes} x i32> <{both}>"
            )
            done += lanes
        return loaded

    def store_masked_lanes(self, buffer: ir.Buffer, at: Affine, raw: str, mask: Operand) -> None:
        """The active lanes of `raw` (a typed operand) to contiguous elements."""
        memory, align = memory_type(buffer.dtype), BYTES[buffer.dtype]
        for first, lanes in self.pieces(buffer.dtype):
            known = mask.known[first : first + lanes] if isinstance(mask.known, tuple) else None
            if known is not None and sum(known) <= 1:
                for n in [first + n for n, active in enumerate(known) if active]:
                    element = self.f.emit(f"extractelement {raw}, i64 {n}")
                    pointer = self.pointer(buffer, Affine(at.const + n, at.terms))
                    self.f.effect(f"store {memory} {element}, ptr {pointer}, align {align}")
                continue
            symbol = f"@llvm.masked.store.{memory_suffix(buffer.dtype, lanes)}.p0"
            self.declare(
                f"void {symbol}({memory_type(buffer.dtype, lanes)}, ptr, i32 immarg, <{lanes} x i1>)"
            )
            pointer = self.pointer(buffer, Affine(at.const + first, at.terms, 1))
            part, active = self.part(raw, first, lanes), self.part(mask.typed, first, lanes)
            if self.hide_masks and mask.known is None and memory.startswith("i"):
                active = self.hide_mask(active, lanes)
            self.f.effect(f"call void {symbol}({part}, ptr {pointer}, i32 {align}, {active})")

    def hide_mask(self, mask: str, lanes: int) -> str:
        """A mask (a typed operand) of which LLVM cannot find out that one lane is active, say because a loop
        is unrolled. LLVM 22 makes such a masked store of an integer that was cut off (int32 to int16, float32
        to bfloat16) a store of the whole number with AVX-512, over the elements that follow."""
        bits = max(8, lanes)
        ones = self.f.emit(f'call i{bits} asm "", "=r,0"(i{bits} -1)')
        if bits > lanes:
            ones = self.f.emit(f"trunc i{bits} {ones} to i{lanes}")
        ones = self.f.emit(f"bitcast i{lanes} {ones} to <{lanes} x i1>")
        return f"<{lanes} x i1> {self.f.emit(f'and {mask}, {ones}')}"

    def scalar_load(self, buffer: ir.Buffer, at: Affine) -> Operand:
        element = memory_type(buffer.dtype)
        pointer = self.pointer(buffer, at)
        raw = self.f.emit(f"load {element}, ptr {pointer}, align {BYTES[buffer.dtype]}")
        return self.from_memory(raw, buffer.dtype, 1)

    def gather(self, buffer: ir.Buffer, at: Affine) -> Operand:
        element, align = memory_type(buffer.dtype, self.lanes), BYTES[buffer.dtype]
        symbol = f"@llvm.masked.gather.{memory_suffix(buffer.dtype, self.lanes)}.v{self.lanes}p0"
        pointers, mask = f"<{self.lanes} x ptr>", f"<{self.lanes} x i1>"
        self.declare(f"{element} {symbol}({pointers}, i32 immarg, {mask}, {element})")
        where = self.lane_pointers(buffer, at)
        raw = self.f.emit(
            f"call {element} {symbol}({pointers} {where.text}, i32 {align}, {self.active().typed}, "
            f"{element} zeroinitializer)"
        )
        return self.from_memory(raw, buffer.dtype, self.lanes)


def has_division(e: ir.Expr) -> bool:
    return any(isinstance(x, ir.Binary) and x.op in ("//", "%") for x in ir.subexpressions(e))


def memory_suffix(dtype: str, lanes: int) -> str:
    element = memory_type(dtype).replace("float", "f32").replace("double", "f64")
    element = element.replace("half", "f16")
    return f"v{lanes}{element}"
