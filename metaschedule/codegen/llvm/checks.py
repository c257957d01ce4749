"""Checks in machine code: of what could not be proved when a program was lowered (`lower.unproved`).

A check compares all active lanes and branches, hardly ever, to a call of `ms.fail`, which notes the number of
the check and the offending index, and to a return. So nothing is touched after a failure, and vectors stay
vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from ... import ir
from ...runtime import Failure
from ..lower.unproved import Unproved
from ..messages import out_of_range, zero_division
from .affine import Affine
from .emitter import Emitter
from .values import Operand, constant


class Checks(Emitter):
    unproved: Unproved

    def status(self, failure: Failure) -> int:
        """The status that reports a failed check."""
        raise NotImplementedError

    def check_access(self, access: ir.Load | ir.Store) -> None:
        """Stop if the index of an active lane is outside of the buffer."""
        for axis in self.unproved.axes(access):
            at, extent = self.affine(ir.cast(access.indices[axis], "int64")), access.buffer.shape[axis]
            key = ("checked", at.key, extent, 1 if at.is_uniform else self.lanes)
            if any(key in known for known in self.known):
                continue
            failure = Failure(out_of_range(access, axis), "index")
            if at.is_uniform or (self.mask is None and not at.vectors):
                self.check_span(at, extent, failure)
            else:
                self.check_lanes(self.materialise(at), extent, failure)
            self.known[-1][key] = True

    def check_span(self, at: Affine, extent: int, failure: Failure) -> None:
        """Of lanes that are a constant step apart, the first and the last are enough."""
        span = at.lane * (self.lanes - 1)
        low = Affine(at.const + min(span, 0), at.terms)
        room = extent - abs(span)  # places for the lowest lane
        if low.is_constant and 0 <= low.const < room:
            return
        lowest = self.uniform_part(low)
        outside = constant(True, "bool")
        if room > 0:
            outside = Operand(self.f.emit(f"icmp uge i64 {lowest}, {room}"), "bool")

        def offending() -> str:
            highest = self.f.emit(f"add i64 {lowest}, {abs(span)}")
            negative = self.f.emit(f"icmp slt i64 {lowest}, 0")
            return self.f.emit(f"select i1 {negative}, i64 {lowest}, i64 {highest}")

        self.stop_if(outside, failure, offending)

    def check_lanes(self, index: Operand, extent: int, failure: Failure) -> None:
        limit = constant(extent, "int64", self.lanes)
        outside = self.mask_and(self.operation(f"icmp uge {index.typed}, {limit.text}", "bool", index))

        def offending() -> str:
            bits = f"i{self.lanes}"
            self.declare(f"{bits} @llvm.cttz.{bits}({bits}, i1 immarg)")
            where = self.f.emit(f"bitcast {outside.typed} to {bits}")
            first = self.f.emit(f"call {bits} @llvm.cttz.{bits}({bits} {where}, i1 false)")
            return self.f.emit(f"extractelement {index.typed}, {bits} {first}")

        self.stop_if(outside, failure, offending)

    def check_divisor(self, e: ir.Binary, divisor: Operand) -> None:
        """Stop if an active lane divides by zero."""
        if divisor.integer or not self.unproved.divides(e):
            return
        zero = constant(0, divisor.dtype, divisor.lanes)
        failed = self.operation(f"icmp eq {divisor.typed}, {zero.text}", "bool", divisor)
        self.stop_if(failed, Failure(zero_division(e), "division"))

    def stop_if(self, failed: Operand, failure: Failure, value: Callable[[], str] = lambda: "0") -> None:
        """Return from this function if a condition holds in an active lane."""
        if self.mask is not None:
            failed = self.mask_and(failed)
        if failed.lanes > 1:
            failed = Operand(self.intrinsic_any(failed), "bool")
        stop, go = self.f.label("stop"), self.f.label("go")
        self.f.branch_if(failed.text, stop, go)
        self.f.begin(stop)
        told = f"ptr %runtime, ptr %status, i32 {self.status(failure)}, i64 {value()}"
        self.f.effect(f"call void @ms.fail({told})")
        self.f.effect("ret void")
        self.f.begin(go)
