"""Whether and how a consumer can follow its producer: the plan of reverse_compute_at.

Read `plan_reverse_compute_at` first. In one iteration of the loop the producer stores some elements; the
consumer gets loops that are a mirror image of the producer's (`mirroring`), so that it runs for exactly those
elements. Over all iterations the producer stores every element, so the consumer runs everywhere. Other blocks
below the loop that it reads from must have stored by then what it reads.
"""

from __future__ import annotations

from ...affine.definitions import are_independent, is_definition_test, leaf_loops_by_kind
from ...affine.form import NO_ITERATORS, Iteration, iteration, variables
from ...affine.view import Interval, View
from ...arith import iteration_map
from ...errors import ScheduleError
from ...ir import (
    Block,
    Expr,
    Region,
    Var,
    as_int,
    changed,
    const,
    free_vars,
    same_expr,
    substitute,
)
from ..state import Key, State
from .instances import bound_plainly, covers_domain
from .mirroring import Links, Mirror, mirrored
from .moving import (
    Form,
    Move,
    as_bound,
    check_block,
    check_forms,
    check_only_writer,
    check_place,
    check_reduction,
    child_towards,
    position,
    shifted,
)
from .reducers import find_reducer
from .touching import Access, accesses, shared_variables, touch, why_unsettled


def plan_reverse_compute_at(s: State, block: Block, loop: Var, preserve_unit_loops: bool) -> Move:
    """How to run a block below a loop of its producer; raises `ScheduleError` if that would be wrong."""
    check_block(s, block)
    meeting = check_place(s, block, loop)
    events = accesses(s)
    check_only_writer(s, events, block)
    if position(s, block.name, meeting) < position(s, loop, meeting):
        raise ScheduleError(
            f"block {block.name!r} runs before the loop over {loop.name}",
            marks={block.name: "earlier", loop: "later"},
            help="compute_at moves a block into a later loop",
        )
    check_reduction(s, block, View(s, meeting))
    check_readers(s, events, block)
    producers, partial = find_producers(s, events, block, loop, meeting)
    view = View(s, loop)
    leader, links = find_leader(s, view, block, producers)
    own = check_whole(s, block, leader, links, meeting)
    if not bound_plainly(s, leader):
        check_disjoint(s, view, leader)
    mirror = Mirror(view, leader, preserve_unit_loops)
    move = mirrored(mirror, block, links, own)
    for name in (*producers, *partial):
        if name is not leader.name:
            check_has_stored(s, move.block, s.nodes[name], loop, mirror)
    check_parallel(s, move, leader, meeting)
    if any(it.kind == "reduce" and it.var in links for it in block.iters):
        check_terms(s, move, meeting)
    move.at = 1 + max(position(s, name, loop) for name in producers)
    return move


# --- order ----------------------------------------------------------------------------------------


def check_readers(s: State, events: list[Access], block: Block) -> None:
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
    s: State, events: list[Access], block: Block, loop: Var, meeting: Key
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


def check_settled(s: State, events: list[Access], event: Access, block: Block, place: Key) -> None:
    """Raises unless what a producer has stored by `place` is there for good."""
    why = why_unsettled(s, events, event, place, parallel=False)  # it is read by the same iteration
    if not why:
        return
    producer: Block = s.nodes[event.key]
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


# --- what is stored in one iteration --------------------------------------------------------------


def stored(s: State, producer: Block, block: Block) -> list[tuple[Region, list[tuple[Var | None, int]]]]:
    """The regions that a block reads of a producer, with the iterators that the producer stores them by."""
    forms = check_block(s, producer)
    read = [r for r in block.reads if r.buffer in forms]
    check_forms(producer, forms, [r.buffer for r in read])
    found: list[tuple[Region, list[tuple[Var | None, int]]]] = []
    for region in read:
        form: Form | None = forms[region.buffer]
        assert form is not None
        found.append((region, list(form)))
    return found


def find_leader(s: State, view: View, block: Block, producers: list[str]) -> tuple[Block, Links]:
    """The producer that decides where a block runs, and its iterators that those of the block follow."""
    best: tuple[Block, Links] | None = None
    problem: ScheduleError | None = None
    for name in producers:
        producer: Block = s.nodes[name]
        try:
            links = find_links(s, view, block, producer)
        except ScheduleError as error:
            problem = error
            continue
        if best is None or len(links) >= len(best[1]):
            best = producer, links
    if best is None:
        assert problem is not None
        raise problem
    return best


def find_links(s: State, view: View, block: Block, producer: Block) -> Links:
    """The iterators of a block that must follow those of a producer: where one iteration of the loop stores
    only a part of a dimension, the block must read single elements along it."""
    bindings = iteration(producer)
    iters = {it.var: it for it in block.iters}
    links: Links = {}
    for region, form in stored(s, producer, block):
        for (start, extent), (var, offset) in zip(region.ranges, form, strict=True):
            if var is None or all(view.is_inner(v) for v in variables(bindings[var])):
                continue  # all of the dimension is there
            found = shifted(start) if as_int(extent) == 1 else None
            mine = None if found is None else found[0]
            if found is None or mine is None or mine not in iters:
                raise others_store(block, producer, region)
            link = var, offset - found[1]
            for known, (other, shift) in links.items():
                if (known is mine) is not (other is var):
                    raise ScheduleError(
                        f"block {block.name!r} reads a diagonal of what block {producer.name!r} stores",
                        marks={block.name: "one iterator follows two, or two follow one"},
                    )
                if known is mine and shift != link[1]:
                    raise others_store(block, producer, region)
            links[mine] = link
    return links


def others_store(block: Block, producer: Block, region: Region) -> ScheduleError:
    name = region.buffer.name
    return ScheduleError(
        f"block {block.name!r} reads elements of {name} that other iterations of that loop store",
        marks={block.name: "reads more than one element", producer.name: "stores one at a time"},
        help="take a loop in which all of them are stored, or compute_at the producer",
    )


def check_whole(s: State, block: Block, leader: Block, links: Links, meeting: Key) -> dict[Var, Interval]:
    """Raises unless the elements that the leader stores, in one iteration of what is around both, are those
    that the block runs for there. Gives the values of iterators that follow nothing, if not all."""
    view = View(s, meeting)
    sizes = {it.var: as_int(it.extent) or 0 for it in (*block.iters, *leader.iters)}
    for mine, (var, offset) in links.items():
        # mine = var + offset: all of mine must be there
        if offset > 0 or sizes[var] + offset < sizes[mine]:
            raise ScheduleError(
                f"block {leader.name!r} does not store all that block {block.name!r} reads",
                marks={leader.name: "stores less", block.name: "reads more"},
            )
    leader, block = without_shared_tests(leader, block, links)
    if not view.outside:
        for one in (leader, block):
            if not covers_domain(s, one) and not fills_domain(s, view, one):
                raise ScheduleError(
                    f"block {one.name!r} is not known to run for all values of its iterators",
                    marks={one.name: "may leave some out"},
                )
        return {}
    own: dict[Var, Interval] = {}
    theirs, ours = iteration(leader), iteration(block)
    for it in block.iters:
        size = sizes[it.var]
        span = box_of(view, block, ours[it.var], size)
        if it.var in links:
            var, offset = links[it.var]
            other = box_of(view, leader, theirs[var], sizes[var])
            other = None if other is None else other.moved(offset)
            same = span is not None and other is not None and view.is_same(span, other)
        else:
            same = span is not None
            if span is not None and (span.terms or span.offset > 0 or span.end < size):
                own[it.var] = span
        if not same:
            raise ScheduleError(
                f"block {block.name!r} is not known to run for all that block {leader.name!r} stores in one "
                "iteration of the loops around both",
                marks={block.name: "runs for less, or more", leader.name: "stores it"},
            )
    for one in (block, leader):
        check_independent(s, view, one)
    return own


def without_shared_tests(leader: Block, block: Block, links: Links) -> tuple[Block, Block]:
    """Both without the tests that say the same of both: the block runs where the leader does."""
    theirs = {var: mine for mine, (var, offset) in links.items() if offset == 0}
    followed = {b: theirs[it.var] for it, b in zip(leader.iters, leader.bindings) if it.var in theirs}
    own = {b: it.var for it, b in zip(block.iters, block.bindings)}
    said = [of_iterators(test, own) for test in block.predicate]
    shared: dict[int, int] = {}  # numbers of the leader's tests and of the block's
    for n, test in enumerate(leader.predicate):
        meant = of_iterators(test, followed)
        for m, mine in enumerate(said):
            if meant is not None and mine is not None and same_expr(meant, mine):
                shared[n] = m
    if not shared:
        return leader, block
    rest = tuple([test for n, test in enumerate(leader.predicate) if n not in shared])
    mine = tuple([test for m, test in enumerate(block.predicate) if m not in shared.values()])
    return changed(leader, predicate=rest), changed(block, predicate=mine)


def of_iterators(test: Expr, iterators: dict[Expr, Var]) -> Expr | None:
    """A test of variables that iterators are bound to, as one of the iterators."""
    known: dict[Var, Expr] = {b: it for b, it in iterators.items() if isinstance(b, Var)}
    return substitute(test, known) if known.keys() >= set(free_vars(test)) else None


def box_of(view: View, block: Block, binding: Expr, size: int) -> Interval | None:
    """All values of an iterator in one iteration of a view; None if it may be another set than a box."""
    span = view.interval(binding, const(1), block, NO_ITERATORS, size)
    return without_units(view, span) if span.dense and span.other is None else None


def without_units(view: View, span: Interval) -> Interval:
    """A span without the loops of one iteration: they are 0."""
    span.terms = {v: c for v, c in span.terms.items() if view.values(v, None) != 1}
    return span


def fills_domain(s: State, view: View, block: Block) -> bool:
    """Whether tiles that may overlap reach every point of the iterators."""
    try:
        check_independent(s, view, block)
    except ScheduleError:
        return False
    for it, binding in zip(block.iters, block.bindings, strict=True):
        span = box_of(view, block, binding, as_int(it.extent) or 0)
        if span is None or span.terms or span.offset > 0:
            return False
        if span.end < (as_int(it.extent) or 0):
            return False
    return True


def check_independent(s: State, view: View, block: Block) -> None:
    """Raises unless the iterators take their values inside of a view independently of each other, and tests
    exclude nothing but what is beyond the iterators' extents."""
    for key in s.ancestors(block.name):
        if key is view.key or isinstance(key, str):
            break
        if not isinstance(key, Var) or (s.fixed_extent(key) or 0) < 1:
            raise ScheduleError(
                f"block {block.name!r} is under a condition, or in a loop that may not run",
                marks={block.name: "may not run"},
            )
    check_disjoint(s, view, block)
    for test in block.predicate:
        check_test(s, view, block, test)


def check_disjoint(s: State, view: View, block: Block) -> None:
    """Raises unless each iterator is a sum over variables of its own inside of a view."""
    ranging: list[Var] = []
    for binding in block.bindings:
        found = view.linear(binding, NO_ITERATORS)
        if found is None:
            raise ScheduleError(
                f"a binding of block {block.name!r} is not a sum over loops: {binding}",
                marks={block.name: "bound to it"},
            )
        ranging += found[1]
    if not are_independent(s, ranging):
        raise ScheduleError(
            f"two iterators of block {block.name!r} depend on one loop",
            marks={block.name: "its iterators are not independent"},
        )


def check_test(s: State, view: View, block: Block, test: Expr) -> None:
    """Raises unless a conjunct cuts off the end of an iterator's domain, or of a variable inside."""
    at, first, last = as_bound(block, test)
    if at is not None:
        size = as_int(block.iters[at].extent) or 0
        if (first is None or first <= 0) and (last is None or last >= size - 1):
            return
    if is_definition_test(s, test) and all(view.is_inner(v) for v in variables(test)):
        return
    raise ScheduleError(
        f"block {block.name!r} runs under a condition: {test}", marks={block.name: "has a predicate"}
    )


def check_has_stored(s: State, block: Block, producer: Block, loop: Var, mirror: Mirror) -> None:
    """Raises unless a producer that does not lead has stored what a block (with its new bindings) reads."""
    below = s.is_below(producer.name, loop)
    view = View(s, loop if below else s.lowest_common_ancestor(producer.name, loop))
    reader = View(s, loop)
    check_independent_or_same(s, view, block, producer)
    bindings, mine = iteration(producer), iteration(block)
    for region, form in stored(s, producer, block):
        for (start, extent), (var, offset) in zip(region.ranges, form, strict=True):
            if var is None:
                continue
            size = next(as_int(it.extent) or 0 for it in producer.iters if it.var is var)
            have = box_of(view, producer, bindings[var], size)
            if have is not None and not have.terms and have.offset <= 0 and have.extent >= size:
                continue
            need = need_of(reader, start, extent, mine, mirror)
            if have is not None and need is not None and view.is_within(need, have.moved(offset)):
                continue
            raise ScheduleError(
                f"block {producer.name!r} has not stored all that block {block.name!r} reads by then",
                marks={producer.name: f"stores part of {region.buffer.name}", loop: "in one iteration"},
            )


def check_independent_or_same(s: State, view: View, block: Block, producer: Block) -> None:
    """As `check_independent`; a test that the reader has as well is fine."""
    shared = [t for t in producer.predicate if any(same_expr(t, mine) for mine in block.predicate)]
    rest = tuple([t for t in producer.predicate if not any(t is x for x in shared)])
    check_independent(s, view, changed(producer, predicate=rest) if shared else producer)


def need_of(view: View, start: Expr, extent: Expr, iters: Iteration, mirror: Mirror) -> Interval | None:
    """The values of an index as the new loops of the mirror range."""
    width = as_int(extent)
    found = view.linear(start, iters)
    if found is None or width is None:
        return None
    outer, inner, low = found
    terms = dict(inner)
    high = low + width - 1
    for var, c in outer.items():  # the new loops are not in the tree yet
        if var in mirror.loops:
            reach = c * (max(mirror.loops[var], 1) - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        else:
            terms[var] = c
    return without_units(view, Interval(terms, low, high - low + 1))


# --- what comes together --------------------------------------------------------------------------


def check_parallel(s: State, move: Move, leader: Block, meeting: Key) -> None:
    """Raises if two iterations of a loop that is not serial would store the same element."""
    block = move.block
    for var in (*s.loops_around(move.loop), move.loop):
        if s.nodes[var].kind in ("serial", "unrolled") or var in View(s, meeting).outside:
            continue
        if var not in leaf_loops_by_kind(s, block)[0] or not bound_plainly(s, leader):
            raise ScheduleError(
                f"iterations of the {s.nodes[var].kind} loop over {var.name} may store the same elements",
                marks={var: "not serial", block.name: "would run in it"},
                help="move the block before making the loop parallel",
            )


def check_terms(s: State, move: Move, meeting: Key) -> None:
    """Raises unless every term of a reduction that goes on over the loop comes once, the first one first."""
    block = move.block
    loops = [v for v in (*s.loops_around(move.loop), move.loop) if v not in View(s, meeting).outside]
    extents = {v: s.fixed_extent(v) for v in loops} | {f.var: as_int(f.extent) for f in move.loops}
    bindings = [s.resolve(b) for b in block.bindings]
    pairs = list(zip(block.iters, bindings, strict=True))
    spatial = {v for it, b in pairs if it.kind == "spatial" for v in variables(b)}
    reducing = {v for it, b in pairs if it.kind == "reduce" for v in variables(b)}
    known = {v: n for v, n in extents.items() if n is not None}
    view = View(s, move.loop)
    plain = all(
        (found := view.linear(b, NO_ITERATORS)) is not None
        and found[2] == 0
        and all(c > 0 for terms in found[:2] for c in terms.values())
        for it, b in pairs
        if it.kind == "reduce"
    )
    mapped = None
    if len(known) == len(extents) and not spatial & reducing and plain and find_reducer(block) is not None:
        mapped = iteration_map(bindings, known, [s.resolve(t) for t in block.predicate])
    if mapped is None or not mapped.injective:
        raise ScheduleError(
            f"block {block.name!r} would not reduce every term once, the first one first",
            marks={block.name: "reduces along a dimension that the loop stores piece by piece"},
        )
