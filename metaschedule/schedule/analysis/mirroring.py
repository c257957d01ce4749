"""Whether and how a consumer can follow its producer: the plan of reverse_compute_at.

Read `plan_reverse_compute_at` first. In one iteration of the loop the producer stores some elements; the
consumer gets loops that are a mirror image of the producer's, so that it runs for exactly those elements, with
the tests of tiles that do not divide. Over all iterations the producer stores every element, so
the consumer runs everywhere. Where both are computed from other blocks below the loop, these must have stored
what is read by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...arith import iteration_map
from ...errors import ScheduleError
from ...ir import Block, Expr, For, Region, Var, as_int, binary, changed, const, free_vars, same_expr, substitute
from ..state import Key, Part, Split, State
from .accesses import Access, accesses, bound_plainly, covers_domain, describe, shared_variables, why_unsettled
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
    is_below,
    is_definition_test,
    leaves_of,
    position,
    shifted,
)
from .reducers import find_reducer
from .regions import Frame, Span, iteration


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
    check_reduction(s, block, Frame(s, meeting))
    check_readers(s, events, block)
    producers, partial = find_producers(s, events, block, loop, meeting)
    frame = Frame(s, loop)
    leader, links = find_leader(frame, block, producers)
    check_whole(s, block, leader, links, meeting)
    if not bound_plainly(s, leader):
        check_disjoint(s, frame, leader)
    mirror = Mirror(frame, leader)
    move = mirrored(mirror, block, links, preserve_unit_loops)
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
    mine = {r.buffer for r in block.writes}
    reducing = leaves_of(
        s, [b for it, b in zip(block.iters, block.bindings, strict=True) if it.kind == "reduce"]
    )
    place = next(n for n, e in enumerate(events) if e.key is block.name and not e.outside)
    for n, event in enumerate(events):
        if n != place and event.reads & mine:
            if n < place:
                raise ScheduleError(
                    f"{describe(event)} reads what block {block.name!r} stores, and runs before it",
                    marks={block.name: "stores it"},
                )
            if reducing & shared_variables(s, event.key, block.name):
                raise ScheduleError(
                    f"{describe(event)} reads what block {block.name!r} stores before its reduction is done",
                    marks={block.name: "reduces"},
                )


def find_producers(
    s: State, events: list[Access], block: Block, loop: Var, meeting: Key
) -> tuple[list[str], list[str]]:
    """The blocks below the loop that store what a block reads, and those in loops around that loop; others must
    be done before."""
    sources = {r.buffer for r in block.reads}
    branch = child_towards(s, loop, meeting)
    start = next((n for n, e in enumerate(events) if e.key is branch or is_below(s, e.key, branch)), 0)
    producers: list[str] = []
    partial: list[str] = []
    for n, event in enumerate(events):
        if not event.writes & sources or event.key is block.name:
            continue
        if n < start and not is_below(s, event.key, branch):
            continue
        within = isinstance(event.key, str) and is_below(s, event.key, branch)
        if not within or event.outside:
            raise ScheduleError(
                f"{describe(event)} stores what block {block.name!r} reads, and is not done by the loop over "
                f"{loop.name}",
                marks={loop: "would be read here"},
            )
        if s.scope(event.key) is not s.scope(loop):
            raise ScheduleError(
                f"{describe(event)}, which stores what block {block.name!r} reads, is inside of another block",
                marks={event.key: "inside of a block"},
            )
        check_block(s, s.nodes[event.key])
        below = is_below(s, event.key, loop)
        place = child_towards(s, event.key, loop) if below else loop
        around = loop if below else common(s, event.key, loop)
        if not below and position(s, event.key, around) > position(s, loop, around):
            raise ScheduleError(
                f"{describe(event)} stores what block {block.name!r} reads, and runs after the loop over "
                f"{loop.name}",
                marks={event.key: "later", loop: "earlier"},
            )
        check_settled(s, events, event, block, place)
        (producers if below else partial).append(event.key)
    if not producers:
        raise ScheduleError(
            f"no block below the loop over {loop.name} stores what block {block.name!r} reads",
            marks={loop: "nothing is stored here that it reads", block.name: "to be moved"},
        )
    return producers, partial


def check_settled(s: State, events: list[Access], event: Access, block: Block, place: Key) -> None:
    """Raises unless what a producer has stored by `place` is there for good."""
    producer: Block = s.nodes[event.key]
    around = shared_variables(s, event.key, place)
    pairs = zip(producer.iters, producer.bindings, strict=True)
    going_on = leaves_of(s, [b for it, b in pairs if it.kind == "reduce"]) & around
    if going_on:
        late = next(v for v in s.loops_around(producer.name) if v in going_on)
        raise ScheduleError(
            f"the reduction of block {producer.name!r} is not done in one iteration of that loop",
            marks={late: "a reduction loop", producer.name: "reduces over it", block.name: "needs the result"},
            help="take a loop outside of all reduction loops, or reorder them inwards",
        )
    why = why_unsettled(s, events, event, place)
    if why:
        raise ScheduleError(
            f"block {block.name!r} may read other values of block {producer.name!r} there: {why}",
            marks={producer.name: "stores them", block.name: "reads them"},
        )


# --- what is stored in one iteration --------------------------------------------------------------


def stored(
    s: State, producer: Block, block: Block
) -> list[tuple[Region, list[tuple[Var | None, int]]]]:
    """The regions that a block reads of a producer, each with the iterators that the producer stores it by."""
    forms = check_block(s, producer)
    read = [r for r in block.reads if r.buffer in forms]
    check_forms(producer, forms, [r.buffer for r in read])
    found: list[tuple[Region, list[tuple[Var | None, int]]]] = []
    for region in read:
        form: Form | None = forms[region.buffer]
        assert form is not None
        found.append((region, list(form)))
    return found


Links = dict[Var, tuple[Var, int]]  # iterator of the consumer: (iterator of the producer, what is added)


def find_leader(frame: Frame, block: Block, producers: list[str]) -> tuple[Block, Links]:
    """The producer that decides where a block runs, and its iterators that those of the block follow."""
    s = frame.s
    best: tuple[Block, Links] | None = None
    problem: ScheduleError | None = None
    for name in producers:
        producer: Block = s.nodes[name]
        try:
            links = find_links(frame, block, producer)
        except ScheduleError as error:
            problem = error
            continue
        if best is None or len(links) >= len(best[1]):
            best = producer, links
    if best is None:
        assert problem is not None
        raise problem
    return best


def find_links(frame: Frame, block: Block, producer: Block) -> Links:
    """The iterators of a block that must follow those of a producer: where one iteration of the loop stores only a
    part of a dimension, the block must read single elements along it."""
    bindings = iteration(producer)
    iters = {it.var: it for it in block.iters}
    links: Links = {}
    for region, form in stored(frame.s, producer, block):
        for (start, extent), (var, offset) in zip(region.ranges, form, strict=True):
            if var is None or all(frame.is_inner(v) for v in free_vars(bindings[var])):
                continue  # all of the dimension is there
            found = shifted(start) if as_int(extent) == 1 else None
            mine = None if found is None else found[0]
            if found is None or mine is None or mine not in iters:
                raise ScheduleError(
                    f"block {block.name!r} reads elements of {region.buffer.name} that other iterations of that "
                    "loop store",
                    marks={block.name: f"reads more of {region.buffer.name} than one element along a dimension",
                           producer.name: "stores them one by one"},
                    help="take a loop in which all of them are stored, or compute_at the producer",
                )  # fmt: skip
            link = var, offset - found[1]
            for known, (other, shift) in links.items():
                if (known is mine or other is var) and not (known is mine and other is var and shift == link[1]):
                    raise ScheduleError(
                        f"block {block.name!r} reads a diagonal of what block {producer.name!r} stores",
                        marks={block.name: "one iterator follows two, or two follow one"},
                    )
            links[mine] = link
    return links


def check_whole(s: State, block: Block, leader: Block, links: Links, meeting: Key) -> None:
    """Raises unless the elements that the leader stores, in one iteration of what is around both, are those that
    the block runs for there."""
    frame = Frame(s, meeting)
    sizes = {it.var: as_int(it.extent) or 0 for it in (*block.iters, *leader.iters)}
    for mine, (var, offset) in links.items():
        # mine = var + offset: all of mine must be there
        if offset > 0 or sizes[var] + offset < sizes[mine]:
            raise ScheduleError(
                f"block {leader.name!r} does not store all that block {block.name!r} reads",
                marks={leader.name: "stores less", block.name: "reads more"},
            )
    if not frame.outside:
        for one in (leader, block):
            if not covers_domain(s, one) and not fills_domain(frame, one):
                raise ScheduleError(
                    f"block {one.name!r} is not known to run for all values of its iterators",
                    marks={one.name: "may leave some out"},
                )
        return
    theirs, ours = iteration(leader), iteration(block)
    for it in block.iters:
        size = sizes[it.var]
        span = box_of(frame, block, ours[it.var], size)
        if it.var in links:
            var, offset = links[it.var]
            other = box_of(frame, leader, theirs[var], sizes[var])
            if other is not None:
                other = Span(other.terms, other.offset + offset, other.extent, other.other)
            same = span is not None and other is not None and span.is_within(other) and other.is_within(span)
        else:
            same = span is not None and not span.terms and span.offset <= 0 and span.extent >= size
        if not same:
            raise ScheduleError(
                f"block {block.name!r} is not known to run for all that block {leader.name!r} stores in one "
                "iteration of the loops around both",
                marks={block.name: "runs for less, or more", leader.name: "stores it"},
            )
    for one in (block, leader):
        check_independent(s, frame, one)


def box_of(frame: Frame, block: Block, binding: Expr, size: int) -> Span | None:
    """All values of an iterator in one iteration of a frame; None if it may be another set than a box."""
    span = frame.span(binding, const(1), block, {}, size)
    return span if span.dense and span.other is None else None


def fills_domain(frame: Frame, block: Block) -> bool:
    """Whether tiles that may overlap reach every point of the iterators."""
    s = frame.s
    for key in s.ancestors(block.name):
        if isinstance(key, str):
            break
        if not isinstance(key, Var) or (s.fixed_extent(key) or 0) < 1:
            return False
    try:
        check_independent(s, frame, block)
    except ScheduleError:
        return False
    for it, binding in zip(block.iters, block.bindings, strict=True):
        span = box_of(frame, block, binding, as_int(it.extent) or 0)
        if span is None or span.terms or span.offset > 0:
            return False
        if span.offset + span.extent < (as_int(it.extent) or 0):
            return False
    return True


def check_independent(s: State, frame: Frame, block: Block) -> None:
    """Raises unless the iterators take their values inside of a frame independently of each other, and tests
    exclude nothing but what is beyond the iterators' extents."""
    check_disjoint(s, frame, block)
    for test in block.predicate:
        check_test(s, frame, block, test)


def check_disjoint(s: State, frame: Frame, block: Block) -> None:
    """Raises unless each iterator is a sum over variables of its own inside of a frame."""
    seen: list[tuple[Var, set[Var]]] = []
    for binding in block.bindings:
        found = frame.linear(binding, {})
        if found is None:
            raise ScheduleError(
                f"a binding of block {block.name!r} is not a sum over loops: {binding}",
                marks={block.name: "bound to it"},
            )
        seen += [(v, set(s.leaves(v)) - frame.outside) for v in found[0] if not frame.is_outer(v)]
    for n, (var, leaves) in enumerate(seen):
        for other, more in seen[:n]:
            if leaves & more and not are_parts(s, var, other):
                raise ScheduleError(
                    f"two iterators of block {block.name!r} depend on one loop",
                    marks={block.name: "its iterators are not independent"},
                )


def check_test(s: State, frame: Frame, block: Block, test: Expr) -> None:
    """Raises unless a conjunct cuts off the end of an iterator's domain, or of a variable inside of a frame."""
    at, first, last = as_bound(block, test)
    if at is not None:
        size = as_int(block.iters[at].extent) or 0
        if (first is None or first <= 0) and (last is None or last >= size - 1):
            return
    if is_definition_test(s, test) and all(frame.is_inner(v) for v in free_vars(test)):
        return
    raise ScheduleError(
        f"block {block.name!r} runs under a condition: {test}", marks={block.name: "has a predicate"}
    )


def are_parts(s: State, a: Var, b: Var) -> bool:
    """Whether two variables are different digits of one fused loop."""
    one, two = s.definitions.get(a), s.definitions.get(b)
    return (
        isinstance(one, Part) and isinstance(two, Part) and one.whole is two.whole and one.index != two.index
    )


def check_has_stored(s: State, block: Block, producer: Block, loop: Var, mirror: Mirror) -> None:
    """Raises unless a producer that does not lead has stored what a block (with its new bindings) reads."""
    below = is_below(s, producer.name, loop)
    frame = Frame(s, loop if below else common(s, producer.name, loop))
    reader = Frame(s, loop)
    inner = {id(v) for v in mirror.loops}
    check_independent_or_same(s, frame, block, producer)
    bindings, mine = iteration(producer), iteration(block)
    for region, form in stored(s, producer, block):
        for (start, extent), (var, offset), n in zip(region.ranges, form, region.buffer.shape, strict=True):
            if var is None:
                continue
            size = next(as_int(it.extent) or 0 for it in producer.iters if it.var is var)
            have = box_of(frame, producer, bindings[var], size)
            if have is not None and not have.terms and have.offset <= 0 and have.extent >= size:
                continue
            need = need_of(reader, start, extent, mine, mirror, inner)
            if have is not None and need is not None:
                have = Span(have.terms, have.offset + offset, have.extent)
                if need.is_within(have):
                    continue
            raise ScheduleError(
                f"block {producer.name!r} has not stored all that block {block.name!r} reads by then",
                marks={producer.name: f"stores part of {region.buffer.name}", loop: "in one iteration"},
            )


def common(s: State, key: Key, loop: Var) -> Key:
    """The innermost node around both."""
    above = {id(k) for k in s.ancestors(key)}
    return next(k for k in (loop, *s.ancestors(loop)) if id(k) in above)


def check_independent_or_same(s: State, frame: Frame, block: Block, producer: Block) -> None:
    """As `check_independent`; a test that the reader has as well is fine."""
    shared = [t for t in producer.predicate if any(same_expr(t, mine) for mine in block.predicate)]
    rest = tuple([t for t in producer.predicate if not any(t is x for x in shared)])
    check_independent(s, frame, changed(producer, predicate=rest) if shared else producer)


def need_of(
    frame: Frame, start: Expr, extent: Expr, iters: dict[Var, Expr], mirror: Mirror, inner: set[int]
) -> Span | None:
    """The values of an index as the new loops of the mirror range."""
    width = as_int(extent)
    found = frame.linear(start, iters)
    if found is None or width is None:
        return None
    terms: dict[Var, int] = {}
    low, high = found[1], found[1] + width - 1
    for var, c in found[0].items():
        if id(var) in inner:
            reach = c * (mirror.loops[var] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        else:
            terms[var] = c
    return Span(terms, low, high - low + 1)


# --- the mirror -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Mirror:
    """New loops in the place of a producer's loops inside of a frame."""

    frame: Frame
    producer: Block
    loops: dict[Var, int] = field(default_factory=dict)  # new loops and their extents
    known: dict[Var, Expr] = field(default_factory=dict)
    used: list[tuple[Var, set[Var]]] = field(default_factory=list)  # what was replaced, with its loops

    def fresh(self, extent: int) -> Var:
        var = Var("ax")
        self.loops[var] = extent
        return var

    def expr(self, e: Expr) -> Expr | None:
        """`e` with new loops; None if that is not possible."""
        return substituted(e, self)

    def variable(self, var: Var) -> Expr | None:
        found = self.known.get(var)
        if found is None:
            found = self.work_out(var)
            if found is not None:
                self.known[var] = found
        return found

    def work_out(self, var: Var) -> Expr | None:
        s, frame = self.frame.s, self.frame
        if frame.is_outer(var):
            return var
        known = s.definitions.get(var)
        if frame.is_inner(var):
            count, extent = frame.values(var, self.producer), s.fixed_extent(var)
            if count is not None and count == extent:
                return self.replaced([var], extent)
        if isinstance(known, Split):
            return self.digits(known)
        if isinstance(known, Part):
            whole = self.variable(known.whole)
            if whole is None:
                return None
            stride = 1
            for digit in known.digits[known.index + 1 :]:
                stride *= s.fixed_extent(digit) or 0
            if not stride:
                return None
            value = whole // stride
            return value % s.extents[known.digits[known.index]] if known.index else value
        return None

    def digits(self, known: Split) -> Expr | None:
        """The number of some digits. Digits that are next to each other and inside become one loop."""
        s, frame = self.frame.s, self.frame
        value: Expr | None = None
        stride = 1
        run: list[Var] = []
        parts: list[tuple[Expr, int]] = []

        def finish(at: int) -> bool:
            if not run:
                return True
            extent = 1
            for digit in run:
                extent *= s.fixed_extent(digit) or 0
            new = self.replaced(list(run), extent)
            run.clear()
            if new is not None:
                parts.append((new, at))
            return new is not None

        start = 1
        for digit in reversed(known.digits):
            size = s.fixed_extent(digit)
            if size is None:
                return None
            if frame.is_inner(digit) and frame.values(digit, self.producer) == size:
                start = start if run else stride
                run.append(digit)
            else:
                if not finish(start):
                    return None
                one = self.variable(digit)
                if one is None:
                    return None
                parts.append((one, stride))
            stride *= size
        if not finish(start):
            return None
        for part, factor in reversed(parts):
            term = part if factor == 1 else part * factor
            value = term if value is None else value + term
        return value

    def replaced(self, old: list[Var], extent: int) -> Var | None:
        """A new loop for variables inside; None if one of their loops was replaced otherwise before."""
        s = self.frame.s
        new = self.fresh(extent)
        leaves = {leaf for v in old for leaf in s.leaves(v)}
        for other, more in self.used:
            if leaves & more and not (len(old) == 1 and are_parts(s, old[0], other)):
                return None
        self.used += [(v, leaves) for v in old]
        return new


def substituted(e: Expr, mirror: Mirror) -> Expr | None:
    values: dict[Var, Expr] = {}
    for var in free_vars(e):
        new = mirror.variable(var)
        if new is None:
            return None
        values[var] = new
    return substitute(e, values)


def mirrored(mirror: Mirror, block: Block, links: Links, units: bool) -> Move:
    """The block with bindings that follow those of the mirror's producer, and full loops where there are none."""
    producer, frame = mirror.producer, mirror.frame
    theirs = iteration(producer)
    bindings: list[Expr] = []
    tests: list[Expr] = []
    for it in block.iters:
        link = links.get(it.var)
        size = as_int(it.extent) or 0
        if link is None:
            bindings.append(mirror.fresh(size))
            continue
        image = mirror.expr(theirs[link[0]])
        if image is None:
            raise ScheduleError(
                f"the loops of block {producer.name!r} cannot be followed: {theirs[link[0]]}",
                marks={producer.name: "its loops"},
            )
        bindings.append(image + link[1] if link[1] >= 0 else image - -link[1])
    carried = carried_tests(mirror, producer, {v for b in bindings for v in free_vars(b)})
    for it, binding in zip(block.iters, bindings, strict=True):
        link = links.get(it.var)
        if link is not None:
            var, offset = link
            size = as_int(it.extent) or 0
            stored = next(as_int(x.extent) or 0 for x in producer.iters if x.var is var)
            if offset < 0:
                tests.append(binary(">=", binding, const(0)))
            if stored + offset > size:
                tests.append(binary("<", binding, const(size)))
    used = {v for b in bindings for v in free_vars(b)}
    loops = [(v, n) for v, n in mirror.loops.items() if v in used]
    dropped = {v: const(0) for v, n in loops if n == 1 and not units}
    final: list[For] = []
    names: dict[Var, Expr] = dict(dropped)
    for n, (v, extent) in enumerate((v, n) for v, n in loops if v not in dropped):
        new = Var(f"ax{n}")
        names[v] = new
        final.append(For(new, const(extent), ()))
        mirror.loops[new] = extent
    new = changed(
        block,
        bindings=tuple([substitute(b, names) for b in bindings]),
        predicate=tuple([substitute(t, names) for t in (*carried, *tests)]),
    )
    assert isinstance(frame.key, Var)
    return Move(new, final, frame.key, 0)


def carried_tests(mirror: Mirror, producer: Block, used: set[Var]) -> list[Expr]:
    """The tests of a producer, for its mirror image."""
    frame = mirror.frame
    s = frame.s
    found: list[Expr] = []
    spatial = leaves_of(
        s, [b for it, b in zip(producer.iters, producer.bindings, strict=True) if it.kind == "spatial"]
    )
    for test in producer.predicate:
        inside = {v for v in leaves_of(s, [test]) if v not in frame.outside and v in s.nodes}
        if is_definition_test(s, test) and all(frame.is_inner(v) for v in free_vars(test)):
            continue  # of a variable that has become one loop, or of a reduction
        if not inside <= spatial:
            raise ScheduleError(
                f"a test of block {producer.name!r} mixes its results and its terms: {test}",
                marks={producer.name: "has a predicate"},
            )
        image = mirror.expr(test)
        if image is None or any(v in mirror.loops and v not in used for v in free_vars(image)):
            raise ScheduleError(
                f"a test of block {producer.name!r} cannot be carried along: {test}",
                marks={producer.name: "has a predicate"},
            )
        found.append(image)
    return found


def check_parallel(s: State, move: Move, leader: Block, meeting: Key) -> None:
    """Raises if two iterations of a loop that is not serial would store the same element."""
    block = move.block
    for var in (*s.loops_around(move.loop), move.loop):
        if s.nodes[var].kind in ("serial", "unrolled") or var in Frame(s, meeting).outside:
            continue
        pairs = zip(block.iters, block.bindings, strict=True)
        own = leaves_of(s, [b for it, b in pairs if it.kind == "spatial"])
        if var not in own or not bound_plainly(s, leader):
            raise ScheduleError(
                f"iterations of the {s.nodes[var].kind} loop over {var.name} may store the same elements",
                marks={var: "not serial", block.name: "would run in it"},
                help="move the block before making the loop parallel",
            )


def check_terms(s: State, move: Move, meeting: Key) -> None:
    """Raises unless every term of a reduction that goes on over the loop comes once, the first one first."""
    block = move.block
    loops = [v for v in (*s.loops_around(move.loop), move.loop) if v not in Frame(s, meeting).outside]
    extents = {v: s.fixed_extent(v) for v in loops} | {f.var: as_int(f.extent) for f in move.loops}
    bindings = [s.resolve(b) for b in block.bindings]
    pairs = list(zip(block.iters, bindings, strict=True))
    spatial = {v for it, b in pairs if it.kind == "spatial" for v in free_vars(b)}
    reducing = {v for it, b in pairs if it.kind == "reduce" for v in free_vars(b)}
    known = {v: n for v, n in extents.items() if n is not None}
    frame = Frame(s, move.loop)
    plain = all(
        (found := frame.linear(b, {})) is not None and found[1] == 0 and all(c > 0 for c in found[0].values())
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

