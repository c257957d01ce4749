"""What is in a space: its sketches, their random variables, how many decisions, and what is rejected."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..errors import ScheduleError
from ..ir import Program
from ..schedule import Distribution, ExprRV, LoopRV, Trace
from ..schedule.primitive.base import mapped
from .outline import outline
from .space import Rejections, SpaceLike

MOST_LISTED = 100_000  # decisions of one random variable


class Size(int):
    """How many decision vectors there are. `exact`, or an unbiased estimate from random descents: it is where a
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

    A descent replays the sketch with every decision drawn evenly; the product of the numbers of choices on the
    way is an unbiased estimate (Knuth), and the number itself if none depends on an earlier one. A descent
    that is refused half-way counts as nothing.
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
        touched: list[bool] = []
        mapped(i.primitive.operands(), lambda h: touched.append(h in drawn))
        tainted = any(touched) or (moved and i.primitive.op.startswith("get_loops"))
        if isinstance(i.primitive, Distribution):
            if tainted or (moved and i.primitive.op == "sample_compute_location"):
                return True
            drawn.update(i.outputs)
        elif tainted:
            drawn.update(h for h in i.outputs if isinstance(h, (LoopRV, ExprRV)))
            moved = True
    return False


@dataclass(frozen=True)
class SketchStatistics:
    outline: str
    instructions: int
    sites: tuple[str, ...]  # the random variables, in order
    size: Size


@dataclass(frozen=True)
class Statistics:
    """What `metaschedule space` shows."""

    sketches: list[SketchStatistics]
    draws: int
    accepted: int
    rejected: Rejections = field(default_factory=Counter)  # of the draws
    refused: Rejections = field(default_factory=Counter)  # while the sketches were made

    @property
    def size(self) -> Size:
        sizes = [s.size for s in self.sketches]
        return Size(sum(sizes), all(s.exact for s in sizes))

    def as_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "size": int(self.size),
            "size_is_exact": self.size.exact,
            "draws": self.draws,
            "accepted": self.accepted,
            "rejected": [[who, why, n] for (who, why), n in self.rejected.most_common()],
            "refused": [[who, why, n] for (who, why), n in self.refused.most_common()],
            "sketches": [
                {"outline": s.outline, "instructions": s.instructions, "sites": list(s.sites),
                 "size": int(s.size), "size_is_exact": s.size.exact}
                for s in self.sketches
            ],
        }  # fmt: skip


def statistics(space: SpaceLike, program: Program, draws: int = 64, seed: int = 0) -> Statistics:
    """Look at a space: every sketch, and some draws with the reasons of what is rejected."""
    rng = random.Random(seed)
    sketches, refused = space.explored(program)
    rejected: Rejections = Counter()
    for _ in range(draws if sketches else 0):
        try:
            space.check(rng.choice(sketches).apply(program, rng=rng))
        except ScheduleError as error:
            rejected[error.call.partition("(")[0] or "check", error.message] += 1
    looked = [
        SketchStatistics(outline(t), len(t), tuple(sites(t)), size_of(t, program)) for t in sketches
    ]
    return Statistics(looked, draws, draws - rejected.total(), rejected, refused)


def sites(trace: Trace) -> list[str]:
    return [i.primitive.op.removeprefix("sample_") for i in trace.instructions if i.is_sampling]
