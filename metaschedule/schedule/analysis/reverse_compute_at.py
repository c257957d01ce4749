"""Whether and how a consumer can follow its producer: the plan of reverse_compute_at.

Read `plan_reverse_compute_at` first. In one iteration of the loop a producer stores some elements; the
consumer runs for those of its instances that read them, in loops that are the mirror image of the producer's
(`loop_mirror`). That is a proposal. It is checked where the block would stand: what is provided must cover
what is required.

    for i0, i1: P[8 * i0 + i1] = ...   at i0, P stores 8 elements from 8 * i0 on, and Y reads P[i + 1]:
    for i: Y[i] = P[i + 1]             i = 8 * i0 + ax0 - 1, ax0 of 8, where i >= 0
    1. all iterations of i0 together run Y for every i, as before, and for no other
    2. what Y reads in one iteration of i0, each of its producers has stored by then
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import ir
from ...affine.access import accessed
from ...affine.alias import may_alias
from ...affine.cover import covers, has_witnesses, still_variables
from ...affine.definitions import leaf_loops_by_kind
from ...affine.footprint import find_written, runs_surely
from ...affine.form import NO_ITERATORS, iteration, variables
from ...affine.injective import is_injective
from ...affine.interned import plus
from ...affine.inverse import find_inverse, shifted_variable
from ...affine.view import View
from ...arith import Domain, simplify
from ...errors import ScheduleError
from ..state import Key, State
from .effects import Effect, effects, shared_variables, touch, why_not_stable
from .iteration_domain import ONE, Reach, bound_plainly, covers_domain, over_iterators, reach_of
from .loop_mirror import LoopMirror, Values
from .moving import (
    Move,
    carry_out,
    check_block,
    check_only_writer,
    check_place,
    check_reduction,
    child_towards,
    position,
)
from .reducers import find_reducer

Links = list[
    tuple[ir.Expr, ir.Expr]
]  # an index that a block reads, and the one at which a producer stores it


def plan_reverse_compute_at(s: State, block: ir.Block, loop: ir.Var, preserve_unit_loops: bool) -> Move:
    """How to run a block below a loop of its producer; raises `ScheduleError` if that would be wrong."""
    check_block(s, block)
    meeting = check_place(s, block, loop)
    events = effects(s)
    check_only_writer(s, events, block)
    if position(s, block.name, meeting) < position(s, loop, meeting):
        raise ScheduleError(
            f"block {block.name!r} runs before the loop over {loop.name}",
            marks={block.name: "earlier", loop: "later"},
            help="compute_at moves a block into a later loop",
        )
    check_reduction(s, block, View(s, meeting))
    check_readers(s, events, block)
    below, around = find_producers(s, events, block, loop, meeting)
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
            return move
    assert problem is not None
    raise problem


# --- order ----------------------------------------------------------------------------------------


def check_readers(s: State, events: list[Effect], block: ir.Block) -> None:
    """Raises unless everything that reads what a block stores comes after it, and after all its terms."""
    mine = touch(block).writes
    place = next(n for n, e in enumerate(events) if e.key is block.name and not e.outside)
    for n, event in enumerate(events):
        if n != place and event.reads & mine:
            if n < place:
                raise ScheduleError(
                    f"{event.describe()} reads what block {block.name!r} stores, and runs before it",
                    marks={block.name: "stores it"},
                )
            if leaf_loops_by_kind(s, block)[1] & shared_variables(s, event.key, block.name):
                raise ScheduleError(
                    f"{event.describe()} reads what block {block.name!r} stores before its reduction is done",
                    marks={block.name: "reduces"},
                )


def find_producers(
    s: State, events: list[Effect], block: ir.Block, loop: ir.Var, meeting: Key
) -> tuple[list[str], list[str]]:
    """The blocks below the loop that store what a block reads, and those in loops around that loop; others
    must be done before."""
    sources = touch(block).reads
    branch = child_towards(s, loop, meeting)
    start = next((n for n, e in enumerate(events) if e.key is branch or s.is_below(e.key, branch)), 0)
    producers: list[str] = []
    partial: list[str] = []
    for n, event in enumerate(events):
        if not event.writes & sources or event.key is block.name:
            continue
        if n < start and not s.is_below(event.key, branch):
            continue
        within = isinstance(event.key, str) and s.is_below(event.key, branch)
        if not within or event.outside:
            raise ScheduleError(
                f"{event.describe()} stores what block {block.name!r} reads, and is not done by the loop "
                f"over {loop.name}",
                marks={loop: "would be read here"},
            )
        if s.scope(event.key) is not s.scope(loop):
            raise ScheduleError(
                f"{event.describe()} stores what block {block.name!r} reads, and is inside of another block",
                marks={event.key: "inside of a block"},
            )
        check_block(s, s.nodes[event.key])
        below = s.is_below(event.key, loop)
        place = child_towards(s, event.key, loop) if below else loop
        around = loop if below else s.lowest_common_ancestor(event.key, loop)
        if not below and position(s, event.key, around) > position(s, loop, around):
            raise ScheduleError(
                f"{event.describe()} stores what block {block.name!r} reads, and runs after the loop over "
                f"{loop.name}",
                marks={event.key: "later", loop: "earlier"},
            )
        check_settled(s, events, event, block, place)
        (producers if below else partial).append(s.nodes[event.key].name)
    if not producers:
        raise ScheduleError(
            f"no block below the loop over {loop.name} stores what block {block.name!r} reads",
            marks={loop: "nothing is stored here that it reads", block.name: "to be moved"},
        )
    return producers, partial


def check_settled(s: State, events: list[Effect], event: Effect, block: ir.Block, place: Key) -> None:
    """Raises unless what a producer has stored by `place` is there for good."""
    why = why_not_stable(s, events, event, place, parallel=False)  # it is read by the same iteration
    if not why:
        return
    producer: ir.Block = s.nodes[event.key]
    if going_on := leaf_loops_by_kind(s, producer)[1] & shared_variables(s, event.key, place):
        late = next(v for v in s.loops_around(producer.name) if v in going_on)
        raise ScheduleError(
            f"the reduction of block {producer.name!r} is not done in one iteration of that loop",
            marks={
                late: "a reduction loop",
                producer.name: "reduces over it",
                block.name: "needs the result",
            },
            help="take a loop outside of all reduction loops, or reorder them inwards",
        )
    raise ScheduleError(
        f"block {block.name!r} may read other values of block {producer.name!r} there: {why}",
        marks={producer.name: "stores them", block.name: "reads them"},
    )


# --- which instances ------------------------------------------------------------------------------


def rank_leaders(s: State, view: View, block: ir.Block, producers: list[str]) -> list[tuple[ir.Block, Links]]:
    """The producers that may decide where a block runs, those first that decide most."""
    found: list[tuple[ir.Block, Links]] = []
    problem: ScheduleError | None = None
    for name in producers:
        try:
            found.append((s.nodes[name], find_links(s, view, block, s.nodes[name])))
        except ScheduleError as error:
            problem = error
    if not found:
        assert problem is not None
        raise problem
    found.reverse()  # the last of those that decide as much
    return sorted(found, key=lambda x: -len({v for e, _ in x[1] for v in variables(e)}))


def find_links(s: State, view: View, block: ir.Block, producer: ir.Block) -> Links:
    """What one iteration of the loop decides: the dimensions of which the producer stores only a part there.
    Along them the block must read single elements, which tell its iterators."""
    stores, bindings = check_block(s, producer), iteration(producer)
    own = {it.var for it in block.iters}
    links: Links = []
    for region in block.reads:
        for (start, extent), index in zip(region.ranges, stores.get(region.buffer, ())):
            if all(view.is_inner(x) for v in variables(index) for x in variables(bindings[v])):
                continue  # all of the dimension is there
            mine = variables(start)
            if ir.as_int(extent) != 1 or not mine or not own.issuperset(mine) or ir.loads(start):
                raise others_store(block, producer, region.buffer)
            links.append((start, index))
    return links


def others_store(block: ir.Block, producer: ir.Block, buffer: ir.Buffer) -> ScheduleError:
    return ScheduleError(
        f"block {block.name!r} reads elements of {buffer.name} that other iterations of that loop store",
        marks={block.name: "reads more than one element", producer.name: "stores one at a time"},
        help="take a loop in which all of them are stored, or compute_at the producer",
    )


def follow(
    view: View,
    block: ir.Block,
    producer: ir.Block,
    links: Links,
    domain: Sequence[Reach],
    own: Sequence[ir.Expr],
    units: bool,
) -> Move:
    """The block for the elements that a producer stores in one iteration of the loop. What is not linked to
    them runs for all of its domain."""
    mirror = LoopMirror(view, producer, units)
    plain = find_plain_links(block, producer, links)
    solved, tests = ({}, []) if plain is not None else solve_links(mirror, block, producer, links)
    values: list[Values] = []
    for it, reach in zip(block.iters, domain, strict=True):
        if plain is not None and it.var in plain:
            index, shift = plain[it.var]
            values.append(stored_value(mirror, producer, index, -shift))
        else:
            values.append(solved.get(it.var) or mirror.over(reach.values))
    mirror.check_used()
    return mirror.place(block, values, domain, [*tests, *own])


def find_plain_links(
    block: ir.Block, producer: ir.Block, links: Links
) -> dict[ir.Var, tuple[ir.Expr, int]] | None:
    """Iterators of the block with the index that each follows and what it adds to that; None if it reads
    by more than one iterator per dimension."""
    found: dict[ir.Var, tuple[ir.Expr, int]] = {}
    for start, index in links:
        mine, shift = shifted_variable(start) or (None, 0)
        if mine is None:
            return None
        for known, (other, by) in found.items():
            if (known is mine) is not ir.same_expr(other, index):
                raise ScheduleError(
                    f"block {block.name!r} reads a diagonal of what block {producer.name!r} stores",
                    marks={block.name: "one iterator follows two, or two follow one"},
                )
            if known is mine and shift != by:
                buffer = next(r.buffer for r in block.reads for x, _ in r.ranges if x is start)
                raise others_store(block, producer, buffer)
        found[mine] = index, shift
    return found


def stored_value(mirror: LoopMirror, producer: ir.Block, index: ir.Expr, shift: int) -> Values:
    """An index at which a producer stores, plus a constant, over the new loops."""
    theirs = iteration(producer)
    var, offset = shifted_variable(index) or (None, 0)
    if var is not None:
        shift += offset
        size = next(ir.as_int(it.extent) or 0 for it in producer.iters if it.var is var)
        return Values(plus(mirror.image(theirs[var]), shift), shift, size - 1 + shift)
    low, high = Domain({it.var: it.extent for it in producer.iters}).bounds(index)
    value = plus(mirror.image(ir.substitute(index, theirs)), shift)
    return Values(value, None if low is None else low + shift, None if high is None else high + shift)


def solve_links(
    mirror: LoopMirror, block: ir.Block, producer: ir.Block, links: Links
) -> tuple[dict[ir.Var, Values], list[ir.Expr]]:
    """Iterators of the block from the elements that the producer stores, where each index is told by several
    of them; and tests that such an element is one that the block reads."""
    indices = tuple([start for start, _ in links])
    used = {v for e in indices for v in variables(e)}
    inverse = find_inverse(tuple([it for it in block.iters if it.var in used]), indices)
    if inverse is None:
        raise others_store(
            block, producer, next(r.buffer for r in block.reads if r.buffer in touch(producer).writes)
        )
    elements = [stored_value(mirror, producer, index, 0).binding for _, index in links]
    known = mirror.view.s.extents
    extents = {v: known[v] for e in elements for v in variables(e) if v in known}
    extents |= {v: extent for v, (_, extent) in mirror.definitions.items()}
    domain = Domain({**extents, **mirror.loops})
    found: dict[ir.Var, Values] = {}
    for var, value in inverse.solve(elements).items():
        value = simplify(value, domain)
        found[var] = Values(value, *domain.bounds(value))
    if inverse.full:
        return found, []
    return found, [ir.binary("==", x, e) for x, e in zip(indices, elements, strict=True)]


# --- what is provided covers what is required -----------------------------------------------------


def check_same_instances(s: State, after: State, block: ir.Block, leader: ir.Block, meeting: Key) -> None:
    """Raises unless a block runs for the same values of its iterators as before, while the loops around both
    places stand still."""
    new: ir.Block = after.nodes[block.name]
    before, now = View(s, meeting), View(after, meeting)
    points = [it.var for it in block.iters]
    if runs_surely(before, block) and runs_surely(now, new):
        if not before.outside and bound_plainly(s, block) and bound_plainly(after, new):
            return  # for all values, both
        have, need = find_written(now, new, points), find_written(before, block, points)
        if have is not None and need is not None and have.is_same(now, need):
            return
        still = dict.fromkeys([*still_variables(before, block), *still_variables(now, new)])
        sizes = tuple([ir.as_int(it.extent) or 0 for it in block.iters])
        region = ir.Buffer("points", sizes, "int8").region(*points)
        mine, theirs = [accessed(b, region, True) for b in (new, block)]
        loops, old = [
            [v for v in view.s.loops_around(block.name) if v not in view.outside] for view in (now, before)
        ]
        if has_witnesses(after, still, loops, mine, theirs) and has_witnesses(
            after, still, old, theirs, mine
        ):
            return
    raise instances_differ(s, before, block, leader)


def instances_differ(s: State, view: View, block: ir.Block, leader: ir.Block) -> ScheduleError:
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


def check_provided(after: State, producer: ir.Block, move: Move) -> None:
    """Raises unless a producer has stored what a block reads in one iteration of the loop."""
    loop, block = move.loop, move.block
    is_below = after.is_below(producer.name, loop)
    view = View(after, loop if is_below else after.lowest_common_ancestor(producer.name, loop))
    stores = check_block(after, producer)
    for region in block.reads:
        indices = stores.get(region.buffer)
        if indices is None:
            continue
        stored = accessed(producer, region.buffer.region(*indices), True)
        if not covers(view, stored, accessed(block, region, False)):
            raise ScheduleError(
                f"block {producer.name!r} has not stored all that block {block.name!r} reads by then",
                marks={producer.name: f"stores part of {region.buffer.name}", loop: "in one iteration"},
            )


def check_parallel(after: State, move: Move, leader: ir.Block, meeting: Key) -> None:
    """Raises if two iterations of a loop that is not serial would store the same element."""
    block, outside = move.block, View(after, meeting).outside
    for var in (*after.loops_around(move.loop), move.loop):
        if after.nodes[var].kind in ("serial", "unrolled") or var in outside:
            continue
        if var in leaf_loops_by_kind(after, block)[0] and bound_plainly(after, leader):
            continue
        view = View(after, after.parent[var], moving=var)
        writes = [accessed(block, r, True) for r in block.writes]
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
        and is_injective(
            [(after.resolve(b), ONE) for b in block.bindings],
            known,
            [after.resolve(test) for test in block.predicate],
        )
    )
    if not once:
        raise ScheduleError(
            f"block {block.name!r} would not reduce every term once, the first one first",
            marks={block.name: "reduces along a dimension that the loop stores piece by piece"},
        )
