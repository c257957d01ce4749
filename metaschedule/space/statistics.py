"""What is in a space: its sketches, their random variables, how many decisions, and what is rejected."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..errors import ScheduleError
from ..ir import INSTRUCTIONS, Program
from ..schedule import Trace
from ..schedule.primitive.tensorize import Tensorize
from .outline import outline
from .size import Size, size_of
from .space import Rejections, SpaceLike


@dataclass(frozen=True)
class SketchStatistics:
    outline: str
    instructions: int
    sites: tuple[str, ...]  # the random variables, in order
    size: Size
    hardware: tuple[str, ...] = ()  # instructions of the machine


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
                 "size": int(s.size), "size_is_exact": s.size.exact, "hardware": list(s.hardware)}
                for s in self.sketches
            ],
        }  # fmt: skip


def statistics(space: SpaceLike, program: Program, draws: int = 64, seed: int = 0) -> Statistics:
    """Look at a space: every sketch, and some draws with the reasons of what is rejected."""
    rng = random.Random(seed)
    sketches, refused = space.explore(program)
    rejected: Rejections = Counter()
    for _ in range(draws if sketches else 0):
        try:
            space.check(rng.choice(sketches).apply(program, rng=rng))
        except ScheduleError as error:
            rejected[error.call.partition("(")[0] or "check", error.message] += 1
    looked = [
        SketchStatistics(outline(t), len(t), tuple(sites(t)), size_of(t, program), hardware(t))
        for t in sketches
    ]
    return Statistics(looked, draws, draws - rejected.total(), rejected, refused)


def sites(trace: Trace) -> list[str]:
    return [i.primitive.op.removeprefix("sample_") for i in trace.instructions if i.is_sampling]


def hardware(trace: Trace) -> tuple[str, ...]:
    """The instructions of the machine that a trace uses."""
    used = [i.primitive.intrinsic for i in trace.instructions if isinstance(i.primitive, Tensorize)]
    return tuple(dict.fromkeys(name for name in used if name in INSTRUCTIONS))
