"""What conditions do to a nest.

Lowering makes a version without tests of every tile that a guard may cut, so that only the last tile is
slower; tests that are left run with the innermost loop or, where they are about lanes, become masks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..codegen.lower.model import TILE_KINDS
from .nest import NestedStore, StoreGuard


class GuardEffect(NamedTuple):
    """`executed` is the share of iterations that get past guards; `cut` and `masked` the share of tiles that
    lose some of an unrolled or of a vectorised loop (all but `rest` lanes; 0 if only the running program
    knows); `tests` remain for every iteration of the innermost loop, `lane_tests` for every vector."""

    executed: float
    cut: float
    masked: float
    rest: int
    tests: int
    lane_tests: int


def effect_of_guards(nest: NestedStore) -> GuardEffect:
    """128 rows in tiles of 6, `6 * i_0 + i_1 < 128`, i_0 < 22, i_1 unrolled: the sum takes 132 values
    (`reach`) of which a tile has 6 (`width`), so that 21 of 22 tiles are full and 1 / 22 is `cut`. The same
    test on loops that are neither unrolled nor vectorised leaves 128 / 132 of the iterations `executed`."""
    kinds = {loop.var: loop.kind for loop in nest.loops}
    unrolled = {loop.var: loop.extent for loop in nest.loops if loop.kind == "unrolled"}
    innermost = next((loop.var for loop in reversed(nest.loops) if loop.kind not in TILE_KINDS), None)
    of_tiles: list[tuple[StoreGuard, int, int, int]] = []  # with the limit, from whichever side
    of_loops: list[StoreGuard] = []
    executed, tests, lane_tests = nest.executed, 0, 0
    for guard in nest.guards:
        reach = width = 1
        for (var, low, high), k in guard.form.items():
            span = abs(k) * ((high - 1) // low)
            reach += span
            width += span if kinds.get(var) in TILE_KINDS else 0
        limit = max(0, reach - guard.limit if guard.below else guard.limit)
        if reach <= limit:
            continue
        tests += any(var is innermost for var, _, _ in guard.form)
        if width > 1:
            of_tiles.append((guard, limit, reach, width))
        else:
            of_loops.append(guard)
            executed *= limit / reach
    uncut = unmasked = 1.0
    rest = 0
    for guard, limit, reach, width in of_tiles:
        variables = {var for var, _, _ in guard.form}
        full, tiles = limit // width, -(-reach // width)
        if any(kinds.get(var) == "vectorized" for var in variables):
            # One tail is at a known place, so that its lanes are known; several are not.
            known = tiles == full + 1 and (full > 0 or not of_loops)
            if not known or limit % width:
                unmasked *= full / tiles
                rest = limit % width if known else 0
        else:
            if any(var in variables for g in of_loops for var, _, _ in g.form):
                tiles = -(-limit // width)  # empty tiles are left out by the other guard
            uncut *= full / tiles
    for variables in nest.conditions:
        copies = math.prod(unrolled.get(var, 1) for var in variables)
        tests += copies if copies > 1 or innermost in variables else 0
        lane_tests += any(kinds.get(var) == "vectorized" for var in variables)
    return GuardEffect(executed, 1 - uncut, 1 - unmasked, rest, tests, lane_tests)
