"""Nests: every store of a program with the loops around it and how each access moves with them.

`nests` takes a schedule, whose state it reads without building the program, or a program.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import dataclass, field

from .. import ir
from ..affine.constraint import bound_of, remainders
from ..arith import conjuncts
from ..codegen.gpu.pipeline import chunks_ahead
from ..codegen.lower.lanes import REDUCTIONS
from ..codegen.lower.model import kept_loops, resolve_kind, share_copies, spend_copies
from ..codegen.lower.predicate_padding import predicate_padding
from ..ir.annotations import SKIP_ZEROS, STORAGE_ALIGN, UNROLL
from ..schedule import Schedule
from ..schedule.state import ROOT, Key, State
from .arithmetic import store_operations
from .movement import INFINITE, UNKNOWN_EXTENT, Movement, Movements, part


@dataclass(slots=True, eq=False)
class Loop:
    """A loop around a store; `kind` is what the code generator makes of it, `ahead` how many iterations ahead
    it fetches into shared memory."""

    var: ir.Var
    extent: int
    kind: str
    ahead: int = 0


@dataclass(slots=True, eq=False)
class ElementAccess:
    """An element that a store reads, writes, or both (`updates`): one movement per dimension. `shared` is the
    number of outer loops that surround every use of an intermediate buffer: lowering gives such a buffer room
    for one iteration of them. `group` neighbours along the last dimension are taken as one element. A
    `guarded` one is read where a condition says so. `aligned` are the notes of `storage_align`."""

    buffer: ir.Buffer
    forms: list[Movement]
    updates: bool = False
    shared: int = 0
    group: int = 1
    guarded: bool = False
    aligned: tuple[tuple[int, int, int], ...] = ()


@dataclass(slots=True)
class StoreGuard:
    """`form < limit` around a store, or `form >= limit` (`below`)."""

    form: Movement
    limit: int
    below: bool = False


@dataclass(slots=True, eq=False)
class NestedStore:
    """One store: loops outermost first, accesses with the written one first, operations by KINDS."""

    loops: list[Loop]
    accesses: list[ElementAccess]
    operations: tuple[float, ...]
    guards: list[StoreGuard]
    conditions: list[set[ir.Var]]  # the loops that each other test depends on: `init` in a reduction, ifs
    executed: float  # the share of instances that these let through, as far as it shows
    root: int = 0  # the statement of the program that it is in: on a GPU, a kernel


def nests(program: ir.Program | Schedule) -> list[NestedStore]:
    """The stores of a program that may run, in order.

    >>> from metaschedule import workloads
    >>> update = nests(workloads.create("GMM", b=1, n=4, m=8, k=16))[-1]
    >>> [loop.extent for loop in update.loops], [a.buffer.name for a in update.accesses]
    ([4, 8, 16], ['matmul', 'X', 'Y'])
    """
    state = program.state if isinstance(program, Schedule) else State(program)
    walk = _Walk(state)
    for number, child in enumerate(state.children[ROOT]):
        known = len(walk.found)
        walk.stmt(state.nodes[child], child)
        for nest in walk.found[known:]:
            nest.root = number
    share_loops(walk.found, set(state.original.params))
    for nest in walk.found:
        for access in nest.accesses:
            access.aligned = walk.aligned.get(access.buffer, ())
    return walk.found


def share_loops(found: list[NestedStore], params: set[ir.Buffer]) -> None:
    """Fill in `shared` of every access."""
    common: dict[ir.Buffer, list[Loop]] = {}
    for nest in found:
        for access in nest.accesses:
            if access.buffer not in params:
                loops = common.setdefault(access.buffer, nest.loops)
                if loops is not nest.loops:
                    common[access.buffer] = loops[: common_prefix(loops, nest.loops)]
    kept = {b: kept_loops((loop.kind, loop.extent) for loop in own_loops(b, x)) for b, x in common.items()}
    for nest in found:
        for access in nest.accesses:
            access.shared = kept.get(access.buffer, 0)


def own_loops(buffer: ir.Buffer, loops: list[Loop]) -> list[Loop]:
    """Of the loops around all uses of a buffer those whose iterations may have one each: a block of a GPU has
    shared memory, and its threads do not."""
    if buffer.scope != "shared":
        return loops
    first = (n for n, loop in enumerate(loops) if loop.kind.startswith(("threadIdx", "vthread")))
    return loops[: next(first, len(loops))]


def common_prefix(a: list[Loop], b: list[Loop]) -> int:
    """How many outer loops two nests have in common."""
    count = 0
    for x, y in zip(a, b):
        if x is not y:
            break
        count += 1
    return count


@dataclass(slots=True)
class _Walk:
    state: State
    found: list[NestedStore] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    guards: list[StoreGuard] = field(default_factory=list)
    conditions: list[set[ir.Var]] = field(default_factory=list)
    executed: float = 1.0
    aligned: dict[ir.Buffer, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    forms: Movements = field(init=False)

    def __post_init__(self) -> None:
        self.forms = Movements(self.state)

    # What visits statements gives the copies that unrolling may make of them, see `model.share_copies`.

    def inside(self, body: ir.Body, key: Key | None) -> int | None:
        """What is below a statement: in the flat tree where it has children there."""
        below = () if key is None else self.state.children[key]
        if len(below) == 1 and not body:  # mostly, and what is shared with nothing is all there is
            return self.stmt(self.state.nodes[below[0]], below[0])
        asked = [self.stmt(self.state.nodes[child], child) for child in below]
        return share_copies(asked + [self.stmt(s, None) for s in body])

    def stmt(self, s: ir.Stmt, key: Key | None) -> int | None:
        if isinstance(s, ir.For):
            return self.loop(s, key)
        if isinstance(s, ir.Block):
            self.block(s, key)
            return UNROLL.get(s)
        if isinstance(s, ir.Store):
            self.store(s)
        elif isinstance(s, ir.TupleStore):
            for x in s.stores:
                self.store(x, in_tuple=True)
        elif isinstance(s, ir.If):
            self.visit_guarded((s.cond,), s.then, key)
            self.visit_guarded((s.cond,), s.orelse, None)
        elif isinstance(s, ir.While):
            self.serialize_lanes()
            self.loops.append(Loop(ir.Var("while"), UNKNOWN_EXTENT, "serial"))
            self.inside(s.body, key)
            self.loops.pop()
        return None

    def loop(self, s: ir.For, key: Key | None) -> int | None:
        known, extent = ir.as_int(s.extent), self.forms.bind_loop(s.var, s.extent)
        if known is None:  # lanes may have different numbers of iterations
            self.serialize_lanes({var for var, _, _ in self.forms.irregular(s.extent)})
        if extent < 1:
            return None  # nothing in it runs
        if extent == 1:
            return self.inside(s.body, key)
        loop = Loop(s.var, extent, s.kind, chunks_ahead(s, extent))
        if s.kind != "serial":
            loop.kind = resolve_kind(s.kind, known, [x.kind for x in self.loops])
        self.loops.append(loop)
        copies = self.inside(s.body, key)
        self.loops.pop()
        if copies is not None:
            copies = spend_copies(copies, loop.kind, known)
            if copies is not None and s.kind == "serial":
                loop.kind = "unrolled"
        return copies

    def block(self, s: ir.Block, key: Key | None) -> None:
        known = self.forms.known
        reducing: set[ir.Var] = set()
        for it, binding in zip(s.iters, s.bindings, strict=True):
            known[it.var] = form = self.forms.of(binding)
            if s.init and it.kind == "reduce":
                reducing |= {var for var, _, _ in form}
        for number, axis, factor, offset in STORAGE_ALIGN.get(s) or ():
            buffer = s.writes[number].buffer
            self.aligned[buffer] = (*self.aligned.get(buffer, ()), (axis, factor, offset))
        around = self.loops
        if s.init:
            self.serialize_lanes(reducing)  # lanes that start a reduction and continue it do not run together
            self.loops = [loop for loop in around if loop.var not in reducing]
            self.visit_guarded(s.predicate, s.init, None)
            self.loops = around
            self.conditions.append(reducing)
        body = s.body
        if SKIP_ZEROS.get(s):
            body = predicate_padding(body)
        self.visit_guarded(s.predicate, body, key)
        if s.init:
            self.conditions.pop()
        self.loops = around

    def visit_guarded(self, conditions: tuple[ir.Expr, ...], body: ir.Body, key: Key | None) -> None:
        guards, others, executed = len(self.guards), len(self.conditions), self.executed
        for cond in itertools.chain.from_iterable(map(conjuncts, conditions)):
            if (bound := bound_of(cond)) is not None:
                guard = StoreGuard(self.forms.of(bound.value), bound.limit, bound.is_least)
                if guard not in self.guards:  # tiles of tiles repeat some
                    self.guards.append(guard)
            else:
                self.conditions.append({var for var, _, _ in self.forms.irregular(cond)})
                self.executed *= share(cond)
        self.inside(body, key)
        del self.guards[guards:], self.conditions[others:]
        self.executed = executed

    def serialize_lanes(self, variables: Collection[ir.Var] | None = None) -> None:
        """Note that lowering finds lanes around here which do not run together (`lower/lanes.py`)."""
        for loop in self.loops:
            if loop.kind == "vectorized" and (variables is None or loop.var in variables):
                loop.kind = "serial"

    def store(self, s: ir.Store, in_tuple: bool = False) -> None:
        operations, reads = store_operations(s)
        of = self.forms.of
        written = ElementAccess(s.buffer, [of(i) for i in s.indices])
        accesses = [written]
        lanes = {loop.var for loop in self.loops if loop.kind == "vectorized"}
        if lanes:
            lanes -= {var for form in written.forms for var, _, _ in form}
            if lanes and (in_tuple or ir.reduction_term(s, REDUCTIONS) is None):
                self.serialize_lanes(lanes)
        for load, group, guarded in reads:
            forms = [of(i) for i in load.indices]
            if group > 1:
                forms[-1] = part(forms[-1], group, INFINITE)
            same = next((a for a in accesses if a.buffer is load.buffer and a.forms == forms), None)
            if same is None:
                accesses.append(ElementAccess(load.buffer, forms, group=group, guarded=guarded))
            elif same is written:
                written.updates = True
        guards, conditions = list(self.guards), list(self.conditions)
        self.found.append(
            NestedStore(list(self.loops), accesses, operations, guards, conditions, self.executed)
        )


def share(cond: ir.Expr) -> float:
    """How often a condition holds: less than always only where a remainder shows it."""
    return 1 / math.prod([size for _, size, _ in remainders(cond)])
