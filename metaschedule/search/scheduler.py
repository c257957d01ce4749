"""Which of several programs gets the next trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

RECENT = 0.5  # how much the latest progress counts, beside what a program has had so far
WINDOW = 3  # steps that are the latest
SHORTEST = 1e-9  # seconds: what takes none has nothing to win


class Tuned(Protocol):
    """What a scheduler looks at: `course` is (trials, seconds of the best) after every step; without `weight`
    a program has nothing to do with the others."""

    weight: float | None
    trials: int
    course: list[tuple[int, float]]
    stopped: str  # why it goes on no more


Scheduler = Callable[[Sequence[Tuned]], int]


def round_robin(tasks: Sequence[Tuned]) -> int:
    """The position of the one with fewest trials."""
    return min(range(len(tasks)), key=lambda n: (tasks[n].trials, n))


def gradient(tasks: Sequence[Tuned]) -> int:
    """The position of the one that can be expected to win most by the next trial: seconds by its weight, or
    without weights the largest share of its own latency.

    All have a first turn. Then the expectation is a mixture of two: what the last steps won per trial, and an
    optimist's view, by which a latency of g after t trials falls by g / t with the next.
    """
    return max(range(len(tasks)), key=lambda n: (expected_gain(tasks[n]), -n))


def expected_gain(task: Tuned) -> float:
    if not task.trials:
        return float("inf")
    if not task.course:
        return 0.0  # nothing worked so far
    (before, slow), (now, fast) = task.course[-WINDOW:][0], task.course[-1]
    recent = (slow - fast) / (now - before) if now > before else fast / task.trials
    weight = 1 / max(fast, SHORTEST) if task.weight is None else task.weight
    return weight * (RECENT * recent + (1 - RECENT) * fast / task.trials)


SCHEDULERS: dict[str, Scheduler] = {"gradient": gradient, "round robin": round_robin}
