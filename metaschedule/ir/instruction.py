"""Instructions: functions of scalars that hardware applies to all lanes of its vectors at once.

In a program an instruction is a call in one lane, `C[j] = T.instruction("dot4", C[j], A[0], ..., B[j,
3])`, and a vectorised loop around it is the lanes. Its meaning is an expression, so an interpreter or a
code generator that has nothing better evaluates that; where lanes and operands are as the registers want
them, the code generator emits the instruction itself.

    vpdpbusd: 16 lanes; in each  c + a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3
    register of b, 64 bytes:     lane 0: b0 b1 b2 b3   lane 1: b0 b1 b2 b3   ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .expr import Call, Expr, Operand, as_expr, const
from .structural import same_expr
from .visit import map_operands


@dataclass(frozen=True, eq=False, slots=True)
class Register:
    """An operand: what one lane takes of it are arguments `first`, `first + 1`, ... of the call, and element
    `at[lane][n]` of the register is the n-th of these."""

    name: str
    dtype: str
    size: int  # elements
    rows: int  # that the elements are cut into, in order, if the register is a tile
    first: int
    at: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """Arguments in one lane."""
        return len(self.at[0])


@dataclass(frozen=True, eq=False, slots=True)
class HardwareInstruction:
    """`registers[0]` is the accumulator, if there is one, or else an operand like the others. `meaning` is
    over `arguments`, which are expressions that stand for those of a call."""

    name: str
    dtype: str  # of the result in one lane
    lanes: int
    registers: tuple[Register, ...]
    arguments: tuple[Expr, ...]
    meaning: Expr
    code: str  # the name of an LLVM intrinsic, or lines of LLVM that end in the result
    features: tuple[str, ...]  # that the target must have, by LLVM's names
    accumulates: bool  # whether it adds to its first argument
    tiles: bool = False  # its registers are tiles, which code names by number

    @property
    def columns(self) -> int:
        """Lanes in a row of the accumulator, if that is a tile."""
        return self.registers[0].size // self.registers[0].rows

    @property
    def products(self) -> int:
        """What all lanes take of the operand of which they take most: the products of a sum of products."""
        return self.lanes * max(r.count for r in self.registers)

    def expand(self, args: Sequence[Expr]) -> Expr:
        """What a call with these arguments computes, by ordinary operations."""
        values = dict(zip(self.arguments, args, strict=True))

        def put(e: Expr) -> Expr:
            found = values.get(e)
            return map_operands(e, put) if found is None else found

        return put(self.meaning)

    def is_same(self, other: HardwareInstruction) -> bool:
        """Whether another instruction of this name is this one."""
        mine, theirs = (
            (i.dtype, i.lanes, i.code, i.features, i.tiles, len(i.arguments)) for i in (self, other)
        )
        return mine == theirs and same_expr(self.meaning, other.expand(self.arguments))


INSTRUCTIONS: dict[str, HardwareInstruction] = {}


def find_instruction(name: str) -> HardwareInstruction:
    found = INSTRUCTIONS.get(name)
    if found is None:
        known = ", ".join(INSTRUCTIONS) or "none"
        raise ValueError(f"unknown instruction {name!r}: register_intrinsic makes one, known are {known}")
    return found


def instruct(name: str, *args: Operand) -> Expr:
    """An instruction on one lane, typed.

    >>> instruct("x86.nothing", 1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: unknown instruction 'x86.nothing': register_intrinsic makes one, known are ...
    """
    known = find_instruction(name)
    wanted = [e.dtype for e in known.arguments]
    if len(args) == len(wanted):  # a bare number is of the dtype that is wanted there
        args = tuple([a if isinstance(a, Expr) else const(a, t) for a, t in zip(args, wanted, strict=True)])
    given = tuple([as_expr(arg) for arg in args])
    if [e.dtype for e in given] != wanted:
        takes = ", ".join(f"{r.count} x {r.dtype} ({r.name})" for r in known.registers)
        got = ", ".join(e.dtype for e in given)
        raise TypeError(f"instruction {name} takes {takes} in a lane, got {got}")
    return Call(name, given, known.dtype)
