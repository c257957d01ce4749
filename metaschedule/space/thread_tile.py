"""How many iterations of several loops go to threads together: a random variable bounded by the machine.

The threads of a block, the results of a thread, the terms of a chunk each have a size for every loop, and a
limit for the product of the sizes. Sizes need not divide the extents.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache

from ..schedule import ExprRV, LoopRV, distribution
from ..schedule.distribution import Sizes, divisors

MOST_WASTE = 0.25  # of the iterations that tiles cover, beyond the extent
MOST_LISTED = 20_000  # tiles of one distribution; of more, those of the larger products are left out


@distribution("sample_thread_tile")
class ThreadTile(Sizes):
    """One size per loop, their product at most `most`: divisors of the extent and powers of two that waste
    at most a quarter. `taken` are sizes of tiles drawn before, loop by loop, as often as there are such: what
    they leave of each extent is divided here. Multiples of `unit` (a warp) are drawn more often.

    >>> ThreadTile((6, 1), 4).support()
    [[1, 1], [2, 1], [3, 1], [4, 1]]
    >>> ThreadTile((6, 1), 4, taken=(3, 1)).support()
    [[1, 1], [2, 1]]
    """

    loops: tuple[LoopRV | int, ...]
    most: int
    unit: int = 1
    taken: tuple[ExprRV | int, ...] = ()

    def problem(self) -> str | None:
        if not self.loops or self.most < 1 or self.unit < 1 or len(self.taken) % len(self.loops):
            return f"there must be a loop, a positive limit and tiles of all loops, got {self!r}"
        return None

    def support(self) -> list[list[int]]:
        count = len(self.loops)
        left: list[int] = []
        for n, extent in enumerate(self.loops):
            assert isinstance(extent, int)
            size = math.prod([f for f in self.taken[n::count] if isinstance(f, int)])
            left.append(max(1, -(-extent // max(1, size))))
        return [list(sizes) for sizes in tiles(tuple(left), self.most)]

    def draw(self, rng: random.Random) -> list[int]:
        options = self.support()
        return rng.choices(options, [self.merit(sizes) for sizes in options])[0]

    def merit(self, sizes: list[int]) -> float:
        """The share of warps that is used, squared; smaller tiles of many are as likely as the larger."""
        product = math.prod(sizes)
        return (product / (-(-product // self.unit) * self.unit)) ** 2


@lru_cache(maxsize=1024)
def tiles(extents: tuple[int, ...], most: int) -> tuple[tuple[int, ...], ...]:
    """All tiles whose product is at most so much."""
    while True:
        found: list[tuple[int, ...]] = [()]
        for extent in extents:
            options = sizes_of(extent, most)
            found = [(*t, f) for t in found for f in options if math.prod(t) * f <= most]
        if len(found) <= MOST_LISTED:
            return tuple(sorted(found))
        most //= 2


@lru_cache(maxsize=4096)
def sizes_of(extent: int, most: int) -> tuple[int, ...]:
    """The sizes that one loop is divided by."""
    found = {f for f in divisors(extent) if f <= most} if extent < 2**32 else {1}
    power = 1
    while power <= min(extent, most):
        covered = -(-extent // power) * power
        if covered - extent <= MOST_WASTE * covered:
            found.add(power)
        power *= 2
    return tuple(sorted(found))
