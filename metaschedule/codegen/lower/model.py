"""What becomes of a loop: decided here once, for the passes, the emitter, cost models and spaces.

A kind says how iterations may be carried out, not how they are. What a loop runs as follows from its kind,
its extent and the loops around it (`resolve_kind`), from what blocks inside ask for (`spend_copies`), and,
where it is vectorised, from whether its lanes may run together (`lanes.py`). The limits of other passes stand
here, too: how many versions a tile has (`loop_versioning`), which copies are transposed in registers
(`llvm/transpose.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

TILE_KINDS = ("unrolled", "vectorized")  # of the loops of a tile of registers
MOST_UNROLLED = 1024  # iterations; more is code that no cache holds
VECTORS_AT_ONCE = 4  # hardware vectors that one vectorised loop may become
MOST_TAILS = 4  # of one guard; where there are more, one version tests the guard
MOST_VERSIONS = 6  # from a choice on: full tiles may still have as many, of n versions the others an n-th
TRANSPOSED = (4, 8, 16)  # extents of the square tiles that are transposed in registers
INTERLEAVED = (2, 3, 4)  # vectors whose lanes are stored side by side


def resolve_kind(kind: str, extent: int | None, around: Collection[str]) -> str:
    """What a loop of a kind runs as, inside loops that run as `around`. Of these, loops of one iteration do
    not count: whatever they are, the loop runs as it would without them.

    >>> resolve_kind("vectorized", 8, ["parallel", "unrolled"]), resolve_kind("vectorized", 8, ["vectorized"])
    ('vectorized', 'serial')
    >>> resolve_kind("parallel", 8, ["serial"]), resolve_kind("parallel", 8, ["parallel"])
    ('parallel', 'serial')
    >>> resolve_kind("unrolled", 4096, []), resolve_kind("vectorized", None, [])
    ('serial', 'serial')
    """
    if kind == "vectorized":
        runs = extent is not None and "vectorized" not in around
    elif kind == "parallel":
        runs = extent is not None and extent != 1 and "parallel" not in around and "vectorized" not in around
    elif kind == "unrolled":
        runs = extent is not None and extent <= MOST_UNROLLED
    else:
        return kind
    return kind if runs else "serial"


def kept_loops(loops: Iterable[tuple[str, int | None]]) -> int:
    """Of the loops (kind, extent) around all uses of an intermediate buffer, outermost first, how many may
    share its memory: those whose iterations do not run together. Threads have memory of their own, lanes not.

    >>> kept_loops([("parallel", 4), ("serial", 8), ("vectorized", 8), ("serial", 2)])
    2
    """
    kinds = [kind if extent != 1 else "serial" for kind, extent in loops]
    return kinds.index("vectorized") if "vectorized" in kinds else len(kinds)


def spend_copies(copies: int | None, kind: str, extent: int | None) -> int | None:
    """How many of the copies that unrolling may make of a block are left outside of a loop around it. Where
    some are, a serial loop is unrolled.

    A block asks for 16 copies; around it, from inside: 4 serial, 8 vectorized, 3 serial, 2 serial
    4 serial: 16 // 4 = 4, unrolled;  8 vectorized: 4, lanes are no copies
    3 serial: 4 // 3 = 1, unrolled;   2 serial: 1 // 2 = 0, a loop, as is everything around it

    >>> spend_copies(16, "serial", 4), spend_copies(4, "vectorized", 8), spend_copies(1, "serial", 2)
    (4, 4, None)
    """
    if copies is None or kind == "vectorized":
        return copies
    left = copies // extent if extent and kind in ("serial", "unrolled") else 0
    return left or None


def share_copies(asked: Iterable[int | None]) -> int | None:
    """The copies that a loop may make of everything in its body: as many as the most modest part asks for."""
    budgets = list(asked)
    known = [copies for copies in budgets if copies is not None]
    return min(known) if known and len(known) == len(budgets) else None


def count_copies(loops: Sequence[tuple[str, int | None]], asked: int | None, lanes: int) -> int:
    """How many copies of a block, in hardware vectors, are written inside loops (kind, extent), outermost
    first. `asked` is its annotation.

    unrolled 6 around 16 lanes, with vectors of 8 lanes: 6 * 2 = 12 copies
    asked for 24, of which 6 are spent: 24 // 6 = 4, so that a serial loop of 4 around it is unrolled as well,
    48 copies, and one of 16 is not

    >>> count_copies([("parallel", 8), ("serial", 16), ("unrolled", 6), ("vectorized", 16)], 24, 8)
    12
    >>> count_copies([("parallel", 8), ("serial", 4), ("unrolled", 6), ("vectorized", 16)], 24, 8)
    48
    """
    runs: list[tuple[str, int | None]] = []
    for kind, extent in loops:
        around = [outer for outer, length in runs if length != 1]
        runs.append((resolve_kind(kind, extent, around), extent))
    copies = 1
    for kind, extent in reversed(runs):
        asked = spend_copies(asked, kind, extent)
        if kind == "unrolled" or (kind == "serial" and asked is not None):
            copies *= extent or 1
        elif kind == "vectorized":
            copies *= math.ceil((extent or 1) / lanes)
    return copies
