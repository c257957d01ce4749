"""The primitive merge: one loop of loops that follow one another.

for i in range(8): X[i] = ...       side by side, iteration 3 reads X[4], which iteration 4 writes:
for j in range(8): ... X[j + 1]     refused; with X[j] or X[j - 1] what is read has been written
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ... import ir
from ...affine.alias import may_meet_later
from ...affine.definitions import Split
from ...errors import ScheduleError
from ..analysis.effects import accesses_below
from ..state import Key, State
from .base import LoopRV, Primitive, primitive
from .loops import check_plain, joined_name


def fusion_preventing_dependence(s: State, loops: list[ir.Var]) -> str | None:
    """Why loops that follow one another may not become one: an iteration of a later loop needs or disturbs
    iterations of an earlier one that would come after it. None if that is certainly not so."""
    parts = [accesses_below(s, v) for v in loops]
    for part in parts:
        if part.problem:
            return part.problem
    for n, later in enumerate(parts):
        for m, earlier in enumerate(parts[:n]):
            for buffer in {**earlier.written, **later.written}:
                if buffer in earlier.loaded or buffer in later.loaded:
                    return f"{buffer.name} is written, and an extent or a condition depends on it"
                for a in earlier.accesses.get(buffer, ()):
                    for b in later.accesses.get(buffer, ()):
                        if not (a.is_write or b.is_write):
                            continue
                        if may_meet_later(s, (loops[n], b), (loops[m], a)) is not False:
                            return (
                                f"block {b.block.name!r} may touch elements of {buffer.name} that block "
                                f"{a.block.name!r} touches in a later iteration"
                            )
    return None


@primitive("merge")
class Merge(Primitive):
    """Make one loop of loops that follow one another; its body is their bodies, one after the other.

    rewrite:   for i in range(n): S[i]
               for j in range(n): R[j]
          -->  for i_j in range(n): S[i_j]; R[i_j]
    requires:  1. there are at least two loops, in program order, next to each other in one body
               2. all are serial and not annotated
               3. their extents are equal, and nothing that the loops write changes them
               4. no iteration of a later loop touches what a later iteration of an earlier loop touches,
                  where one of them writes it
               5. no block below checks an assertion, which would come too late
    """

    loops: tuple[LoopRV, ...]

    def check(self, s: State) -> list[ir.For]:
        loops = [s.loop(h) for h in self.loops]
        if len(loops) < 2:
            raise ScheduleError("merge needs at least two loops")
        if len({loop.var for loop in loops}) < len(loops):
            raise ScheduleError("a loop is named twice")
        self.check_adjacent(s, loops)
        for loop in loops:
            check_plain(loop, "merge")
        self.check_extents(s, loops)
        for loop in loops:
            for name in s.blocks_below(loop.var):
                if has_assertion(s, name):
                    raise ScheduleError(
                        f"block {name!r} checks an assertion, which others may rely on",
                        marks={name: "has an assertion"},
                    )
        why = fusion_preventing_dependence(s, [loop.var for loop in loops])
        if why:
            raise ScheduleError(
                f"the loops cannot run side by side: {why}",
                marks={loop.var: "to be merged" for loop in loops},
            )
        return loops

    def check_adjacent(self, s: State, loops: list[ir.For]) -> None:
        for first, second in pairwise(loops):
            parent = s.parent[first.var]
            around, place = s.children[parent], s.number_among_siblings(first.var, parent)
            if place + 1 == len(around) or around[place + 1] is not second.var:
                raise ScheduleError(
                    "the loops do not follow one another",
                    marks={first.var: "first", second.var: "must come right after it"},
                    help="name loops of one body in program order, with nothing between them",
                )

    def check_extents(self, s: State, loops: list[ir.For]) -> None:
        first = s.resolve(loops[0].extent)
        for loop in loops[1:]:
            extent = s.resolve(loop.extent)
            if not ir.same_expr(first, extent):
                raise ScheduleError(
                    f"the extents differ: {first} and {extent}",
                    marks={loops[0].var: f"{first} iterations", loop.var: f"{extent} iterations"},
                    help="loop_partition cuts off what is too long",
                )
        if ir.has_load(first):
            raise ScheduleError(
                "the extent is a loaded value, which the loops may change",
                marks={loops[0].var: f"{first} iterations"},
            )

    def apply(self, s: State, plan: list[ir.For]) -> tuple[Any, ...]:
        merged = ir.Var(joined_name([loop.var for loop in plan]))
        body = [key for loop in plan for key in s.children[loop.var]]
        s.replace(plan[0].var, [merged])
        for loop in plan[1:]:
            s.replace(loop.var, [])
        s.nest([ir.For(merged, plan[0].extent, ())], body)
        for loop in plan:
            s.define(loop.var, Split((merged,)))
        return (merged,)


def has_assertion(s: State, key: Key) -> bool:
    node = s.nodes[key]
    return any(isinstance(x, ir.Assert) for x in ir.walk(node)) or any(
        has_assertion(s, child) for child in s.children[key]
    )
