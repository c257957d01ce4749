"""`Measurer`: candidates of one workload in, typed outcomes out, whatever they do."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from ..codegen import check_bounds
from ..codegen.legal import values_of
from ..errors import ScheduleError, VerifyError
from ..ir import Buffer, Program
from ..runtime import ArgSpec, Kernel
from ..target import Target
from .build import REFERENCE, UNKNOWN, BuildJob
from .local import LocalWorkers
from .numerics import amplification, exact_magnitude, tolerance
from .outcome import Limits, Outcome, one_line
from .pool import Job
from .workers import CandidateRunner, Listener, Workers
from .workload import Built, MeasuredWorkload

log = logging.getLogger("metaschedule")
KEPT = 16  # of the fastest candidates, the code: they are measured again
DEFAULT_LIMITS = Limits()

Candidate = Program | Kernel


class Measurer:
    """Builds, verifies and times candidates of `program`, which is given as written.

    `threads` is how many a candidate may use (default: the target's cores, as far as this process has them).
    `inputs` are the arrays to use, for programs to which `inputs.arrays` can give no legal ones. `bounds` is
    that of `metaschedule.build`. `workers` are where it is done: by default, processes of its own on this
    machine.
    """

    def __init__(
        self,
        program: Program,
        target: Target | str = "native",
        *,
        limits: Limits = DEFAULT_LIMITS,
        threads: int | None = None,
        seed: int = 0,
        inputs: Sequence[np.ndarray] | None = None,
        bounds: str = "checked",
        workers: Workers | None = None,
    ) -> None:
        self._workers = LocalWorkers() if workers is None else workers
        self._owns_workers = workers is None
        self._program, self._limits, self._bounds = program, limits, check_bounds(bounds)
        wanted = shapes(program.inputs)
        if inputs is not None and shapes(inputs) != wanted:
            raise ValueError(f"inputs of {program.name} are {wanted}, got {shapes(inputs)}")
        self._is_given = inputs is not None
        self._target = self._workers.resolve(target)
        workload = MeasuredWorkload(program, self._target, limits, threads, seed, inputs)
        self._runner: CandidateRunner = self._workers.open(workload)
        self._has_reference = False
        self._kept: list[tuple[float, Candidate, Built]] = []
        self._listener: Listener | None = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def constraint(self) -> str:
        """What to know about the machine, if it has fewer cores than there are threads."""
        return self._runner.constraint

    def close(self) -> None:
        """End the workers and give back what they used."""
        self._runner.close()
        if self._owns_workers:
            self._workers.close()

    def measure(self, candidates: Sequence[Candidate], best: float | None = None) -> list[Outcome]:
        """What becomes of each candidate, in order.

        A latency is the lower quartile of repeats; of a candidate that is hopeless beside `best` (seconds) or
        beside an earlier one, that of a single call. What could not be measured undisturbed is measured
        again, a few times.
        """
        entries = self._build(candidates)
        outcomes = self._runner.run(entries, best)
        for candidate, entry, outcome in zip(candidates, entries, outcomes, strict=True):
            if outcome.latency is not None and isinstance(entry, Built):
                self._kept.append((outcome.latency, candidate, entry))
        self._kept.sort(key=lambda kept: kept[0])
        del self._kept[KEPT:]
        return outcomes

    def confirm(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Leaders once more, in turns, so that a slow minute of the machine is nobody's alone.

        A latency is the second smallest of the rounds': a small one because whatever disturbs makes them
        longer, and the second one is no stroke of luck that the others did not have. `times` are those of
        the rounds. Where these could not be measured undisturbed there are more of them.
        """
        kept = {id(candidate): built for _, candidate, built in self._kept}
        fresh = iter(self._build([c for c in candidates if id(c) not in kept]))
        return self._runner.confirm([kept[id(c)] if id(c) in kept else next(fresh) for c in candidates])

    def listen(self, listener: Listener) -> None:
        """Call `listener` with what is going on ("build", "run", "confirm" or "wait"), how much of it is
        done, of how much, and more in words."""
        self._listener = listener
        self._runner.listen(listener)

    def _build(self, candidates: Sequence[Candidate]) -> list[Built | Outcome]:
        """Everything is built before anything runs: one would spoil the other's times."""
        jobs = [BuildJob(candidate) for candidate in candidates]
        if self._has_reference:
            return self._compile(jobs)
        reference, *entries = self._compile([BuildJob(self._program, REFERENCE), *jobs])
        self._runner.establish(reference)
        self._has_reference = True
        return entries

    def _compile(self, jobs: Sequence[BuildJob]) -> list[Built | Outcome]:
        entries: dict[int, Built | Outcome] = {}
        unknown: list[int] = []  # to builders: they have instructions of the user's

        def requests(numbers: Sequence[int], lower: bool) -> Iterator[Job]:
            for i in numbers:
                try:
                    self._check(jobs[i].program)
                    make = jobs[i].lowered_request if lower else jobs[i].request
                    yield Job(i, self._limits.build_seconds, *make(self._target, self._bounds))
                except (ScheduleError, VerifyError) as error:
                    entries[i] = Outcome("illegal", detail=error.message)
                except Exception as error:  # a bug of ours or of an extension, recorded with the candidate
                    log.debug("a candidate of %s cannot be lowered", self._program.name, exc_info=True)
                    entries[i] = Outcome("build error", detail=one_line(error))

        def build(numbers: Sequence[int], lower: bool) -> None:
            for job, (reply, code) in self._workers.build(requests(numbers, lower), self._limits.memory):
                self._tell(len(entries) + 1, len(jobs))
                seconds = reply.get("seconds", 0.0)
                if reply["kind"] == "ok":
                    entries[job.key] = Built(reply, code, seconds, self._tolerance(jobs[job.key]))
                elif reply["kind"] == UNKNOWN:
                    unknown.append(job.key)
                else:
                    entries[job.key] = Outcome(reply["kind"], detail=reply["detail"], build_seconds=seconds)

        if jobs:
            self._tell(0, len(jobs))
        build(range(len(jobs)), False)
        if unknown:
            build(sorted(unknown), True)
        return [entries[i] for i in range(len(jobs))]

    def _check(self, candidate: Candidate) -> None:
        if shapes(candidate.params) != shapes(self._program.params):
            raise ScheduleError("its parameters are not the workload's")

    def _tolerance(self, job: BuildJob) -> float:
        """0 where results are exact: also those of sums in another order, but not what takes more digits."""
        more = amplification(job.program) if isinstance(job.program, Program) else 1.0
        return 0.0 if self._is_exact and more == 1 else self._rounding * more

    @cached_property
    def _is_exact(self) -> bool:
        highest = {b: values.high for b, values in values_of(self._program).items()}
        return not self._is_given and bool(exact_magnitude(self._program, highest))

    @cached_property
    def _rounding(self) -> float:
        return tolerance(self._program)

    def _tell(self, done: int, of: int) -> None:
        if self._listener is not None:
            self._listener("build", done, of, "")


def shapes(arrays: Sequence[ArgSpec] | Sequence[Buffer] | Sequence[np.ndarray]) -> list[str]:
    return [f"{a.dtype}{list(a.shape)}" for a in arrays]
