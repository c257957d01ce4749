"""Whether the blocks below some loops may run with the loops in another order."""

from __future__ import annotations

from ...affine.definitions import leaf_loops_by_kind
from ...errors import ScheduleError
from ...ir import Block, Var
from ..state import State
from .block_dependence import order_matters
from .dependence import loop_carried_dependence
from .effects import touch
from .iteration_domain import check_once
from .reducers import commutes


def check_reorderable(s: State, before: list[Var], after: list[Var]) -> None:
    """Raises unless the blocks below may run with the loops `before` in the order `after`."""
    below: list[Block] = []
    for child in s.statements_below(before[-1]):
        if isinstance(child, Var):
            continue
        if not isinstance(child, str):
            raise ScheduleError(
                "there is a statement outside of any block, whose order may matter",
                marks={before[-1]: "it is in this loop"},
                help="put it in a block",
            )
        below.append(s.nodes[child])
        check_block(s, below[-1], before, after)
    if len(below) > 1 and share_written(below):
        check_between_blocks(s, before, after)


def share_written(blocks: list[Block]) -> bool:
    """Whether a block touches what another one writes."""
    touched = [touch(b) for b in blocks]
    return any(one.writes & (x.reads | x.writes) for one in touched for x in touched if x is not one)


def check_between_blocks(s: State, before: list[Var], after: list[Var]) -> None:
    """Blocks that pass values to each other must do so within one iteration of the loops that move."""
    for var, place in zip(before, after, strict=True):
        if var is not place and (why := loop_carried_dependence(s, var)) is not None:
            raise ScheduleError(
                f"blocks below may pass values between iterations of {var.name}: {why}",
                marks={var: "its place would change"},
            )


def check_block(s: State, block: Block, before: list[Var], after: list[Var]) -> None:
    why = order_matters(s, block)
    if why:
        raise ScheduleError(
            f"the order of the instances of block {block.name!r} may matter: {why}", marks={block.name: why}
        )
    spatial, reducing = leaf_loops_by_kind(s, block)
    if not reducing:
        return
    loops = s.loops_around(block.name)
    check_once(s, block, loops[next(n for n, v in enumerate(loops) if v is before[0]) :])
    # The init may be a block of its own by now, which runs before. If it is not, it must stay first: in loops
    # that drive both kinds of iterators that depends on their order.
    mixed = block.init and not reducing.isdisjoint(spatial)
    if not mixed and commutes(block):
        return
    kept = zip([v for v in before if v in reducing], [v for v in after if v in reducing], strict=True)
    if any(a is not b for a, b in kept):
        raise ScheduleError(
            f"block {block.name!r} does not reduce by an operation that is known to commute, "
            "or its init would not be first",
            marks={block.name: "its reduction loops must keep their order"},
            help="sum, prod, min, max and their tuples commute",
        )
