"""Whether and how a producer can be computed where it is used: the plan of compute_at.

Read `plan_compute_at` first. One iteration of the loop must find everything that the blocks below read of the
producer; it is computed there afresh, whatever other iterations did, so regions may overlap and may be
larger than needed. That is right if the producer's own inputs have the same values there as where it was.
"""

from __future__ import annotations

from ...affine.form import iteration
from ...affine.interned import less, number, plus
from ...affine.view import Interval, View
from ...errors import ScheduleError
from ...ir import INDEX, Binary, Block, Buffer, Const, Expr, For, Region, Var, changed
from ..state import ROOT, Key, State
from .moving import (
    Form,
    Move,
    check_block,
    check_forms,
    check_only_writer,
    check_place,
    check_reduction,
    instances,
    position,
)
from .touching import Access, accesses, touch, why_sources_change


def plan_compute_at(s: State, block: Block, loop: Var, preserve_unit_loops: bool) -> Move:
    """How to compute a block below a loop; raises `ScheduleError` if that would be wrong."""
    forms = check_block(s, block)
    meeting = check_place(s, block, loop)
    check_not_output(s, block)
    events = accesses(s)
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
    box = instances(s, block)
    read = {r.buffer for b in consumers for r in b.reads}
    needed = [w.buffer for w in block.writes if w.buffer in read]
    check_forms(block, forms, needed)
    view = View(s, loop)
    spans = required(view, block, forms, needed, consumers)
    at = min(position(s, b.name, loop) for b in consumers)
    return placed(view, block, box, spans, at, preserve_unit_loops)


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


def check_consumers(s: State, events: list[Access], block: Block, loop: Var) -> list[Block]:
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


def required(
    view: View, block: Block, forms: dict[Buffer, Form | None], needed: list[Buffer], consumers: list[Block]
) -> dict[Var, Interval]:
    """Per spatial iterator the values that one iteration of the loop needs."""
    spans: dict[Var, Interval] = {}
    for buffer in needed:
        form = forms[buffer]
        assert form is not None
        for consumer in consumers:
            for region in consumer.reads:
                if region.buffer is not buffer:
                    continue
                for span, (var, offset), n in zip(
                    touched(view, region, consumer), form, buffer.shape, strict=True
                ):
                    if var is None:
                        continue
                    span, size = span.moved(-offset), n + abs(offset)
                    spans[var] = union_of(view, spans[var], span, size) if var in spans else span
    return spans


def placed(
    view: View, block: Block, box: list[tuple[int, int]], spans: dict[Var, Interval], at: int, units: bool
) -> Move:
    """The block with a loop per iterator over what is needed of its domain."""
    loops: list[For] = []
    bindings: list[Expr] = []
    tests: list[Expr] = []
    for n, (it, (first, last)) in enumerate(zip(block.iters, box, strict=True)):
        found = spans.get(it.var)
        span = Interval({}, first, last - first + 1) if found is None else clipped(found, first, last)
        binding: Expr = span.start
        if units or span.extent != 1:
            var = view.s.fresh(f"ax{n}")
            loops.append(For(var, number(span.extent), ()))
            binding = var if isinstance(binding, Const) and not binding.value else plus(binding, var)
        bindings.append(binding)
        if not span.is_fixed:
            low, high = view.bounds(span)
            if low is None or low < first:
                tests.append(Binary(">=", binding, Const(first, INDEX), "bool"))
            if high is None or high + span.extent - 1 > last:
                tests.append(less(binding, number(last + 1)))
    new = changed(block, bindings=tuple(bindings), predicate=tuple(tests))
    assert isinstance(view.key, Var)
    return Move(new, loops, view.key, at)


def touched(view: View, region: Region, block: Block) -> list[Interval]:
    """The spans of a region of a block's signature, per dimension, as the loops inside of a view range."""
    iters = iteration(block)
    return [
        view.interval(start, extent, block, iters, size)
        for (start, extent), size in zip(region.ranges, region.buffer.shape, strict=True)
    ]


def union_of(view: View, a: Interval, b: Interval, size: int) -> Interval:
    """A span that covers two; all of the `size` values where they cannot be compared."""
    if a.terms == b.terms and a.other is b.other:
        low = min(a.offset, b.offset)
        high = max(a.offset + a.extent, b.offset + b.extent)
        return Interval(a.terms, low, high - low, a.other, dense=False)
    # Starts that move apart: constant ends of both, if they are known.
    ends = [(*view.bounds(x), x.extent) for x in (a, b)]
    lows = [low for low, _, _ in ends if low is not None]
    highs = [high + extent for _, high, extent in ends if high is not None]
    if len(lows) < 2 or len(highs) < 2:
        return Interval({}, 0, size, dense=False)
    return Interval({}, min(lows), max(highs) - min(lows), dense=False)


def clipped(span: Interval, first: int, last: int) -> Interval:
    """A span cut down to [first, last] where that needs no test: if it is as wide, or does not move."""
    width = last - first + 1
    if span.is_fixed:
        low, high = max(span.offset, first), min(span.offset + span.extent - 1, last)
        return Interval({}, low, high - low + 1) if low <= high else Interval({}, first, 0)
    return Interval({}, first, width) if span.extent >= width else span
