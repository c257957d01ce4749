"""Where the buffers of a kernel live: registers of a thread, shared memory of a block, memory of the device.

A buffer that a schedule put in a scope is cut down to what is alive at once (`lower/compact.py`): the box
that one block touches, or one thread. Blocks and threads run together, so that this is right only where boxes
of different ones do not overlap, or each writes all that it reads before it reads it. A buffer without a
scope that only one kernel uses gets registers or shared memory where that is so and it is small; where
blocks would overwrite each other's values, each has its own copy in the memory of the device.
"""

from __future__ import annotations

from ... import ir
from ..lower.accesses import Use, accesses, common_loops
from ..lower.compact import (
    _Rebase,
    alignments,
    are_boxes_disjoint,
    box_within,
    is_separate,
    writes_first,
)
from .conflicts import may_meet
from .model import BLOCKS, Axes, buffer_bytes, refuse

REGISTER_BYTES = 512  # of a buffer without a scope that may be registers
SHARED_BYTES = 16 << 10  # of a buffer without a scope that may be shared memory
CONCURRENT = tuple(ir.GPU_AXES)
Box = tuple[ir.Region, int]


def private_box(
    buffer: ir.Buffer, uses: list[Use], around: tuple[ir.For, ...], concurrent: int
) -> Box | None:
    """The smallest box of one iteration of some loops that no other iteration of the first `concurrent`
    of them, which run together, needs; None if there is none."""
    together = [loop for loop in around[:concurrent] if loop.fixed_extent != 1]
    for depth in range(len(around), concurrent - 1, -1):
        box = box_within(buffer, uses, depth) or whole_region(buffer)
        if not is_separate(uses, box, around[:depth]):
            continue
        if not together or are_boxes_disjoint(box, tuple(together)):
            return box, depth
        if any(writes_first(uses, n) for n in range(max(1, concurrent), len(around) + 1)):
            return box, depth
    return None


def whole_region(buffer: ir.Buffer) -> ir.Region:
    return ir.Region(buffer, tuple((ir.const(0), ir.const(n)) for n in buffer.shape))


def cut_buffer(buffer: ir.Buffer, box: ir.Region, notes: list[tuple[int, int, int]], scope: str) -> ir.Buffer:
    shape = tuple(ir.as_int(extent) or 0 for _, extent in box.ranges)
    layout = ir.Layout(ir.aligned_strides(shape, notes))
    return ir.replace_fields(buffer, shape=shape, layout=layout, scope=scope)


def blocks_around(uses: list[Use]) -> tuple[tuple[ir.For, ...], int]:
    """The loops around all uses that one block runs one after the other, and how many of them are blocks."""
    around = common_loops(uses)
    limit = next(
        (
            n
            for n, f in enumerate(around)
            if f.fixed_extent != 1
            and (f.kind == "vectorized" or (f.kind in CONCURRENT and f.kind not in BLOCKS))
        ),
        len(around),
    )
    return around[:limit], sum(1 for f in around[:limit] if f.kind in BLOCKS)


def place_shared(program: ir.Program, own: set[ir.Buffer], source: ir.Program) -> ir.Program:
    """The program of one kernel, before threads are merged, with its shared memory cut down. `own` are the
    buffers that no other kernel uses."""
    uses = accesses(program)
    plans: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]] = {}
    for number, buffer in enumerate(program.allocs):
        if buffer.data is not None or buffer not in uses or buffer.scope not in ("shared", "warp"):
            continue
        around, concurrent = blocks_around(uses[buffer])
        blocks = {f.kind for f in bound_blocks(program)}
        found = private_box(buffer, uses[buffer], around, leading_blocks(around, concurrent))
        if found is None and blocks <= {f.kind for f in around}:
            found = whole_region(buffer), 0  # each block has its own, as the scope says
        if buffer not in own or found is None:
            raise refuse(
                f"{buffer.name} is in shared memory, but blocks or kernels would pass values through it",
                source,
                {},
                "compute it inside of the loops over blockIdx, or give it the scope global",
            )
        box = found[0]
        new = cut_buffer(buffer, box, alignments(program, number), "shared")
        plans[buffer] = new, tuple(start for start, _ in box.ranges)
    return rebase(program, plans)


def bound_blocks(program: ir.Program) -> list[ir.For]:
    """The loops over more than one block."""
    return [s for s in ir.walk(program) if isinstance(s, ir.For) and s.kind in BLOCKS and s.fixed_extent != 1]


def leading_blocks(around: tuple[ir.For, ...], concurrent: int) -> int:
    """How many loops from the outermost on there are up to the last one over blocks."""
    last = [n for n, f in enumerate(around) if f.kind in BLOCKS]
    return last[-1] + 1 if concurrent and last else 0


def place_local(
    program: ir.Program, axes: Axes, own: set[ir.Buffer], source: ir.Program, instances: set[ir.Buffer]
) -> ir.Program:
    """The program of one kernel, after threads are merged, with what is private to threads in registers.
    `instances` are buffers of which every instance of a block has one."""
    uses = accesses(program)
    plans: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]] = {}
    count = len(axes.extents)
    for number, buffer in enumerate(program.allocs):
        if buffer.data is not None or buffer not in uses or buffer.scope not in ("local", "global"):
            continue
        around = common_loops(uses[buffer])
        stop = next((n for n, f in enumerate(around) if f.kind == "vectorized"), len(around))
        around = around[:stop]
        found = private_box(buffer, uses[buffer], around, count) if buffer in own else None
        if found is None and buffer in instances:
            found = whole_region(buffer), count
        if found is None and buffer.scope == "local" and buffer in own:
            found = box_of_thread(buffer, uses[buffer], axes)
        if found is None:
            if buffer.scope == "local":
                raise refuse(
                    f"{buffer.name} is in local memory, but threads would pass values through it",
                    source,
                    {},
                    "let each thread read what it wrote itself, or give it the scope shared",
                )
            continue
        new = cut_buffer(buffer, found[0], alignments(program, number), "local")
        if buffer.scope == "global" and buffer_bytes(new) > REGISTER_BYTES:
            continue
        plans[buffer] = new, tuple(start for start, _ in found[0].ranges)
    return rebase(program, plans)


def box_of_thread(buffer: ir.Buffer, uses: list[Use], axes: Axes) -> Box | None:
    """What a thread touches of a buffer, if no other one touches what it writes. Boxes may overlap where
    conditions keep threads apart."""
    apart = axes.among(tuple(axes.whole))
    if any(may_meet(a, b, axes, apart) for n, a in enumerate(uses) for b in uses[: n + 1]):
        return None
    count = len(axes.extents)
    return box_within(buffer, uses, count) or whole_region(buffer), count


def promote_shared(program: ir.Program, own: set[ir.Buffer]) -> ir.Program:
    """Buffers without a scope that blocks have for themselves, before threads are merged: in shared memory if
    they are small, and else a copy for each block where blocks would overwrite each other's values."""
    uses = accesses(program)
    plans: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]] = {}
    copies: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.For, ...]]] = {}
    for number, buffer in enumerate(program.allocs):
        if buffer.data is not None or buffer not in uses or buffer.scope != "global" or buffer not in own:
            continue
        around, concurrent = blocks_around(uses[buffer])
        blocks = leading_blocks(around, concurrent)
        if not blocks or all(f.fixed_extent == 1 for f in around[:blocks]):
            continue
        found = private_box(buffer, uses[buffer], around, blocks)
        if found is None:
            continue
        new = cut_buffer(buffer, found[0], alignments(program, number), "shared")
        starts = tuple(start for start, _ in found[0].ranges)
        if buffer_bytes(new) <= SHARED_BYTES:
            plans[buffer] = new, starts
        elif not are_boxes_disjoint(found[0], tuple(f for f in around[:blocks] if f.fixed_extent != 1)):
            loops = tuple(f for f in around[:blocks] if f.kind in BLOCKS)
            shape = (*[f.fixed_extent or 1 for f in loops], *new.shape)
            plans[buffer] = new, starts
            copies[new] = ir.Buffer(buffer.name, shape, buffer.dtype), loops
    program = rebase(program, plans)
    if not copies:
        return program
    allocs = tuple(copies[b][0] if b in copies else b for b in program.allocs)
    return ir.replace_fields(program, body=OwnCopy(copies).body(program.body), allocs=allocs)


class OwnCopy(ir.Rewriter):
    """Buffers of which every block has a copy."""

    def __init__(self, copies: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.For, ...]]]) -> None:
        self.copies = copies

    def expr(self, e: ir.Expr) -> ir.Expr:
        e = ir.map_operands(e, self.expr)
        if isinstance(e, ir.Load) and e.buffer in self.copies:
            new, loops = self.copies[e.buffer]
            return ir.Load(new, (*[f.var for f in loops], *e.indices))
        return e

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        if isinstance(s, ir.Store) and s.buffer in self.copies:
            new, loops = self.copies[s.buffer]
            return ir.Store(new, (*[f.var for f in loops], *self.exprs(s.indices)), self.expr(s.value))
        return super().stmt(s)


def rebase(program: ir.Program, plans: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]]) -> ir.Program:
    """The program with some buffers replaced by smaller ones."""
    if not plans:
        return program
    allocs = tuple(plans[b][0] if b in plans else b for b in program.allocs)
    return ir.replace_fields(program, body=_Rebase(plans).body(program.body), allocs=allocs)
