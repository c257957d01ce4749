"""LLVM's spelling of types, constants and SSA values.

A value in a register may have another type than in memory: a bool is an `i1` kept as a byte, and the
narrow floats are computed in float32 and rounded to their own precision after every operation (which
for + - * / and sqrt gives the correctly rounded narrow result), kept as 16 bits.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...ir import is_float

_REGISTER = {
    "bool": "i1", "int8": "i8", "uint8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
}  # fmt: skip
_MEMORY = _REGISTER | {"bool": "i8", "float16": "half", "bfloat16": "i16"}
BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip


class Operand(NamedTuple):
    """An operand: its text (an SSA name or a literal), dtype and number of lanes (1: a scalar). Of a literal,
    `known` is its value, the same in all lanes, or one of each lane."""

    text: str
    dtype: str
    lanes: int = 1
    known: bool | int | float | tuple[int, ...] | tuple[bool, ...] | None = None

    @property
    def truth(self) -> bool | None:
        """The value of a literal scalar bool."""
        return self.known if isinstance(self.known, bool) and self.lanes == 1 else None

    @property
    def holds_somewhere(self) -> bool:
        """Whether a bool is a literal that holds in some lane."""
        return any(self.known) if isinstance(self.known, tuple) else self.known is True

    @property
    def integer(self) -> int | None:
        """The value of a literal scalar integer."""
        return self.known if type(self.known) is int and self.lanes == 1 else None

    @property
    def type(self) -> str:
        return register_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"


def vector_type(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def register_type(dtype: str, lanes: int = 1) -> str:
    return vector_type(_REGISTER[dtype], lanes)


def memory_type(dtype: str, lanes: int = 1) -> str:
    return vector_type(_MEMORY[dtype], lanes)


def intrinsic_suffix(dtype: str, lanes: int = 1) -> str:
    """The type mangled as in the name of an overloaded intrinsic: `v8f32`."""
    element = _REGISTER[dtype].replace("float", "f32").replace("double", "f64")
    return element if lanes == 1 else f"v{lanes}{element}"


def literal(value: bool | int | float, dtype: str) -> str:
    """A scalar constant. Floats are written in hexadecimal, which is exact."""
    if dtype == "bool":
        return "true" if value else "false"
    if is_float(dtype):
        return "0x" + struct.pack(">d", value).hex().upper()
    return str(int(value))


def constant(value: bool | int | float, dtype: str, lanes: int = 1) -> Operand:
    text = literal(value, dtype)
    if lanes > 1:
        text = f"splat ({register_type(dtype)} {text})"
    known = bool(value) if dtype == "bool" else float(value) if is_float(dtype) else int(value)
    return Operand(text, dtype, lanes, known)


def vector_literal(values: list[int] | list[bool], dtype: str) -> Operand:
    element = register_type(dtype)
    parts = ", ".join(f"{element} {literal(v, dtype)}" for v in values)
    return Operand(f"<{parts}>", dtype, len(values), tuple(values))
