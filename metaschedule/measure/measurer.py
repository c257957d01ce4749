"""`Measurer`: candidates of one workload in, typed outcomes out, whatever they do."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from ..codegen import check_bounds
from ..codegen.legal import values_of
from ..errors import ScheduleError, VerifyError
from ..interpreter import InterpreterError, interpret
from ..ir import Buffer, Program
from ..runtime import ArgSpec, Kernel
from ..target import Target, missing_features, resolve
from ..target.detect import cores as given_cores
from .arena import Arena
from .calibration import calibration_kernel
from .cold import cold_inputs
from .inputs import arrays
from .machine import Machine, count
from .numerics import amplification, exact_magnitude, tolerance
from .outcome import Limits, MeasureError, Outcome, one_line, typical
from .pool import Job, Pool
from .reference import reference_kernel
from .steps import KernelStage, joined, steps_of

log = logging.getLogger("metaschedule")
REFERENCE_SECONDS = 120.0  # once per workload, and without vectors
IN_FLIGHT = 2  # per builder: one compiles while the next is on its way
MEASURE_SECONDS = 0.012  # of repeats per candidate
CONFIRM_SECONDS = 0.03  # per round
CONFIRM_ROUNDS = 5
MORE_ROUNDS = 5  # at most, until of each candidate
ENOUGH_ROUNDS = 2  # can be believed
CONFIRM_LONGEST = 10.0  # seconds, after which
FEWEST_ROUNDS = 3  # will do
PAUSES = (0.2, 0.8)  # seconds of waiting for a machine on which most could not be measured
KEPT = 16  # of the fastest candidates, the code: they are measured again
DEFAULT_LIMITS = Limits()

Candidate = Program | Kernel
Listener = Callable[[str, int, int, str], None]


@dataclass(frozen=True)
class Built:
    """`code` is the object code of the steps, one after the other, of these `sizes`. `tolerance` is how far
    results may be off."""

    steps: list[KernelStage]
    sizes: list[int]
    code: bytes
    seconds: float
    tolerance: float


class Measurer:
    """Builds, verifies and times candidates of `program`, which is given as written.

    `threads` is how many a candidate may use (default: the target's cores, as far as this process has them).
    `inputs` are the arrays to use, for programs to which `inputs.arrays` can give no legal ones. `bounds` is
    that of `metaschedule.build`. `constraint` says so if fewer cores than threads are there to measure with.
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
    ) -> None:
        self._program, self._target, self._limits = program, resolve(target), limits
        if missing := missing_features(self._target):
            raise ValueError(f"only this machine can be measured, and it lacks {', '.join(missing)}")
        self._inputs = tuple(ArgSpec.of(b) for b in program.inputs)
        self._outputs = tuple(ArgSpec.of(b) for b in program.outputs)
        if inputs is not None and shapes(inputs) != shapes(self._inputs):
            raise ValueError(f"inputs of {program.name} are {shapes(self._inputs)}, got {shapes(inputs)}")
        self._given, self._seed, self._bounds = inputs, seed, check_bounds(bounds)
        # Three parts: inputs, where a candidate writes its outputs, and the expected ones.
        self._arena = Arena([*self._inputs, *self._outputs, *self._outputs])
        highest = {b: values.high for b, values in values_of(program).items()}
        self._magnitude = exact_magnitude(program, highest) if inputs is None else None
        self._has_reference = False
        self._kept: list[tuple[float, Candidate, Built]] = []
        available = sorted(os.sched_getaffinity(0))[: given_cores()]
        wanted = threads or self._target.cores
        # The first ones are cores of their own: Linux counts the second threads of cores last.
        cores = available[:wanted]
        self.constraint = ""
        if len(cores) < wanted:
            self.constraint = f"{wanted} threads were asked for and {count(len(cores), 'core')} given"
        self._machine = Machine(cores)
        self._listener: Listener | None = None
        self._pauses = iter(PAUSES)
        memory = {"memory": limits.memory}
        self._builders = Pool("build", len(available), IN_FLIGHT, memory)
        setup = {
            "cores": cores,
            "calibration": calibration_kernel(self._target, len(cores)).to_json(),
            "inputs": [asdict(spec) for spec in self._inputs],
            "outputs": [asdict(spec) for spec in self._outputs],
            "arena": self._arena.fd,
            "cold": cold_inputs(program, self._target),
            "cache": self._target.l3,
        }
        self._runner = Pool("run", 1, 1, memory | setup, (self._arena.fd,))

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and give back what they used."""
        self._builders.close()
        self._runner.close()
        self._arena.close()

    def measure(self, candidates: Sequence[Candidate], best: float | None = None) -> list[Outcome]:
        """What becomes of each candidate, in order.

        A latency is the lower quartile of repeats; of a candidate that is hopeless beside `best` (seconds) or
        beside an earlier one, that of a single call. What could not be measured undisturbed is measured
        again, a few times.
        """
        entries = self._build(candidates)
        outcomes = self._run(entries, best, MEASURE_SECONDS)
        waited = True
        while waited and (doubtful := [n for n, outcome in enumerate(outcomes) if not outcome.reliable]):
            waited = 2 * len(doubtful) > len(candidates) and self._wait(len(doubtful), len(candidates))
            latencies = [best, *[outcome.latency for outcome in outcomes]]
            best = min((latency for latency in latencies if latency is not None), default=None)
            again = self._run([entries[n] for n in doubtful], best, MEASURE_SECONDS)
            for n, outcome in zip(doubtful, again, strict=True):
                outcomes[n] = better(outcomes[n], outcome)
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
        entries = [kept[id(c)] if id(c) in kept else next(fresh) for c in candidates]
        rounds: list[list[Outcome]] = []
        results: list[Outcome] = []
        deadline = time.monotonic() + CONFIRM_LONGEST
        for n in range(CONFIRM_ROUNDS + MORE_ROUNDS):
            of = max(CONFIRM_ROUNDS, n + 1)
            rounds.append(self._run(entries, None, CONFIRM_SECONDS, ("confirm", n, of)))
            entries = [entry if outcome.ok else outcome for entry, outcome in zip(entries, rounds[-1])]
            results = [merged(outcomes) for outcomes in zip(*rounds)]
            settled = n + 1 >= CONFIRM_ROUNDS and all(outcome.reliable for outcome in results)
            if settled or (n + 1 >= FEWEST_ROUNDS and time.monotonic() > deadline):
                break
        return results

    def listen(self, listener: Listener) -> None:
        """Call `listener` with what is going on ("build", "run", "confirm" or "wait"), how much of it is
        done, of how much, and more in words."""
        self._listener = listener

    def _tell(self, what: str, done: int, of: int, detail: str = "") -> None:
        if self._listener is not None:
            self._listener(what, done, of, detail)

    def _wait(self, doubtful: int, of: int) -> bool:
        """Leave the machine to others for a while. Not for ever: false, if it was often enough."""
        pause = next(self._pauses, None)
        if pause is None:
            return False
        why = f"{doubtful} of {of} could not be measured, the machine is busy ({self._machine.describe()})"
        if self._listener is None:
            log.warning("%s: %s; waiting for %g s", self._program.name, why, pause)
        self._tell("wait", 0, 1, f"{why}; waiting for {pause:g} s")
        time.sleep(pause)
        return True

    def _build(self, candidates: Sequence[Candidate]) -> list[Built | Outcome]:
        """Everything is built before anything runs: one would spoil the other's times."""
        self._runner.start()
        makers = [partial(self._steps, candidate) for candidate in candidates]
        tolerances = list(map(self._tolerance, candidates))
        if self._has_reference:
            return self._compile(makers, tolerances)
        as_written = partial(reference_kernel, self._program, self._target)
        reference, *entries = self._compile(
            [lambda: steps_of(as_written(), self._target), *makers], [0.0, *tolerances]
        )
        self._establish(reference)
        return entries

    def _tolerance(self, candidate: Candidate) -> float:
        """0 where results are exact: also those of sums in another order, but not what takes more digits."""
        more = amplification(candidate) if isinstance(candidate, Program) else 1.0
        return 0.0 if self._magnitude and more == 1 else tolerance(self._program) * more

    def _steps(self, candidate: Candidate) -> list[KernelStage]:
        if shapes(candidate.params) != shapes(self._inputs + self._outputs):
            raise ScheduleError("its parameters are not the workload's")
        return steps_of(candidate, self._target, self._bounds)

    def _compile(
        self, makers: Sequence[Callable[[], list[KernelStage]]], tolerances: Sequence[float]
    ) -> list[Built | Outcome]:
        made: dict[int, tuple[list[KernelStage], float]] = {}
        entries: dict[int, Built | Outcome] = {}

        def jobs() -> Iterator[Job]:
            for i, make in enumerate(makers):
                begin = time.perf_counter()
                try:
                    steps = make()
                except (ScheduleError, VerifyError) as error:
                    entries[i] = Outcome("illegal", detail=error.message)
                except Exception as error:  # a bug of ours or of an extension, recorded with the candidate
                    entries[i] = Outcome("build error", detail=one_line(error))
                else:
                    made[i] = steps, time.perf_counter() - begin
                    sizes, texts = joined([step.kernel.llvm.encode() for step in steps])
                    header = {"target": steps[-1].kernel.target.to_json(), "sizes": sizes}
                    yield Job(i, self._limits.build_seconds, header, texts)

        self._tell("build", 0, len(makers))
        for job, (answer, code) in self._builders.run(jobs()):
            self._tell("build", len(entries) + 1, len(makers))
            steps, seconds = made.pop(job.key)
            seconds += answer.get("seconds", 0.0)
            if answer["kind"] == "ok":
                entries[job.key] = Built(steps, answer["sizes"], code, seconds, tolerances[job.key])
            else:
                entries[job.key] = Outcome(answer["kind"], detail=answer["detail"], build_seconds=seconds)
        return [entries[i] for i in range(len(makers))]

    def _run(
        self,
        entries: Sequence[Built | Outcome],
        best: float | None,
        min_time: float,
        phase: tuple[str, int, int] = ("run", 0, 1),
    ) -> list[Outcome]:
        """`phase` says what this is told to be: which of how many rounds."""
        what, round, rounds = phase
        outcomes = {i: entry for i, entry in enumerate(entries) if isinstance(entry, Outcome)}

        def jobs() -> Iterator[Job]:
            for i, entry in enumerate(entries):
                if isinstance(entry, Built):
                    yield self._job(i, entry, self._limits.run_seconds, best=best, min_time=min_time)

        self._tell(what, round * len(entries), rounds * len(entries))
        for job, (answer, _) in self._runner.run(jobs()):
            self._tell(what, round * len(entries) + len(outcomes) + 1, rounds * len(entries))
            built = entries[job.key]
            assert isinstance(built, Built)
            times = tuple(answer.get("times", ()))
            disturbed = answer.get("disturbed", 0.0)
            latency = (typical(times) if disturbed < 1 else min(times)) if times else None
            if latency is not None:
                best = min(latency, best or latency)
            outcomes[job.key] = Outcome(
                answer["kind"],
                latency,
                times,
                answer.get("detail", self.constraint),
                built.seconds,
                answer.get("seconds", 0.0),
                disturbed,
            )
        return [outcomes[i] for i in range(len(entries))]

    def _job(self, key: int, built: Built, seconds: float, **more: float | bool | None) -> Job:
        steps = [step.to_json() for step in built.steps]
        return Job(
            key,
            seconds,
            {"steps": steps, "sizes": built.sizes, "tolerance": built.tolerance, **more},
            built.code,
        )

    def _establish(self, reference: Built | Outcome) -> None:
        """Fill the arena: inputs and what the program makes of them as written.

        Where an assertion fails or a result is not finite, as of the logarithm of a negative number, inputs
        are positive instead.
        """
        rng = np.random.default_rng(self._seed)
        positive = (False, True) if self._given is None else (False,)
        failure, results = "", ()
        for attempt in positive:
            data = self._given or arrays(self._program, self._magnitude, attempt, rng)
            for array, values in zip(self._arena.arrays, data):
                array[...] = values
            failure, results = self._reference_results(reference)
            if failure is None and (attempt == positive[-1] or all(np.isfinite(r).all() for r in results)):
                break
        if failure is not None:
            raise MeasureError(
                f"{self._program.name} cannot be run as written: {failure}; "
                f"if its inputs must be special, pass Measurer(..., inputs=[...])"
            )
        for expected, result in zip(self._arena.arrays[-len(self._outputs) :], results, strict=True):
            expected[...] = result
        self._has_reference = True

    def _reference_results(self, reference: Built | Outcome) -> tuple[str | None, Sequence[np.ndarray]]:
        """Why there are none, and the outputs; by the interpreter if the loops as written cannot be built."""
        first, last = len(self._inputs), len(self._inputs) + len(self._outputs)
        if isinstance(reference, Outcome):
            try:
                results = interpret(self._program, *self._arena.arrays[:first])
            except InterpreterError as error:
                return one_line(error), ()
            return None, results if isinstance(results, tuple) else (results,)
        job = self._job(0, reference, REFERENCE_SECONDS, reference=True)
        ((_, (answer, _)),) = self._runner.run([job])
        if answer["kind"] == "ok":
            return None, self._arena.arrays[first:last]
        return f"{answer['kind']}: {answer['detail']}", ()


def shapes(arrays: Sequence[ArgSpec] | Sequence[Buffer] | Sequence[np.ndarray]) -> list[str]:
    return [f"{a.dtype}{list(a.shape)}" for a in arrays]


def better(first: Outcome, second: Outcome) -> Outcome:
    """Of the same candidate, measured twice because the first could not be believed: a failure of the second
    may be chance or not, so it counts."""
    seconds = first.run_seconds + second.run_seconds
    if second.reliable or (second.latency or 0.0) < (first.latency or 0.0):
        return replace(second, run_seconds=seconds)
    return replace(first, run_seconds=seconds)


def merged(outcomes: Sequence[Outcome]) -> Outcome:
    """Of one candidate's rounds: of those that can be believed, if they are enough."""
    last = outcomes[-1]
    if not last.ok:
        return last
    believed = [o for o in outcomes if o.reliable]
    enough = len(believed) >= ENOUGH_ROUNDS
    times = tuple(o.latency for o in (believed if enough else outcomes) if o.latency is not None)
    return replace(
        last,
        latency=sorted(times)[:2][-1],
        times=times,
        run_seconds=sum(o.run_seconds for o in outcomes),
        disturbed=sum(o.disturbed for o in outcomes) / len(outcomes) if enough else 1.0,
    )
