"""What runs before and after a block that moves: producers of what it reads, readers of what it stores."""

from __future__ import annotations

from ...affine.definitions import leaf_loops_by_kind
from ...errors import ScheduleError
from ...ir import Block, Var
from ..state import Key, State
from .effects import Effect, place_of, shared_variables, touch, why_not_stable, writers
from .moving import check_block, child_towards, position


def check_readers(s: State, block: Block, readers: list[Effect]) -> None:
    """Raises unless everything that reads what a block stores comes after it, and after all its terms."""
    place = place_of(s, block.name)
    for event in readers:
        there = place_of(s, event)
        if there < place:
            raise ScheduleError(
                f"{event.describe()} reads what block {block.name!r} stores, and runs before it",
                marks={block.name: "stores it"},
            )
        reducing = leaf_loops_by_kind(s, block)[1]
        if there > place and reducing & shared_variables(s, event.key, block.name):
            raise ScheduleError(
                f"{event.describe()} reads what block {block.name!r} stores before its reduction is done",
                marks={block.name: "reduces"},
            )


def find_producers(s: State, block: Block, loop: Var, meeting: Key) -> tuple[list[str], list[str]]:
    """The blocks below the loop that store what a block reads, and those in loops around that loop; others
    must be done before."""
    sources = touch(block).reads
    branch = child_towards(s, loop, meeting)
    start = place_of(s, branch)
    producers: list[str] = []
    partial: list[str] = []
    for event in writers(s, sources):
        if event.key is block.name or place_of(s, event) < start:
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
        check_settled(s, event, block, place)
        (producers if below else partial).append(s.nodes[event.key].name)
    if not producers:
        raise ScheduleError(
            f"no block below the loop over {loop.name} stores what block {block.name!r} reads",
            marks={loop: "nothing is stored here that it reads", block.name: "to be moved"},
        )
    return producers, partial


def check_settled(s: State, event: Effect, block: Block, place: Key) -> None:
    """Raises unless what a producer has stored by `place` is there for good."""
    why = why_not_stable(s, event, place, parallel=False)  # it is read by the same iteration
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
