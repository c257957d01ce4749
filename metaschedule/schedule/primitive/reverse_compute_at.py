"""The primitive reverse_compute_at: a consumer run where its producer is computed.

In one iteration of the loop a producer stores some elements; the
consumer runs for those of its instances that read them, in loops that are the mirror image of the producer's
(`loop_mirror`). That is a proposal. It is checked where the block would stand: what is provided must cover
what is required.

    for i0, i1: P[8 * i0 + i1] = ...   at i0, P stores 8 elements from 8 * i0 on, and Y reads P[i + 1]:
    for i: Y[i] = P[i + 1]             i = 8 * i0 + ax0 - 1, ax0 of 8, where i >= 0
    1. all iterations of i0 together run Y for every i, as before, and for no other
    2. what Y reads in one iteration of i0, each of its producers has stored by then
"""

from __future__ import annotations

from typing import Any

from ...affine.access import make_access
from ...affine.alias import may_alias
from ...affine.cover import covers, has_witnesses, still_variables
from ...affine.definitions import leaf_loops_by_kind
from ...affine.footprint import find_written, runs_surely
from ...affine.form import NO_ITERATORS, variables
from ...affine.injective import is_one_to_one
from ...affine.view import View
from ...errors import ScheduleError
from ...ir import Block, Buffer, Var, as_int
from ...ir.reducers import find_reducer
from ..analysis.iteration_domain import covers_domain, is_bound_plainly, over_iterators, reach_of
from ..analysis.loop_mirror import follow, rank_leaders
from ..analysis.moving import (
    Move,
    carry_out,
    check_block,
    check_only_writer,
    check_place,
    check_reduction,
    position,
)
from ..analysis.producers import check_readers, find_producers
from ..state import Key, State
from .base import BlockRV, LoopRV, Primitive, primitive
from .compute_at import STAY, move_block


@primitive("reverse_compute_at")
class ReverseComputeAt(Primitive):
    """Run a consumer where its producer is computed: each iteration of a loop consumes what it has produced.

    rewrite:   for i_0: for i_1: if i_0 * 4 + i_1 < n: P[i_0 * 4 + i_1] = ...
               for j: C[j] = ... P[j] ...
          -->  for i_0:
                   for i_1: if i_0 * 4 + i_1 < n: P[i_0 * 4 + i_1] = ...
                   for ax0 in range(4): if i_0 * 4 + ax0 < n: C[i_0 * 4 + ax0] = ... P[i_0 * 4 + ax0] ...
    requires:  1. the block is complete or a reduction (as for compute_at), the only one that stores to its
                  buffers
               2. it is not below the loop already, in the same block as the loop, after it, and under no
                  condition of its own; no loop around is vectorized
               3. what reads its results comes after it, and after its reduction
               4. a block below the loop stores what it reads, finishes in one iteration of the loop (the loop
                  and those around are none of its reduction loops) and never stores other values again
               5. where an iteration stores only a part of a dimension, the block reads one element along it;
                  such elements tell its iterators
               6. over all iterations its producer stores everything that the block reads
               7. all other blocks that it reads from have stored by then what it reads
               8. terms of a reduction come once each, the first one first
               9. iterations of a parallel loop do not store the same elements
    The new loops are the mirror image of the producer's, with the tests of its tiles: one loop per
    iterator, or one for each of the producer's loops where the elements of an iteration are not contiguous.
    """

    block: BlockRV
    loop: LoopRV
    preserve_unit_loops: bool = True

    def check(self, s: State) -> Move | None:
        block = s.block(self.block)
        if s.value(self.loop) is STAY:
            return None
        return plan_reverse_compute_at(s, block, s.loop(self.loop).var, self.preserve_unit_loops)

    def apply(self, s: State, plan: Move | None) -> tuple[Any, ...]:
        move_block(s, plan)
        return ()


def plan_reverse_compute_at(s: State, block: Block, loop: Var, preserve_unit_loops: bool) -> Move:
    """How to run a block below a loop of its producer; raises `ScheduleError` if that would be wrong."""
    check_block(s, block)
    meeting = check_place(s, block, loop)
    readers = check_only_writer(s, block)
    if position(s, block.name, meeting) < position(s, loop, meeting):
        raise ScheduleError(
            f"block {block.name!r} runs before the loop over {loop.name}",
            marks={block.name: "earlier", loop: "later"},
            help="compute_at moves a block into a later loop",
        )
    check_reduction(s, block, meeting)
    check_readers(s, block, readers)
    below, around = find_producers(s, block, loop, meeting)
    view, (domain, rest) = View(s, loop), reach_of(View(s, meeting), block)
    own = [test for test in [over_iterators(s, block, test) for test in rest] if test is not None]
    problem: ScheduleError | None = None
    for leader, links in rank_leaders(s, view, block, below):
        try:
            move = follow(view, block, leader, links, domain, own, preserve_unit_loops)
            move.at = 1 + max(position(s, name, loop) for name in below)
            after = s.fork()
            carry_out(after, move)
            check_same_instances(s, after, block, leader, meeting)
            for name in (*below, *around):
                if name is not leader.name:  # that one is what it was made from
                    check_provided(after, s.nodes[name], move)
            check_parallel(after, move, leader, meeting)
            linked = {v for e, _ in links for v in variables(e)}
            if any(it.kind == "reduce" and it.var in linked for it in block.iters):
                check_terms(after, move, meeting)
        except ScheduleError as error:
            problem = problem or error
        else:
            move.after = after
            return move
    assert problem is not None
    raise problem


# --- what is provided covers what is required -----------------------------------------------------


def check_same_instances(s: State, after: State, block: Block, leader: Block, meeting: Key) -> None:
    """Raises unless a block runs for the same values of its iterators as before, while the loops around both
    places stand still."""
    new: Block = after.nodes[block.name]
    before, now = View(s, meeting), View(after, meeting)
    points = [it.var for it in block.iters]
    if runs_surely(before, block) and runs_surely(now, new):
        if not before.outside and is_bound_plainly(s, block) and is_bound_plainly(after, new):
            return  # for all values, both
        have, need = find_written(now, new, points), find_written(before, block, points)
        if have is not None and need is not None and have.is_same(now, need):
            return
        still = dict.fromkeys([*still_variables(before, block), *still_variables(now, new)])
        sizes = tuple([as_int(it.extent) or 0 for it in block.iters])
        region = Buffer("points", sizes, "int8").region(*points)
        mine, theirs = [make_access(b, region, True) for b in (new, block)]
        loops, old = [
            [v for v in view.s.loops_around(block.name) if v not in view.outside] for view in (now, before)
        ]
        if has_witnesses(after, still, loops, mine, theirs) and has_witnesses(
            after, still, old, theirs, mine
        ):
            return
    raise instances_differ(s, before, block, leader)


def instances_differ(s: State, view: View, block: Block, leader: Block) -> ScheduleError:
    """Why a block that follows a leader may not run where it ran."""
    for one in (leader, block):
        if not runs_surely(view, one):
            return ScheduleError(
                f"block {one.name!r} is under a condition, or in a loop that may not run",
                marks={one.name: "may not run"},
            )
    for one in (leader, block) if not view.outside else ():
        if not covers_domain(s, one):
            return ScheduleError(
                f"block {one.name!r} is not known to run for all values of its iterators",
                marks={one.name: "may leave some out"},
            )
    for one in (block, leader):
        for test in reach_of(view, one)[1]:
            return ScheduleError(
                f"block {one.name!r} runs under a condition: {test}", marks={one.name: "has a predicate"}
            )
    if not view.outside:
        return ScheduleError(
            f"block {leader.name!r} does not store all that block {block.name!r} reads",
            marks={leader.name: "stores less", block.name: "reads more"},
        )
    return ScheduleError(
        f"block {block.name!r} is not known to run for all that block {leader.name!r} stores in one "
        "iteration of the loops around both",
        marks={block.name: "runs for less, or more", leader.name: "stores it"},
    )


def check_provided(after: State, producer: Block, move: Move) -> None:
    """Raises unless a producer has stored what a block reads in one iteration of the loop."""
    loop, block = move.loop, move.block
    is_below = after.is_below(producer.name, loop)
    view = View(after, loop if is_below else after.lowest_common_ancestor(producer.name, loop))
    stores = check_block(after, producer)
    for region in block.reads:
        indices = stores.get(region.buffer)
        if indices is None:
            continue
        stored = make_access(producer, region.buffer.region(*indices), True)
        if not covers(view, stored, make_access(block, region, False)):
            raise ScheduleError(
                f"block {producer.name!r} has not stored all that block {block.name!r} reads by then",
                marks={producer.name: f"stores part of {region.buffer.name}", loop: "in one iteration"},
            )


def check_parallel(after: State, move: Move, leader: Block, meeting: Key) -> None:
    """Raises if two iterations of a loop that is not serial would store the same element."""
    block, outside = move.block, View(after, meeting).outside
    for var in (*after.loops_around(move.loop), move.loop):
        if after.nodes[var].kind in ("serial", "unrolled") or var in outside:
            continue
        if var in leaf_loops_by_kind(after, block)[0] and is_bound_plainly(after, leader):
            continue
        view = View(after, after.parent[var], moving=var)
        writes = [make_access(block, r, True) for r in block.writes]
        if any(may_alias(view, w, w) is not False for w in writes):
            raise ScheduleError(
                f"iterations of the {after.nodes[var].kind} loop over {var.name} may store the same elements",
                marks={var: "not serial", block.name: "would run in it"},
                help="move the block before making the loop parallel",
            )


def check_terms(after: State, move: Move, meeting: Key) -> None:
    """Raises unless every term of a reduction that goes on over the loop comes once, the first one first."""
    block, outside, view = move.block, View(after, meeting).outside, View(after, move.loop)
    spatial, reducing = leaf_loops_by_kind(after, block)
    extents = {v: after.fixed_extent(v) for v in after.loops_around(block.name) if v not in outside}
    known = {v: n for v, n in extents.items() if n is not None}
    sums = [
        view.linear(b, NO_ITERATORS)
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == "reduce"
    ]
    counts_up = all(
        x is not None and x[2] == 0 and all(c > 0 for terms in x[:2] for c in terms.values()) for x in sums
    )
    once = (
        counts_up
        and len(known) == len(extents)
        and not spatial & reducing
        and find_reducer(block) is not None
        and is_one_to_one(
            [after.resolve(b) for b in block.bindings], known, [after.resolve(t) for t in block.predicate]
        )
    )
    if not once:
        raise ScheduleError(
            f"block {block.name!r} would not reduce every term once, the first one first",
            marks={block.name: "reduces along a dimension that the loop stores piece by piece"},
        )
