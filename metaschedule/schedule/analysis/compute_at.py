"""Whether and how a producer can be computed where it is used: the plan of compute_at.

Read `plan_compute_at` first. One iteration of the loop must find everything that the blocks below read of the
producer: the instances that move are the preimage of the footprint of those reads. They are computed there
afresh, whatever other iterations did, so footprints may overlap and may be larger than needed. That is right
if the producer's own inputs have the same values there as where it was.

    for i: P[i] = ...                      at j0, C reads P[8 * j0 + 1 .. 8 * j0 + 10]:
    for j0, j1: C[8 * j0 + j1] =           i = 8 * j0 + 1 + ax0, ax0 of 10, where i < 30
        P[8 * j0 + j1 + 1] + P[8 * j0 + j1 + 3]
"""

from __future__ import annotations

from ...affine.access import accesses_of
from ...affine.footprint import clip, footprint, unite
from ...affine.inverse import preimage
from ...affine.view import Interval, View
from ...errors import ScheduleError
from ...ir import Block, Expr, Var
from ..state import ROOT, Key, State
from .effects import Effect, effects, touch, why_sources_change
from .iteration_domain import over_iterators, reach_of
from .loop_mirror import NewLoops, Values
from .moving import (
    Move,
    Stores,
    check_block,
    check_only_writer,
    check_place,
    check_reduction,
    position,
    spatial_iters,
)


def plan_compute_at(s: State, block: Block, loop: Var, preserve_unit_loops: bool) -> Move:
    """How to compute a block below a loop; raises `ScheduleError` if that would be wrong."""
    stores = check_block(s, block)
    meeting = check_place(s, block, loop)
    check_not_output(s, block)
    events = effects(s)
    check_only_writer(s, events, block)
    consumers = check_consumers(s, events, block, loop)
    if position(s, block.name, meeting) > position(s, loop, meeting):
        raise ScheduleError(
            f"block {block.name!r} runs after the loop over {loop.name}",
            marks={block.name: "later", loop: "earlier"},
            help="reverse_compute_at moves a block into an earlier loop",
        )
    why = why_sources_change(s, events, touch(block).reads, block.name, parallel=False)
    if why:
        raise ScheduleError(
            f"what block {block.name!r} reads may be different at the loop over {loop.name}: {why}",
            marks={block.name: "reads it", loop: "would read it here"},
        )
    check_loops(s, block, meeting)
    check_reduction(s, block, View(s, meeting))
    domain, rest = reach_of(View(s, s.scope(block.name)), block)
    tests: list[Expr] = []
    for test in rest:
        moved = over_iterators(s, block, test)
        if moved is None:
            raise ScheduleError(
                f"block {block.name!r} runs under a condition that cannot be moved: {test}",
                marks={block.name: "has a predicate that is more than a condition of its iterators"},
            )
        tests.append(moved)
    view = View(s, loop)
    required = find_required(view, block, stores, consumers)
    new = NewLoops(view, preserve_unit_loops)
    values: list[Values] = []
    for it, (_, first, last) in zip(block.iters, domain, strict=True):
        whole = Interval({}, first, last - first + 1)
        values.append(new.over(clip(required.get(it.var, whole), first, last)))
    move = new.place(block, values, domain, tests)
    move.at = min(position(s, b.name, loop) for b in consumers)
    return move


def find_required(view: View, block: Block, stores: Stores, consumers: list[Block]) -> dict[Var, Interval]:
    """Per spatial iterator the values that one iteration of the loop needs; all if it is not there."""
    spatial = spatial_iters(block.iters)
    found: dict[Var, Interval] | None = None
    for consumer in consumers:
        for read in accesses_of(consumer):
            if read.is_write or read.buffer not in stores:
                continue
            new = preimage(view, spatial, stores[read.buffer], footprint(view, read))
            if found is not None:
                both = {v: unite(view, x, new[v]) for v, x in found.items() if v in new}
                new = {v: x for v, x in both.items() if x is not None}
            found = new
    return found or {}


def check_not_output(s: State, block: Block) -> None:
    outputs = set(s.original.outputs)
    scope = s.scope(block.name)
    if scope is not ROOT:
        outputs |= {r.buffer for r in (*s.nodes[scope].writes, *s.nodes[scope].reads)}
    for region in block.writes:
        if region.buffer in outputs:
            raise ScheduleError(
                f"block {block.name!r} stores to {region.buffer.name}, which is an output",
                marks={block.name: "an output block"},
                help="cache_write makes a stage before the output that can be moved",
            )


def check_loops(s: State, block: Block, meeting: Key) -> None:
    """Raises if a block may not be meant to run for every value of its iterators."""
    for key in s.ancestors(block.name):
        if key is meeting:
            break
        if isinstance(key, Var) and s.fixed_extent(key) is None:
            raise ScheduleError(
                f"block {block.name!r} is in a loop whose extent is not a constant",
                marks={key: "known only when the program runs, or different each time"},
            )


def check_consumers(s: State, events: list[Effect], block: Block, loop: Var) -> list[Block]:
    """The blocks below the loop that read what a block stores; raises if others do."""
    mine = {r.buffer for r in block.writes}
    below = s.blocks_below(loop)
    consumers = [s.nodes[b] for b in below if any(r.buffer in mine for r in s.nodes[b].reads)]
    if not consumers:
        raise ScheduleError(
            f"no block below the loop over {loop.name} reads what block {block.name!r} stores",
            marks={loop: "not used here", block.name: "to be moved"},
        )
    known = {b.name for b in consumers}
    for event in events:
        if event.key is block.name or not event.reads & mine:
            continue
        around = [event.key, *s.ancestors(event.key)]
        if event.outside or not s.is_below(event.key, loop) or not any(k in known for k in around):
            marks = {event.key: "reads it, too"} if isinstance(event.key, (str, Var)) else {}
            raise ScheduleError(
                f"not everything that reads what block {block.name!r} stores is in a block below the loop "
                f"over {loop.name}",
                marks={**marks, loop: "the loop"},
                help="take a loop around all of its consumers",
            )
    return consumers
