"""Where buffers live: arguments, the stack, or the workspace (shared by all threads, or one part each).

A buffer used inside one parallel loop only is private to the threads, unless the loop runs several times
and its iterations may find there what they left the last time. Small ones go on the stack, where
LLVM turns them into registers; the rest into the workspace, never on the stack, reusing the room of
buffers that are no longer needed:

for i: A[..], 64 KB, written; for i: B[..], 32 KB, from A; for i: C[..], 48 KB, from B; for i: out from C
lives 0-1, 1-2, 2-3; largest first: A at 0, C at 0 (A is dead by then), B at 64 KB: 96 KB instead of 144
A and C may overlap, so that pointers to them are not `noalias`; B has its room alone

A program of many statements becomes several functions (`part_of`): what passes from one to another is in the
workspace, too.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field

from ... import ir
from ...affine.injective import is_one_to_one
from .accesses import Use, accesses, common_loops
from .compact import are_boxes_disjoint, touched_region, writes_first

STACK_BYTES = 8192  # a buffer; a register tile is well below, a packed panel above
MOST_STACK_BYTES = 1 << 18  # of all buffers of a function: threads of others may have small stacks
ALIGNMENT = 64
PART_STATEMENTS = 16  # LLVM takes more than twice as long for a function of twice the size


@dataclass
class Storage:
    shared: dict[ir.Buffer, int] = field(default_factory=dict)  # offset in the shared workspace
    private: dict[ir.Buffer, int] = field(default_factory=dict)  # offset in a thread's workspace
    stack: list[ir.Buffer] = field(default_factory=list)
    tables: list[ir.Buffer] = field(default_factory=list)
    shared_bytes: int = 0
    private_bytes: int = 0
    may_overlap: set[ir.Buffer] = field(default_factory=set)  # whose room another buffer has before or after

    @property
    def shared_stride(self) -> int:
        return round_up(self.shared_bytes)

    @property
    def private_stride(self) -> int:
        return round_up(self.private_bytes)


def round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def allocate_storage(program: ir.Program) -> Storage:
    """A place for every buffer that is not a parameter."""
    uses = accesses(program)
    storage = Storage()
    numbers = {s: n for n, s in enumerate(program.body)}
    stacks: Counter[ir.For | int] = Counter()  # bytes on the stack of a function
    shared: list[tuple[ir.Buffer, tuple[int, int]]] = []
    private: list[tuple[ir.Buffer, tuple[int, int]]] = []
    owners: dict[ir.Buffer, ir.For] = {}
    for b in program.allocs:
        if b.data is not None:
            storage.tables.append(b)
        elif b in uses:
            loop = parallel_loop(uses[b])
            if loop is not None and outlives(uses[b], loop):
                loop = None
            life = lifetime(uses[b], numbers, 0)
            crossing = loop is None and any(parallel_loop([a]) is not None for a in uses[b])
            crossing |= part_of(life[0]) != part_of(life[1])
            size, function = b.room * b.item_bytes, part_of(life[0]) if loop is None else loop
            if size <= STACK_BYTES and stacks[function] + size <= MOST_STACK_BYTES and not crossing:
                storage.stack.append(b)
                stacks[function] += size
            elif loop is None:
                shared.append((b, life))
            else:
                owners[b] = loop
                depth = uses[b][0].path.index(loop) + 1
                within = {s: n for n, s in enumerate(loop.body)}
                private.append((b, lifetime(uses[b], within, depth)))
    storage.shared, storage.shared_bytes = assign_offsets(shared)
    storage.private, storage.private_bytes = assign_offsets(private)
    storage.may_overlap = find_overlapping(storage.shared)
    for loop in owners.values():  # a function has one parallel loop
        own = {b: at for b, at in storage.private.items() if owners[b] is loop}
        storage.may_overlap |= find_overlapping(own)
    return storage


def part_of(number: int) -> int:
    """The function that a statement of the program's body is in."""
    return number // PART_STATEMENTS


def find_overlapping(offsets: dict[ir.Buffer, int]) -> set[ir.Buffer]:
    """The buffers that overlap with another one in memory."""
    found: set[ir.Buffer] = set()
    furthest: tuple[int, ir.Buffer | None] = (0, None)  # where memory in use ends so far, and whose it is
    for b, at in sorted(offsets.items(), key=lambda item: item[1]):
        end, owner = furthest
        if owner is not None and at < end:
            found |= {b, owner}
        furthest = max(furthest, (at + b.room * b.item_bytes, b), key=lambda reach: reach[0])
    return found


def parallel_loop(group: list[Use]) -> ir.For | None:
    """The outermost parallel loop around all of some accesses."""
    return next((f for f in common_loops(group) if f.kind == "parallel"), None)


def outlives(uses: list[Use], loop: ir.For) -> bool | None:
    """Whether an iteration of a parallel loop may read what the same iteration wrote the last time the loop
    ran. Each must then have elements of its own, or it is not known what was meant (None)."""
    path, loops = uses[0].path, uses[0].loops
    if not any(isinstance(s, (ir.For, ir.While)) for s in path[: path.index(loop)]):
        return False
    depth = loops.index(loop) + 1
    if writes_first(uses, depth):
        return False
    box = touched_region(uses, depth)
    moving = {v for start, _ in box.ranges for v in ir.free_vars(start)} | {loop.var}
    around = tuple(f for f in loops[:depth] if f.var in moving)
    return True if are_boxes_disjoint(box, around) or are_elements_distinct(uses, loop) else None


def are_elements_distinct(uses: list[Use], loop: ir.For) -> bool:
    """Whether all accesses are to one place, and different iterations have different elements there."""
    first = uses[0]
    if not all(ir.same_exprs(a.indices, first.indices) for a in uses):
        return False
    used = {v for index in first.indices for v in ir.free_vars(index)}
    extents = {f.var: n for f in first.loops if f.var in used and (n := f.fixed_extent) is not None}
    if loop.var not in used or len(extents) != len(used):
        return False
    return is_one_to_one(first.indices, extents)


def serialize_unsafe_parallel(program: ir.Program) -> ir.Program:
    """Parallel loops made serial where a buffer is used in a way that may carry values from one run of the
    loop to the next, and may be scratch memory of an iteration as well."""
    unsafe: set[ir.Stmt] = set()
    uses = accesses(program)
    for b in program.allocs:
        loop = parallel_loop(uses[b]) if b.data is None and b in uses else None
        if loop is not None and outlives(uses[b], loop) is None:
            unsafe.add(loop)
    if not unsafe:
        return program
    return serialize_unsafe_parallel(ir.replace_fields(program, body=_Serial(unsafe).body(program.body)))


class _Serial(ir.StmtRewriter):
    def __init__(self, loops: set[ir.Stmt]) -> None:
        self.loops = loops

    def stmt(self, s: ir.Stmt) -> ir.Stmt | ir.Body:
        new = super().stmt(s)
        return ir.replace_fields(new, kind="serial") if s in self.loops else new


def lifetime(group: list[Use], numbers: dict[ir.Stmt, int], depth: int) -> tuple[int, int]:
    """The first and the last of some numbered statements, `depth` deep in the tree, that touch a buffer."""
    at = [numbers[a.path[depth]] for a in group]
    return min(at), max(at)


def assign_offsets(buffers: list[tuple[ir.Buffer, tuple[int, int]]]) -> tuple[dict[ir.Buffer, int], int]:
    """Offsets such that buffers alive together do not overlap, largest first; and the total size."""
    done: list[tuple[int, int, tuple[int, int]]] = []  # start, end, lifetime
    offsets: dict[ir.Buffer, int] = {}
    total = 0
    for b, life in sorted(buffers, key=lambda item: -item[0].room * item[0].item_bytes):
        size = round_up(b.room * b.item_bytes)
        at = 0
        for start, end, other in done:
            alive_together = life[0] <= other[1] and other[0] <= life[1]
            if alive_together and at < end and start < at + size:
                at = end
        insort(done, (at, at + size, life))
        offsets[b] = at
        total = max(total, at + size)
    return offsets, total
