"""What can become of a candidate, and how much it may cost to find out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("ok", "illegal", "build error", "crash", "timeout", "out of memory", "wrong result")


class MeasureError(RuntimeError):
    """Nothing can be measured, whatever the candidate: the workload itself fails, or no worker starts."""


class WorkersError(MeasureError):
    """Nothing can be measured any more, whatever the program: who does it cannot be reached."""


@dataclass(frozen=True)
class Limits:
    """What one candidate may take. `memory` is in bytes, beyond what its worker process has at first."""

    build_seconds: float = 10.0
    run_seconds: float = 10.0
    memory: int = 4 << 30


@dataclass(frozen=True)
class Outcome:
    """`kind` is one of KINDS; `latency`, in seconds, is known of "ok" only; `times` are its repeats, without
    those that were thrown away because something else ran: `disturbed` is their share. With 1 there were no
    others, and the latency is an upper bound.

    `detail` says more, in one line for people: the signal, the element that is wrong, LLVM's complaint.
    """

    kind: str
    latency: float | None = None
    times: tuple[float, ...] = ()
    detail: str = ""
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    disturbed: float = 0.0

    @property
    def ok(self) -> bool:
        return self.kind == "ok"

    @property
    def reliable(self) -> bool:
        """Whether what was measured can be believed: a latency, or that it failed."""
        return self.disturbed < 1


def typical(times: Sequence[float]) -> float:
    """The latency that repeats stand for: the lower quartile, because whatever disturbs makes them longer.

    >>> typical([5.0, 1.0, 2.0, 9.0, 3.0]), typical([4.0]), typical([4.0, 5.0])
    (2.0, 4.0, 4.0)
    """
    return sorted(times)[(len(times) - 1) // 4]


def one_line(error: BaseException | str) -> str:
    """A message that fits into `detail`.

    >>> one_line(ValueError("no such loop\\n    for i in range(3):"))
    'ValueError: no such loop for i in range(3):'
    """
    text = " ".join(str(error).split())
    return (text if isinstance(error, str) else f"{type(error).__name__}: {text}")[:300]
