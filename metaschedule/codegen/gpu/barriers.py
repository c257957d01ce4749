"""Barriers where a thread touches what another one wrote, or writes what another one read.

Accesses since the last barrier are *pending*. A statement that conflicts with one of them gets a barrier
before it; a loop whose beginning conflicts with its end gets one at its end. All threads must reach it, so
that what runs under a condition that depends on the thread is one statement here; a conflict inside of it
is an error, as is one within a single statement, or between blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ... import ir
from ...errors import ScheduleError
from ..lower.accesses import Use, accesses
from .conflicts import may_meet
from .model import BLOCKS, THREADS, VTHREADS, Axes, Barrier, is_shuffle, refuse


class Placed(NamedTuple):
    body: ir.Body
    head: list[Use]  # accesses before the first barrier
    pending: list[Use]  # accesses behind the last one
    synced: bool  # whether there is a barrier


class Barriers:
    def __init__(self, program: ir.Program, axes: Axes, source: ir.Program) -> None:
        self.axes, self.source = axes, source
        self.apart = axes.among(THREADS)
        self.inputs = set(program.inputs)
        self.threads = axes.vars_of((*THREADS, *VTHREADS))
        self.memo: dict[tuple[int, int, int], bool] = {}
        self.below: dict[ir.Stmt, list[Use]] = {}
        for uses in accesses(program).values():
            for use in uses:
                if use.buffer.scope == "local" or use.buffer in self.inputs or use.buffer.data is not None:
                    continue
                for s in use.path:
                    self.below.setdefault(s, []).append(use)

    def meet(self, a: Use, b: Use, common: tuple[ir.Var, ...]) -> bool:
        if a.buffer is not b.buffer or not (a.is_store or b.is_store):
            return False
        key = (id(a), id(b), len(common))
        if key not in self.memo:
            self.memo[key] = may_meet(a, b, self.axes, self.apart, common)
        return self.memo[key]

    def conflict(self, first: list[Use], then: list[Use], common: tuple[ir.Var, ...]) -> bool:
        return any(self.meet(a, b, common) for a in first for b in then)

    def place(self, body: ir.Body, common: tuple[ir.Var, ...]) -> Placed:
        made: list[ir.Stmt] = []
        head: list[Use] = []
        pending: list[Use] = []
        synced = False
        for s in body:
            if isinstance(s, Barrier):
                made.append(s)
                pending, synced = [], True
                continue
            uses = self.below.get(s, [])
            inner = self.inside(s, uses, common)
            if self.conflict(pending, uses, common):
                made.append(Barrier())
                pending, synced = [], True
            made.append(inner.body[0])
            if not synced:
                head = head + (inner.head if inner.synced else uses)
            pending = inner.pending if inner.synced else pending + uses
            synced = synced or inner.synced
        return Placed(tuple(made), head, pending, synced)

    def inside(self, s: ir.Stmt, uses: list[Use], common: tuple[ir.Var, ...]) -> Placed:
        """A statement with the barriers that it needs inside."""
        plain = Placed((s,), uses, uses, False)
        if not isinstance(s, (ir.For, ir.If, ir.While)):
            if any(self.meet(a, b, common) for n, a in enumerate(uses) for b in uses[: n + 1]):
                raise self.race(s, uses)
            return plain
        if isinstance(s, ir.For) and self.is_uniform(s.extent):
            inner = self.place(s.body, (*common, s.var))
            tail = inner.pending
            if s.fixed_extent == 1 or not self.conflict(tail, inner.head if inner.synced else uses, common):
                if not inner.synced:
                    return plain
                return Placed((ir.replace_fields(s, body=inner.body),), inner.head, tail, True)
            body = (*inner.body, Barrier())
            return Placed((ir.replace_fields(s, body=body),), inner.head, [], True)
        if isinstance(s, ir.If) and self.is_uniform(s.cond):
            then, orelse = self.place(s.then, common), self.place(s.orelse, common)
            if not then.synced and not orelse.synced:
                return plain
            new = ir.If(s.cond, then.body, orelse.body)
            return Placed((new,), uses, uses, True)
        for part in ir.bodies(s):
            together = self.place(part, common).synced or any(map(is_shuffle, ir.walk(part)))
            if together or self.conflict(uses, uses, common):
                raise refuse(
                    "threads would have to wait for each other where not all of them come by",
                    self.source,
                    self.marks(s),
                    "a condition or an extent that depends on the thread is around accesses of several "
                    "threads to one element",
                )
        return plain

    def is_uniform(self, e: ir.Expr) -> bool:
        """Whether an expression has one value for all threads of a block."""
        return all(
            x not in self.threads and not (isinstance(x, ir.Load) and x.buffer not in self.inputs)
            for x in ir.subexpressions(e)
        )

    def race(self, s: ir.Stmt, uses: list[Use]) -> ScheduleError:
        names = ", ".join(dict.fromkeys(u.buffer.name for u in uses if u.is_store))
        return refuse(
            f"several threads may touch one element of {names} in one statement, in any order",
            self.source,
            self.marks(s),
            "bind a loop whose iterations are independent",
        )

    def marks(self, s: ir.Stmt) -> dict[ir.Stmt, str]:
        """The blocks of the program that the trouble comes from."""
        stored = {x.buffer.name for x in ir.walk(s) if isinstance(x, ir.Store)}
        return {
            block: "here"
            for block in ir.blocks(self.source)
            if any(w.buffer.name in stored for w in block.writes)
        }


def place_barriers(program: ir.Program, axes: Axes, source: ir.Program) -> ir.Program:
    """The program of a kernel with barriers; an error where none can help."""
    barriers = Barriers(program, axes, source)
    check_blocks(program, axes, barriers)

    def inner(body: ir.Body) -> ir.Body:
        if len(body) == 1 and isinstance(s := body[0], ir.For) and s.kind in ir.GPU_AXES:
            return (ir.replace_fields(s, body=inner(s.body)),)
        return barriers.place(body, ()).body

    return ir.replace_fields(program, body=inner(program.body))


def check_blocks(program: ir.Program, axes: Axes, barriers: Barriers) -> None:
    """Nothing orders blocks: an element that one writes, no other may touch."""
    apart = axes.among(BLOCKS)
    if not apart:
        return
    for a, b in pairs(program):
        if may_meet(a, b, axes, apart):
            raise refuse(
                f"several blocks may touch one element of {a.buffer.name}, in any order",
                barriers.source,
                barriers.marks(a.path[-1]),
                "bind a loop whose iterations are independent to blockIdx, or make two kernels",
            )


def pairs(program: ir.Program) -> Iterator[tuple[Use, Use]]:
    """Accesses to memory of the device of which one writes, each pair once."""
    for buffer, uses in accesses(program).items():
        if buffer.scope == "global" and any(u.is_store for u in uses):
            for n, a in enumerate(uses):
                for b in uses[: n + 1]:
                    yield a, b
