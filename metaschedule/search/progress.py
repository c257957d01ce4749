"""`Progress`: what a tuning run tells its audience, before, within and after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..measure import WorkerNode


@dataclass(frozen=True)
class Progress:
    """A snapshot of one program's tuning.

    `event` is what has begun ("search", "model", "build", "run", "confirm"; "wait" for a machine that is
    busy; "place": kernels are timed in their model), of which `done` of `of` is done, or what has been:
    "proposed", "measured", "confirmed", "stopped". `candidates` is how many that concerns; `detail` says
    more. `left` are the seconds until the end, as far as can be told.

    `trials` of `budget` (None: limited by time alone) are done, in all programs of the run; `outcomes` counts
    this program's trials by kind. `accuracy` is the model's rank correlation on the last batch. `seconds`
    says where the time went: search, model, build, run. `nodes` are the machines of a cluster, if that is
    where candidates are run, with what each does.
    """

    event: str
    program: str
    number: int  # of the program, among `programs`
    programs: int
    candidates: int
    trials: int
    budget: int | None
    elapsed: float
    minutes: float | None
    latency: float | None
    untuned: float | None  # seconds of the default that tuning must beat
    outcomes: Mapping[str, int]
    accuracy: float | None
    seconds: Mapping[str, float]
    done: int = 0
    of: int = 0
    detail: str = ""
    left: float | None = None
    whole: float | None = None  # seconds of what the programs are part of, with the best of each so far
    whole_untuned: float | None = None
    nodes: Sequence[WorkerNode] = ()


Listener = Callable[[Progress], None]
