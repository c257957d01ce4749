"""`Task`: one program being tuned. A step proposes candidates, measures them, records and learns."""

from __future__ import annotations

import logging
import math
import platform
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from ..cost import CostModel
from ..database import Database, DatabaseError, Record, TuningRun, predicted_key
from ..ir import Program
from ..measure import Outcome, WorkerNode
from ..schedule import Schedule, TraceError
from ..space.space import SpaceLike
from ..space.untuned import schedule_untuned
from ..target import Target
from .candidate import Candidate
from .descent import Descent
from .exhaustive import Exhaustive
from .history import History
from .relatives import Relatives, adapt_record
from .result import Result, fastest
from .strategy import Strategy, StrategyMaker

log = logging.getLogger("metaschedule")
LEADERS = 8  # are measured again at the end, with what they must beat: single trials are noisy
MOST_REPLAYED = 512  # records that a resumed run learns from: the latest


class TuneCall(NamedTuple):
    """What a call of `tune` tells of itself to those who look at its runs; the budget is of all programs."""

    uid: str
    label: str
    trials: int | None
    minutes: float | None
    details: Mapping[str, Any] = {}  # what a page shows besides: "peak" in GFLOPS, nodes in "eager"
    runners: Callable[[], Sequence[WorkerNode]] = tuple  # what those of a cluster do now


class MeasurerLike(Protocol):
    """What a task needs of a `Measurer`."""

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]: ...
    def confirm(self, candidates: Sequence[Program]) -> list[Outcome]: ...
    def close(self) -> None: ...


MeasurerMaker = Callable[[Program, Target], MeasurerLike]
Listener = Callable[[str, int, int, str], None]


class Task:
    """`trials` counts the records of this program, target, space and seed, those of earlier runs included;
    `course` is (trials, seconds of the best) after every step; `weight` says how often it is called,
    if that is known. `unmeasured` says why there is no device to measure on, if so: records are then apart
    from measured ones (`key`), and leaders are not confirmed."""

    def __init__(
        self,
        program: Program,
        target: Target,
        space: SpaceLike,
        model: CostModel,
        strategy: StrategyMaker,
        measurer: MeasurerMaker,
        db: Database,
        seed: int,
        call: TuneCall,
        unmeasured: str = "",
        relatives: Relatives | None = None,
    ) -> None:
        self.key = predicted_key(target) if unmeasured else target.key
        self._unmeasured = unmeasured
        self.relatives = relatives or Relatives(db)
        self.program, self.target, self.space, self.db, self.seed = program, target, space, db, seed
        self.history = History(program, space, model)
        self._strategies: list[Strategy] = [strategy(self.history), Exhaustive(self.history)]
        self._descends = getattr(self._strategies[0], "descends", False)
        self._make_measurer = measurer
        self._measurer: MeasurerLike | None = None
        self._run, self._call = uuid.uuid4().hex, call
        self._started, self._began = time.time(), time.monotonic()
        self._position = 0  # in the database, up to which records are known
        self.untuned: Candidate | None = None
        self.records: list[Record] = []
        self._confirmed: list[Record] = []
        self._has_news = False  # trials since the leaders were last confirmed
        self._is_settled = False  # whether one of those that were confirmed last worked
        self.course: list[tuple[int, float]] = []
        self.trials = 0
        self.stopped, self.failed = "", False
        self.weight: float | None = None
        self.seconds = {"search": 0.0, "model": 0.0, "build": 0.0, "run": 0.0, "confirm": 0.0}
        self.listener: Listener | None = None  # is told what begins, and how far it is
        self._constraint = ""
        db.add_program(program)
        self._recall()
        self.trials = sum(record.seed == seed for record in self.records)
        self.course = [(self.trials, best) for _, best in self.course]

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(record.outcome for record in self.records)

    @property
    def untuned_latency(self) -> float | None:
        """As confirmed, beside the leaders; before that, as tried. None if something always came between:
        an upper bound of it would be praise of the winner."""
        if self.untuned is None:
            return None
        records = [
            r for r in (*self._confirmed, *self.records)
            if r.latency is not None and r.reliable and (r.sketch, r.decisions) == self.untuned.key
        ]  # fmt: skip
        best = min(records, key=lambda r: (not r.confirmed, r.latency), default=None)
        return None if best is None else best.latency

    # --- a step ---

    def propose(self, count: int, descend: bool) -> list[Candidate]:
        """New candidates, the untuned default before all others; none if there are no more.

        To descend, if the strategy does, is to try the neighbours of the best first.
        """
        self._tell("search")
        begin, modelling = time.perf_counter(), self.history.model_seconds
        self._recall()
        rng = random.Random(f"{self.seed} {self.trials}")
        found: list[Candidate] = []
        if self.untuned is None:
            self.untuned = self.history.make_candidate(
                lambda: schedule_untuned(self.program, self.target, self.space)
            )
            if self.untuned is not None and self.history.claim(self.untuned):
                found.append(self.untuned)
            found += self._inherit(count // 2) if not self.records else []
        first: list[Strategy] = [Descent(self.history)] if descend and self._descends else []
        for strategy in first + self._strategies:
            if len(found) < count:
                found += strategy.propose(count - len(found), rng)
        modelling = self.history.model_seconds - modelling
        self.seconds["model"] += modelling
        self.seconds["search"] += time.perf_counter() - begin - modelling
        return found

    def _inherit(self, count: int) -> list[Candidate]:
        """What programs of the same structure, in other sizes, run by; none twice."""
        found: list[Candidate] = []
        for record in self.relatives.records(self.program, self.target):
            candidate = self.history.make_candidate(partial(adapt_record, record, self.program))
            if candidate is not None and len(found) < count and self.history.claim(candidate):
                found.append(candidate)
        return found

    def measure(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """What becomes of candidates. Changes nothing that others look at, so it may take its time beside
        them."""
        programs = [c.schedule.program for c in candidates]
        begin = time.perf_counter()
        outcomes = self._measure(lambda m: m.measure(programs, best=self.history.best))
        running = sum(outcome.run_seconds for outcome in outcomes)
        self.seconds["run"] += running
        self.seconds["build"] += time.perf_counter() - begin - running
        return outcomes

    def learn(self, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> None:
        """Record what became of candidates, and learn from it."""
        predicted = self.history.predict(candidates)  # by what was known when they were proposed
        records = [
            self._record(
                candidate, outcome, trial=self.trials + n, predicted=cost if math.isfinite(cost) else None
            )
            for n, (candidate, outcome, cost) in enumerate(zip(candidates, outcomes, predicted, strict=True))
        ]
        self.records += records
        self.trials += len(records)
        self._has_news = True
        self.db.add_all(records, self._as_run())
        self._tell("model")
        begin = time.perf_counter()
        self._learn(candidates, records)
        self.seconds["model"] += time.perf_counter() - begin

    def leaders(self, most: int = LEADERS) -> Iterator[list[Candidate]]:
        """What to measure again, by turns: the leaders with what they must beat, the untuned default and the
        best that was known before. Then further ones, as long as all fail; none, if there are no news."""
        if self._unmeasured:
            return
        candidates = [candidate for _, candidate in self.history.ranked]
        leading = {c.key for c in candidates[:most]}
        beaten = [c for c in self._references() if c.key not in leading]
        candidates[most:most] = beaten
        count = most + max(1, len(beaten))
        settled = not self._has_news and any(r.outcome == "ok" and r.reliable for r in self._confirmed)
        self._has_news = False
        while candidates and not settled:
            yield candidates[:count]
            settled = self._is_settled
            del candidates[:count]

    def confirm(self, leaders: Sequence[Candidate]) -> list[Outcome]:
        """What becomes of leaders when they are measured again; like `measure`."""
        programs = [c.schedule.program for c in leaders]
        begin = time.perf_counter()
        outcomes = self._measure(lambda m: m.confirm(programs))
        self.seconds["confirm"] += time.perf_counter() - begin
        return outcomes

    def settle(self, leaders: Sequence[Candidate], outcomes: Sequence[Outcome]) -> None:
        """Record what became of leaders."""
        records = [self._record(c, outcome, confirmed=True) for c, outcome in zip(leaders, outcomes)]
        self._confirmed += records
        self.db.add_all(records, self._as_run())
        self._is_settled = any(outcome.ok for outcome in outcomes)

    def _references(self) -> list[Candidate]:
        """What a leader must beat, of what works."""
        working = {candidate.key for _, candidate in self.history.ranked}
        found = [] if self.untuned is None or self.untuned.key not in working else [self.untuned]
        former = fastest(self._confirmed, self.program)
        best = None if former is None else self._candidate(former[0])
        return [*found, best] if best is not None and best.key not in {c.key for c in found} else found

    def finish(self) -> None:
        """Let others know that nothing more will come."""
        if any(record.run == self._run for record in (*self.records, *self._confirmed)):
            try:
                self.db.add_all([], self._as_run(self.stopped))
            except DatabaseError as error:
                log.warning("%s: how it ended is not recorded: %s", self.program.name, error)

    def _as_run(self, stopped: str | None = None) -> TuningRun:
        return TuningRun(
            self._run, self.history.workload, self.key, self.space.name, self.seed,
            self._call.uid, self._call.label, self.weight, self._call.trials, self._call.minutes,
            self._started, time.time(), self.seconds, self.untuned_latency, stopped, platform.node(),
            {
                **self._call.details, "target": self.target.to_json(), "refused": dict(self.history.refused),
                "runners": [node.as_data() for node in self._call.runners()],
            },
        )  # fmt: skip

    def close(self) -> None:
        """End the measurer's processes; the next step starts others."""
        if self._measurer is not None:
            self._measurer.close()
            self._measurer = None

    def result(self) -> Result:
        found = fastest([*self._confirmed, *self.records], self.program)
        best, schedule = found or (None, Schedule(self.program))
        return Result(
            self.program, self.target, schedule, best, self.records, self.stopped, self.seconds,
            self.untuned_latency, tuple(self._notes(best)), self.failed,
        )  # fmt: skip

    def _notes(self, best: Record | None) -> Iterator[str]:
        if self._unmeasured:
            yield f"ranked by prediction, nothing was measured: {self._unmeasured}"
        if self._constraint:
            yield f"{self._constraint}, so it was measured on these"
        tried = [record for record in self.records if record.run == self._run]
        if doubtful := sum(not record.reliable for record in tried):
            yield f"the machine was busy: {doubtful} of {len(tried)} trials could not be measured undisturbed"
        if best is not None and not best.reliable:
            yield (
                "it was too busy to measure: the latency is an upper bound, and others may be faster; "
                "tune again when nothing else runs"
            )
        elif best is not None and not best.confirmed and any(r.run == self._run for r in self._confirmed):
            yield "it was too busy to confirm the leaders; tune again when nothing else runs"
        elif doubtful and self.untuned is not None and self.untuned_latency is None:
            yield "the untuned default could not be measured undisturbed: what was won over it is not known"

    def _measure(self, measure: Callable[[MeasurerLike], list[Outcome]]) -> list[Outcome]:
        if self._measurer is None:
            self._measurer = self._make_measurer(self.program, self.target)
            if listen := getattr(self._measurer, "listen", None):
                listen(self._tell)
        outcomes = measure(self._measurer)
        self._constraint = getattr(self._measurer, "constraint", "")  # of a machine that may be elsewhere
        return outcomes

    def _tell(self, what: str, done: int = 0, of: int = 1, detail: str = "") -> None:
        if self.listener is not None:
            self.listener(what, done, of, detail)

    # --- what is known ---

    def _recall(self) -> None:
        """Learn what earlier runs have recorded, and other processes meanwhile."""
        known = {record.uid for record in (*self.records, *self._confirmed)}
        stored, self._position = self.db.records_since(
            self._position, self.history.workload, self.key, space=self.space.name
        )
        news = [record for record in stored if record.uid not in known]
        self._confirmed += [record for record in news if record.confirmed]
        trials = [record for record in news if not record.confirmed]
        self.records += trials
        for record in trials:
            self.history.exclude(record.sketch, record.decisions)
        pairs = [(c, r) for r in trials[-MOST_REPLAYED:] if (c := self._candidate(r)) is not None]
        if pairs:
            log.info("%s: %d trials from the database", self.program.name, len(pairs))
            self._learn([candidate for candidate, _ in pairs], [record for _, record in pairs])

    def _learn(self, candidates: Sequence[Candidate], records: Sequence[Record]) -> None:
        self.history.learn(candidates, [r.latency for r in records], [r.reliable for r in records])
        if self.history.best is not None:
            self.course.append((self.trials, self.history.best))

    def _candidate(self, record: Record) -> Candidate | None:
        try:
            return None if record.trace is None else self.history.replay(record.trace)
        except TraceError as error:
            log.warning("%s: a record is passed over: %s", self.program.name, error)
            return None

    def _record(self, candidate: Candidate, outcome: Outcome, **fields: Any) -> Record:
        return Record.of(
            self.history.workload,
            self.key,
            candidate.trace,
            outcome.kind,
            latency=outcome.latency,
            times=outcome.times,
            disturbed=outcome.disturbed,
            detail=outcome.detail,
            space=self.space.name,
            seed=self.seed,
            run=self._run,
            elapsed=time.monotonic() - self._began,
            **fields,
        )
