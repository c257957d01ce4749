"""The primitive reorder: nested loops in another order.

for i, k: C[i] += A[i, k]      the terms of one C[i] come in the order of k, whichever loop is outside:
                               a sum may have its loops in any order
for i, j: X[i] = ...           which of the instances over j stores X[i] last would change: refused
"""

from __future__ import annotations

from typing import Any

from ...affine.definitions import leaf_loops_by_kind, leaf_loops_of
from ...errors import ScheduleError
from ...ir import Block, Const, Var
from ...ir.reducers import commutes
from ..analysis.block_dependence import order_matters
from ..analysis.effects import touch
from ..analysis.iteration_domain import check_once
from ..state import State
from .base import LoopRV, Primitive, primitive
from .kinds import loop_carried_dependence


@primitive("reorder")
class Reorder(Primitive):
    """Change the order of nested loops; loops between them that are not named keep their places.

    rewrite:   for i: for j: for k: S[i, j, k]
          -->  for k: for i: for j: S[i, j, k]
    requires:  1. the loops lie on one chain in which every loop is the whole body of the one before
               2. no loop moves outside of one that its extent depends on
               3. instances of the blocks below may run in another order (see `check_reorderable`)
    """

    loops: tuple[LoopRV, ...]

    def check(self, s: State) -> tuple[list[Var], list[Var]]:
        wanted = [s.loop(h).var for h in self.loops]
        if not wanted or len(set(wanted)) != len(wanted):
            raise ScheduleError("reorder needs different loops, at least one")
        chain = self.chain(s, wanted)
        places = iter(wanted)
        named = set(wanted)
        order = [next(places) if v in named else v for v in chain]
        for at, var in enumerate(order):
            if type(s.extents[var]) is Const:
                continue
            used = leaf_loops_of(s, [s.extents[var]])
            if late := [v for v in order[at:] if v in used]:
                raise ScheduleError(
                    f"the extent of {var.name} depends on {late[0].name}, which would be inside of it",
                    marks={var: f"its extent is {s.extents[var]}"},
                )
        check_reorderable(s, chain, order)
        return chain, order

    def chain(self, s: State, wanted: list[Var]) -> list[Var]:
        """The loops from the outermost to the innermost of the wanted ones."""
        path: list[Var] = []
        around: set[Var] = set()
        for var in reversed(wanted):  # most often from the outside in
            if var not in around:
                path = max([*s.loops_around(var), var], path, key=len)
                around = set(path)
        missing = [v for v in wanted if v not in around]
        if missing:
            raise ScheduleError(
                "the loops are not nested in each other",
                marks={path[-1]: "not inside the other", missing[0]: "not around it"},
            )
        named = set(wanted)
        chain = path[next(n for n, v in enumerate(path) if v in named) :]
        for above, below in zip(chain, chain[1:]):
            if not s.is_only_child(below, of=above):
                raise ScheduleError(
                    "the loops are not perfectly nested",
                    marks={above: "has more in its body", below: "than this loop"},
                    help="move the other statements away first (compute_at, decompose_reduction)",
                )
        return chain

    def apply(self, s: State, plan: tuple[list[Var], list[Var]]) -> tuple[Any, ...]:
        chain, order = plan
        body = s.children[chain[-1]]
        s.put_at(chain[0], [order[0]])
        for above, below in zip(order, order[1:]):
            s.set_children(above, [below])
        s.set_children(order[-1], body)
        return ()


# --- another order of instances -------------------------------------------------------------------


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
