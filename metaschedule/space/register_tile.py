"""How many results stay in registers: a random variable informed by the machine.

A tile of rows by vectors of columns needs a register for each accumulator, one per vector of the streamed
operand and one for the broadcast value. Fewer than eight accumulators cannot hide the latency of a fused
multiply-add; more than there are registers spill. Sizes need not divide the extents.
"""

from __future__ import annotations

import itertools
import math
import random
from functools import lru_cache
from typing import Any

from ..schedule import LoopRV, distribution
from ..schedule.distribution import Sizes

Tile = list[int]
MOST_VECTORS = 4  # in a row of the tile
ENOUGH = 8  # accumulators that hide the latency: two units, four cycles


@distribution("sample_register_tile")
class RegisterTile(Sizes):
    """One size per loop; the last is along the vectors, in elements: whole vectors where the extent has any.

    >>> tile = RegisterTile((128, 128), 8, 16)
    >>> [6, 16] in tile.support(), [7, 16] in tile.support()
    (True, False)
    """

    loops: tuple[LoopRV | int, ...]
    lanes: int
    registers: int

    def problem(self) -> str | None:
        if not self.loops or self.lanes < 1 or self.registers < 3:
            return f"there must be a loop, a lane and three registers, got {self!r}"
        return None

    def support(self) -> list[Tile]:
        return [list(tile) for tile in tiles(self.key)]

    @property
    def key(self) -> tuple[tuple[Any, ...], int, int, bool]:
        return self.loops, self.lanes, self.registers, False

    def draw(self, rng: random.Random) -> Tile:
        options = self.support()
        return rng.choices(options, [self.merit(tile) ** 4 for tile in options])[0]

    def merit(self, tile: Tile) -> float:
        """The share of the peak that the tile could reach: latency hidden, loads per multiply-add, waste."""
        vectors = -(-tile[-1] // self.lanes)
        rows = math.prod(tile[:-1])
        hidden = min(1.0, rows * vectors / ENOUGH)
        loads = min(1.0, 2 * rows * vectors / (rows + vectors) / 2)
        used = math.prod(extent(n) / (-(-extent(n) // f) * f) for n, f in zip(self.loops, tile))
        return hidden * loads * used


@distribution("sample_instruction_tile")
class InstructionTile(RegisterTile):
    """A register tile whose last size is always of whole vectors: an instruction has no other.

    >>> InstructionTile((128, 5), 8, 16).support()[0]
    [1, 8]
    """

    @property
    def key(self) -> tuple[tuple[Any, ...], int, int, bool]:
        return self.loops, self.lanes, self.registers, True


def extent(n: Any) -> int:
    return max(1, n)


@lru_cache(maxsize=512)
def tiles(key: tuple[tuple[Any, ...], int, int, bool]) -> tuple[tuple[int, ...], ...]:
    """All tiles that fit the registers and waste at most a quarter of each loop."""
    loops, lanes, registers, whole = key
    *rows, columns = [extent(n) for n in loops]
    widths = [w for v in range(1, MOST_VECTORS + 1) if (w := v * lanes) <= -(-columns // lanes) * lanes]
    if columns >= lanes or whole:
        widths = [w for w in widths if w <= columns or w == lanes]
    else:
        widths = [columns]
    heights = [[f for f in range(1, min(n, registers) + 1) if waste(n, f) <= 0.25] for n in rows]
    found = []
    for width in widths:
        vectors = -(-width // lanes)
        for sizes in itertools.product(*heights):
            if math.prod(sizes) * vectors + vectors + 1 <= registers:
                found.append((*sizes, width))
    return tuple(found) or ((*[1] * len(rows), lanes if whole else min(columns, lanes)),)


def waste(n: int, f: int) -> float:
    covered = -(-n // f) * f
    return (covered - n) / covered
