"""How large a space is."""

from __future__ import annotations

import random
from typing import Any

from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Distribution, ExprRV, LoopRV, Trace
from .outline import handles

MOST_LISTED = 100_000  # decisions of one random variable


class Size(int):
    """How many decision vectors there are: `exact`, or an unbiased estimate from random descents, where a
    random variable depends on what another was drawn to be.

    >>> print(Size(1234567, exact=True), "|", Size(1234567, exact=False))
    1,234,567 | about 1.2e+06
    """

    exact: bool

    def __new__(cls, count: float, exact: bool) -> Size:
        new = super().__new__(cls, count)
        new.exact = exact
        return new

    def __str__(self) -> str:
        return f"{int(self):,}" if self.exact else f"about {float(self):.2g}"

    __repr__ = __str__


def size_of(trace: Trace, program: Program, draws: int = 32, seed: int = 0) -> Size:
    """The number of decision vectors of a sketch.

    A descent replays the sketch with every decision drawn evenly; the product of the numbers of choices on
    the way is an unbiased estimate (Knuth), and the number itself if none depends on an earlier one. A
    descent that is refused half-way counts as nothing.
    """
    rng = random.Random(seed)
    exact = not depends(trace)
    counts: list[int] = []

    def evenly(n: int, site: Any, old: Any) -> Any:
        nonlocal product
        count = site.count()
        product *= count
        return site.draw(rng) if count > MOST_LISTED else rng.choice(list(site.support()))

    for _ in range(1 if exact else draws):
        product = 1
        try:
            trace.replay(program, evenly)
        except ScheduleError:
            product = product if exact else 0
        counts.append(product)
    return Size(sum(counts) // len(counts), exact)


def depends(trace: Trace) -> bool:
    """Whether the support of some random variable may depend on what another was drawn to be."""
    drawn: set[Any] = set()
    moved = False  # whether loops may have drawn extents, whichever way one gets at them
    for i in trace.instructions:
        tainted = any(h in drawn for h in handles(i.primitive)) or (
            moved and i.primitive.op.startswith("get_loops")
        )
        if isinstance(i.primitive, Distribution):
            if tainted or (moved and i.primitive.op == "sample_compute_location"):
                return True
            drawn.update(i.outputs)
        elif tainted:
            drawn.update(h for h in i.outputs if isinstance(h, (LoopRV, ExprRV)))
            moved = True
    return False
