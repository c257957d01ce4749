"""The primitive compute_at: a producer computed where it is used.

One iteration of the loop must find everything that the blocks below read of the
producer: the instances that move are the preimage of the footprint of those reads. They are computed there
afresh, whatever other iterations did, so footprints may overlap and may be larger than needed. That is right
if the producer's own inputs have the same values there as where it was.

    for i: P[i] = ...                      at j0, C reads P[8 * j0 + 1 .. 8 * j0 + 10]:
    for j0, j1: C[8 * j0 + j1] =           i = 8 * j0 + 1 + ax0, ax0 of 10, where i < 30
        P[8 * j0 + j1 + 1] + P[8 * j0 + j1 + 3]
"""

from __future__ import annotations

from typing import Any

from ...affine.access import make_access
from ...affine.footprint import clip, footprint, unite
from ...affine.inverse import preimage
from ...affine.view import Interval, View
from ...errors import ScheduleError
from ...ir import Block, Expr, Var
from ..analysis.effects import Effect, touch, why_sources_change
from ..analysis.iteration_domain import over_iterators, reach_of
from ..analysis.loop_mirror import BoundValues, NewLoops
from ..analysis.moving import (
    Move,
    Stores,
    carry_out,
    check_block,
    check_only_writer,
    check_place,
    check_reduction,
    position,
    spatial_iters,
)
from ..analysis.signature import refresh_scopes
from ..state import ROOT, Key, State
from .base import BlockRV, LoopRV, Primitive, primitive

STAY = Var("stay")  # what the handle stands for if the block stays; no loop, so only moving steps take it


@primitive("compute_at")
class ComputeAt(Primitive):
    """Compute a producer where it is used: each iteration of a loop computes what the blocks below read.

    rewrite:   for i: P[i] = ...
               for j_0: for j_1: C[j_0 * 4 + j_1] = ... P[j_0 * 4 + j_1] ...
          -->  for j_0:
                   for ax0 in range(4): if j_0 * 4 + ax0 < n: P[j_0 * 4 + ax0] = ...
                   for j_1: C[j_0 * 4 + j_1] = ... P[j_0 * 4 + j_1] ...
    requires:  1. the block is complete or a reduction: it has iterators of constant extents, no block inside
                  and no assertion; no two instances store to one element, or read what others store
               2. it is the only one that stores to its buffers, and none of them is an output
               3. it is not below the loop already, in the same block as the loop, before it, and under no
                  condition of its own; no loop around is vectorized
               4. all that read what it stores are in blocks below the loop, and there is one
               5. what it reads is final: written before only, whatever loops around both do
               6. a reduction is over loops of its own, not around both places; it commutes or keeps its order
               7. its predicate is one of its iterators; it moves along
    The new loops, one for each iterator in order, have constant extents; a test keeps them within the domain
    where that is not certain. The old loops go if nothing else is in them. With `preserve_unit_loops=False`
    no loop of one iteration is made (the structure then depends on the extents). A location that was drawn
    (`sample_compute_location`) may say that the block stays where it is.
    """

    block: BlockRV
    loop: LoopRV
    preserve_unit_loops: bool = True

    def check(self, s: State) -> Move | None:
        block = s.block(self.block)
        if s.value(self.loop) is STAY:
            return None
        return plan_compute_at(s, block, s.loop(self.loop).var, self.preserve_unit_loops)

    def apply(self, s: State, plan: Move | None) -> tuple[Any, ...]:
        move_block(s, plan)
        return ()


def plan_compute_at(s: State, block: Block, loop: Var, preserve_unit_loops: bool) -> Move:
    """How to compute a block below a loop; raises `ScheduleError` if that would be wrong."""
    stores = check_block(s, block)
    meeting = check_place(s, block, loop)
    check_not_output(s, block)
    readers = check_only_writer(s, block)
    consumers = check_consumers(s, block, loop, readers)
    if position(s, block.name, meeting) > position(s, loop, meeting):
        raise ScheduleError(
            f"block {block.name!r} runs after the loop over {loop.name}",
            marks={block.name: "later", loop: "earlier"},
            help="reverse_compute_at moves a block into an earlier loop",
        )
    why = why_sources_change(s, touch(block).reads, block.name, parallel=False)
    if why:
        raise ScheduleError(
            f"what block {block.name!r} reads may be different at the loop over {loop.name}: {why}",
            marks={block.name: "reads it", loop: "would read it here"},
        )
    check_loops(s, block, meeting)
    check_reduction(s, block, meeting)
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
    values: list[BoundValues] = []
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
        for region in consumer.reads:
            if region.buffer not in stores:
                continue
            read = make_access(consumer, region, is_write=False)
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


def check_consumers(s: State, block: Block, loop: Var, readers: list[Effect]) -> list[Block]:
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
    for event in readers:
        if event.key is block.name:
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


def move_block(s: State, plan: Move | None) -> None:
    if plan is not None:
        carry_out(s, plan)
        if s.scope(plan.loop) is not ROOT:
            refresh_scopes(s, plan.loop)
