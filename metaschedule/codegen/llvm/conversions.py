"""Conversions between dtypes, and between what is in memory and what is in registers."""

from __future__ import annotations

from ...ir import integer_limits, is_float
from .checks import Checks
from .values import BYTES, Operand, constant, memory_type, register_type, vector_type


class Conversions(Checks):
    def cast(self, v: Operand, dtype: str) -> Operand:
        source = v.dtype
        target = register_type(dtype, v.lanes)
        if source == dtype:
            return v
        if is_float(source) and is_float(dtype):
            if v.type == target:
                return self.round_narrow(v._replace(dtype=dtype))
            op = "fpext" if dtype == "float64" else "fptrunc"
            if (source, dtype) == ("float64", "float16"):
                return self.round_narrow(self.round_to_odd(v))
            return self.round_narrow(self.operation(f"{op} {v.typed} to {target}", dtype, v))
        if is_float(source):
            if dtype == "bool":
                zero = constant(0.0, source, v.lanes)
                return self.operation(f"fcmp une {v.typed}, {zero.text}", "bool", v)
            return self.float_to_integer(v, dtype)
        if is_float(dtype):
            op = "uitofp" if source in ("uint8", "bool") else "sitofp"
            return self.round_narrow(self.operation(f"{op} {v.typed} to {target}", dtype, v))
        if dtype == "bool":
            zero = constant(0, source, v.lanes)
            return self.operation(f"icmp ne {v.typed}, {zero.text}", "bool", v)
        if BYTES[dtype] == BYTES[source] and source != "bool":
            return v._replace(dtype=dtype)
        if source == "bool" or BYTES[dtype] > BYTES[source]:
            op = "zext" if source in ("uint8", "bool") else "sext"
        else:
            op = "trunc"
        return self.operation(f"{op} {v.typed} to {target}", dtype, v)

    def round_narrow(self, v: Operand) -> Operand:
        """A narrow float, computed in float32, rounded to the precision of its dtype."""
        if v.dtype == "float16":
            half = self.f.emit(f"fptrunc {v.typed} to {vector_type('half', v.lanes)}")
            return self.operation(f"fpext {vector_type('half', v.lanes)} {half} to {v.type}", v.dtype, v)
        if v.dtype == "bfloat16":
            high = self.bfloat_bits(v)
            return self.operation(f"bitcast {vector_type('i32', v.lanes)} {high} to {v.type}", v.dtype, v)
        return v

    def bfloat_bits(self, v: Operand) -> str:
        """The bits of a float32 rounded to nearest even at bit 16, as an i32 with zeros below."""
        i32 = vector_type("i32", v.lanes)

        def splat(n: int) -> str:
            return constant(n, "int32", v.lanes).text

        bits = self.f.emit(f"bitcast {v.typed} to {i32}")
        top = self.f.emit(f"lshr {i32} {bits}, {splat(16)}")
        odd = self.f.emit(f"and {i32} {top}, {splat(1)}")
        bias = self.f.emit(f"add {i32} {odd}, {splat(0x7FFF)}")
        up = self.f.emit(f"add {i32} {bits}, {bias}")
        quiet = self.f.emit(f"or {i32} {bits}, {splat(0x400000)}")
        nan = self.f.emit(f"fcmp uno {v.typed}, {v.text}")
        cond = vector_type("i1", v.lanes)
        chosen = self.f.emit(f"select {cond} {nan}, {i32} {quiet}, {i32} {up}")
        return self.f.emit(f"and {i32} {chosen}, {splat(-65536)}")

    def round_to_odd(self, v: Operand) -> Operand:
        """A float64 on its way to float16: cut to 24 bits of which the last is 1 if any was lost, so
        that the next rounding is the only one."""
        single, i32 = vector_type("float", v.lanes), vector_type("i32", v.lanes)
        near = self.operation(f"fptrunc {v.typed} to {single}", "float32", v)
        back = self.operation(f"fpext {near.typed} to {v.type}", "float64", v)
        inexact = self.f.emit(f"fcmp one {v.typed}, {back.text}")
        sizes = [self.intrinsic("fabs", "float64", x) for x in (v, back)]
        above = self.f.emit(f"fcmp olt {sizes[0].typed}, {sizes[1].text}")
        bits = self.f.emit(f"bitcast {near.typed} to {i32}")
        down = self.f.emit(f"sext {vector_type('i1', v.lanes)} {above} to {i32}")
        cut = self.f.emit(f"add {i32} {bits}, {down}")
        odd = self.f.emit(f"or {i32} {cut}, {constant(1, 'int32', v.lanes).text}")
        mask = vector_type("i1", v.lanes)
        chosen = self.f.emit(f"select {mask} {inexact}, {i32} {odd}, {i32} {bits}")
        return self.operation(f"bitcast {i32} {chosen} to {single}", "float16", v)

    def float_to_integer(self, v: Operand, dtype: str) -> Operand:
        """Towards zero; NaN and what is out of range give the least integer, as x86, NumPy and torch on it
        do. The 8 and 16-bit types go through 32 bits and wrap."""
        through = "int64" if dtype == "int64" else "int32"
        least, _ = integer_limits(through)
        size = self.intrinsic("fabs", v.dtype, v)
        limit = constant(float(-least), v.dtype, v.lanes)
        inside = self.operation(f"fcmp olt {size.typed}, {limit.text}", "bool", v)
        number = self.operation(f"fptosi {v.typed} to {register_type(through, v.lanes)}", through, v)
        other = constant(least, through, v.lanes)
        chosen = self.operation(f"select {inside.typed}, {number.typed}, {other.typed}", through, v)
        return self.cast(chosen, dtype)

    def from_memory(self, raw: str, dtype: str, lanes: int) -> Operand:
        """What was loaded, as it is in registers."""
        memory, register = memory_type(dtype, lanes), register_type(dtype, lanes)
        if dtype == "bool":
            zero = "0" if lanes == 1 else "zeroinitializer"
            return Operand(self.f.emit(f"icmp ne {memory} {raw}, {zero}"), dtype, lanes)
        if dtype == "float16":
            return Operand(self.f.emit(f"fpext {memory} {raw} to {register}"), dtype, lanes)
        if dtype == "bfloat16":
            i32 = vector_type("i32", lanes)
            wide = self.f.emit(f"zext {memory} {raw} to {i32}")
            sixteen = constant(16, "int32", lanes).text
            high = self.f.emit(f"shl {i32} {wide}, {sixteen}")
            return Operand(self.f.emit(f"bitcast {i32} {high} to {register}"), dtype, lanes)
        return Operand(raw, dtype, lanes)

    def to_memory(self, v: Operand) -> str:
        """A value as it is stored: typed operand text."""
        memory = memory_type(v.dtype, v.lanes)
        if v.dtype == "bool":
            return f"{memory} {self.f.emit(f'zext {v.typed} to {memory}')}"
        if v.dtype == "float16":
            return f"{memory} {self.f.emit(f'fptrunc {v.typed} to {memory}')}"
        if v.dtype == "bfloat16":
            i32 = vector_type("i32", v.lanes)
            bits = self.f.emit(f"bitcast {v.typed} to {i32}")
            sixteen = constant(16, "int32", v.lanes).text
            high = self.f.emit(f"lshr {i32} {bits}, {sixteen}")
            return f"{memory} {self.f.emit(f'trunc {i32} {high} to {memory}')}"
        return v.typed
