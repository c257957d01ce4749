"""What a program for a GPU is made of once it is lowered: kernels that threads run, with barriers.

A loop bound to a GPU axis means what the serial loop means. Lowering turns the loops of one nest into one
*kernel*: all loops bound to `threadIdx.x`, wherever they stand, become the same threads, and everything
between them is run by all. What then keeps the serial meaning are barriers (`barriers.py`).

    for b in bind(4, "blockIdx.x"):                  thread (b, t) of 4 x 64:
        for t in bind(64, "threadIdx.x"): S[t] = A   S[t] = A
        for t in bind(64, "threadIdx.x"): B = S      barrier
                                                     B = S
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ... import ir
from ...errors import ScheduleError

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VTHREADS = ("vthread.x", "vthread.y", "vthread.z")
# shuffle_down(x, n, width): the x of the lane n further on in the same group of `width` lanes of a warp, or
# else the own x. It is all that a store stores, to a register, and all lanes come by together.
SHUFFLE = "shuffle_down"


class Barrier(ir.Stmt):
    """All threads of a block wait for each other, and then see what each has written, and what asynchronous
    copies have. With `under_way` only older ones: the copies since the last such barrier are a group, and so
    many of the last groups need not have arrived."""

    __slots__ = ("under_way",)

    def __init__(self, under_way: int = 0) -> None:
        self.under_way = under_way

    def __str__(self) -> str:
        return f"barrier(under_way={self.under_way})" if self.under_way else "barrier()"


def is_shuffle(s: ir.Stmt) -> bool:
    return isinstance(s, ir.Store) and isinstance(s.value, ir.Call) and s.value.name == SHUFFLE


class Axes:
    """The axes of a kernel, for all loops that are bound to them. An axis whose loop was fused, and is cut
    by divisions, has a variable for each digit: `t // 8` and `t % 8` are variables of their own.

    >>> axes = Axes({"threadIdx.x": 64}, {"threadIdx.x": [8]})
    >>> list(axes.extents.items()), str(axes.value("threadIdx.x"))
    ([('threadIdx.x', 8), ('threadIdx.x#1', 8)], 'threadIdx_x * 8 + threadIdx_x_1')
    """

    def __init__(self, extents: dict[str, int], cuts: dict[str, list[int]] | None = None) -> None:
        self.whole = extents
        self.extents: dict[str, int] = {}  # by digit
        self.vars: dict[str, ir.Var] = {}
        self.base: dict[str, str] = {}
        self.strides: dict[str, int] = {}
        for axis in [a for a in (*BLOCKS, *VTHREADS, *THREADS) if a in extents]:
            steps = [extents[axis], *sorted((cuts or {}).get(axis, ()), reverse=True), 1]
            for n, (size, step) in enumerate(zip(steps, steps[1:], strict=False)):
                key = f"{axis}#{n}" if n else axis
                self.extents[key], self.base[key], self.strides[key] = size // step, axis, step
                self.vars[key] = ir.Var(key.replace(".", "_").replace("#", "_"))

    def digits(self, axis: str) -> list[str]:
        return [key for key, base in self.base.items() if base == axis]

    def value(self, axis: str) -> ir.Expr:
        """What a loop bound to an axis counts."""
        total: ir.Expr | None = None
        for key in self.digits(axis):
            term = self.vars[key] * self.strides[key]
            total = term if total is None else total + term
        assert total is not None
        return total

    def sizes(self, axes: tuple[str, ...]) -> tuple[int, int, int]:
        x, y, z = (self.whole.get(axis, 1) for axis in axes)
        return x, y, z

    def among(self, axes: tuple[str, ...]) -> list[str]:
        """The digits of some axes that have more than one value here."""
        return [key for key, base in self.base.items() if base in axes and self.extents[key] > 1]

    def vars_of(self, axes: tuple[str, ...]) -> set[ir.Var]:
        return {self.vars[key] for key, base in self.base.items() if base in axes}

    def loops(self, body: ir.Body) -> ir.Body:
        """`body` inside a loop over each digit."""
        for key in reversed(self.extents):
            body = (ir.For(self.vars[key], ir.const(self.extents[key]), body, self.base[key]),)
        return body


@dataclass
class GpuKernel:
    """A kernel as it is lowered: `program` has the loops over its axes outermost, and no other bound loop."""

    name: str
    axes: Axes
    program: ir.Program
    local: tuple[ir.Buffer, ...] = ()
    shared: tuple[ir.Buffer, ...] = ()
    unproved: Any = None
    ahead: frozenset[ir.Buffer] = frozenset()  # shared memory that is filled an iteration ahead

    @property
    def body(self) -> ir.Body:
        """What a thread does."""
        body = self.program.body
        while len(body) == 1 and isinstance(s := body[0], ir.For) and s.kind in ir.GPU_AXES:
            body = s.body
        return body

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.axes.sizes(BLOCKS)

    @property
    def block(self) -> tuple[int, int, int]:
        return self.axes.sizes(THREADS)

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    @property
    def shared_bytes(self) -> int:
        return sum(buffer_bytes(b) for b in self.shared)

    def __str__(self) -> str:
        return str(self.program)


def buffer_bytes(b: ir.Buffer) -> int:
    return b.room * ir.numpy_dtype(b.dtype).itemsize


def refuse(message: str, program: ir.Program, marks: dict[Any, str], help: str = "") -> ScheduleError:
    """The error that says why a program cannot run on a GPU, underlined."""
    error = ScheduleError(message, marks, help)
    error.program = program
    return error
