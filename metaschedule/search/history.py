"""`History`: what is known about the candidates of one program, and how new ones are made.

Strategies ask it for draws, neighbours and predictions, and claim the candidates that they propose; the
tuner tells it what was measured.
"""

from __future__ import annotations

import logging
import random
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

from ..cost import CostModel
from ..errors import InternalError, ScheduleError
from ..ir import Program, structural_hash
from ..schedule import Schedule, Trace
from ..space.space import SpaceLike
from .candidate import Candidate

log = logging.getLogger("metaschedule")
Made = TypeVar("Made")


class History:
    """`ranked` are the measured candidates that work, fastest first; `refused` counts, by reason, the
    candidates that could not be made."""

    def __init__(self, program: Program, space: SpaceLike, model: CostModel) -> None:
        self.program, self.space, self.model = program, space, model
        self.workload = structural_hash(program)
        self.ranked: list[tuple[float, Candidate]] = []
        self.refused: Counter[str] = Counter()
        self.model_seconds = 0.0
        self._keys: set[tuple[str, str]] = set()
        self._programs: set[str] = set()

    @property
    def best(self) -> float | None:
        """Seconds of the fastest."""
        return self.ranked[0][0] if self.ranked else None

    # --- making candidates ---

    @cached_property
    def sketches(self) -> list[Trace]:
        """Of the space; none if it fails, which is then known not to be worth another try."""
        return self._attempt(lambda: self.space.sketches(self.program)) or []

    def draw(self, rng: random.Random) -> Candidate | None:
        """Any candidate of the space."""
        return self.make_candidate(lambda: self.space.sample(self.program, rng)) if self.sketches else None

    def neighbour(self, candidate: Candidate, rng: random.Random, positions: set[int]) -> Candidate | None:
        """The candidate with the decisions at some positions of its trace changed a little."""
        return self.make_candidate(lambda: candidate.trace.apply(self.program, rng=rng, moved=positions))

    def replay(self, trace: Trace) -> Candidate | None:
        return self.make_candidate(lambda: trace.apply(self.program))

    def make_candidate(self, make: Callable[[], Schedule]) -> Candidate | None:
        """The candidate that `make` schedules; None if it cannot, or if the space does not want it built."""

        def make_checked() -> Candidate:
            sch = make()
            self.space.check(sch)
            return Candidate.of(sch, self.workload)

        return self._attempt(make_checked)

    def _attempt(self, make: Callable[[], Made]) -> Made | None:
        """What `make` gives; None, and counted, if it fails. Spaces are users' code: whatever they raise is
        a candidate less, and not the end of the search."""
        try:
            return make()
        except ScheduleError as error:
            self.refused[error.message] += 1
        except InternalError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if reason not in self.refused:
                log.warning("the space of %s fails: %s", self.program.name, reason, exc_info=True)
            self.refused[reason] += 1
        return None

    @property
    def exhausted(self) -> str:
        """What to say when there are no more candidates."""
        most = "".join(f"; {times} times: {why}" for why, times in self.refused.most_common(1))
        return f"there are no more candidates{most}"

    # --- choosing ---

    def claim(self, candidate: Candidate) -> bool:
        """Whether a candidate is new, which it then is no longer."""
        if candidate.key in self._keys or candidate.program_hash in self._programs:
            return False
        self._keys.add(candidate.key)
        self._programs.add(candidate.program_hash)
        return True

    def exclude(self, sketch: str | None, decisions: str | None) -> None:
        """The candidate that a record was of need not be made to know that it is not new."""
        if sketch is not None and decisions is not None:
            self._keys.add((sketch, decisions))

    def predict(self, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds of each, by the cost model."""
        begin = time.perf_counter()
        costs = [float(c) for c in self.model.predict([c.schedule for c in candidates])] if candidates else []
        self.model_seconds += time.perf_counter() - begin
        return costs

    # --- learning ---

    def learn(
        self,
        candidates: Sequence[Candidate],
        latencies: Sequence[float | None],
        reliable: Sequence[bool] | None = None,
    ) -> None:
        """What was measured, None where a candidate failed. One that could not be measured undisturbed has an
        upper bound, which says where it ranks at worst, and teaches the model nothing."""
        for candidate, latency in zip(candidates, latencies, strict=True):
            self.claim(candidate)
            if latency is not None:
                insort(self.ranked, (latency, candidate), key=lambda one: (one[0], one[1].key))
        if reliable is not None:
            latencies = [latency if sure else None for latency, sure in zip(latencies, reliable, strict=True)]
        begin = time.perf_counter()
        self.model.update([c.schedule for c in candidates], latencies)
        self.model_seconds += time.perf_counter() - begin
