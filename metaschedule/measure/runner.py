"""`LocalRunner`: the candidates of one workload, run by a process of this machine that they may end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np

from ..codegen.legal import values_of
from ..interpreter import InterpreterError, interpret
from ..runtime import ArgSpec
from ..target import missing_features
from ..target.detect import cores as given_cores
from .arena import Arena
from .calibration import calibration_kernel
from .cold import cold_inputs
from .device import host_of
from .inputs import arrays
from .machine import Machine, count
from .numerics import exact_magnitude
from .outcome import MeasureError, Outcome, one_line, typical
from .pool import Job, Pool
from .workers import Listener
from .workload import Built, MeasuredWorkload

log = logging.getLogger("metaschedule")
REFERENCE_SECONDS = 120.0  # once per workload, and without vectors
MEASURE_SECONDS = 0.012  # of repeats per candidate
CONFIRM_SECONDS = 0.03  # per round
CONFIRM_ROUNDS = 5
MORE_ROUNDS = 5  # at most, until of each candidate
ENOUGH_ROUNDS = 2  # can be believed
CONFIRM_LONGEST = 10.0  # seconds, after which
FEWEST_ROUNDS = 3  # will do
PAUSES = (0.2, 0.8)  # seconds of waiting for a machine on which most could not be measured


class LocalRunner:
    """`constraint` says so if fewer cores than threads are there to measure with."""

    def __init__(self, workload: MeasuredWorkload) -> None:
        self._workload, program, target = workload, workload.program, workload.target
        host = host_of(target)
        if missing := missing_features(host):
            raise ValueError(f"only this machine can be measured, and it lacks {', '.join(missing)}")
        self._inputs = tuple(ArgSpec.of(b) for b in program.inputs)
        self._outputs = tuple(ArgSpec.of(b) for b in program.outputs)
        # Three parts: inputs, where a candidate writes its outputs, and the expected ones.
        self._arena = Arena([*self._inputs, *self._outputs, *self._outputs])
        available = sorted(os.sched_getaffinity(0))[: given_cores()]
        wanted = workload.threads or host.cores
        # The first ones are cores of their own: Linux counts the second threads of cores last.
        cores = available[:wanted]
        self.constraint = ""
        if len(cores) < wanted:
            self.constraint = f"{wanted} threads were asked for and {count(len(cores), 'core')} given"
        self._machine = Machine(cores)
        self._listener: Listener | None = None
        self._pauses = iter(PAUSES)
        setup = {
            "memory": workload.limits.memory,
            "cores": cores,
            "calibration": calibration_kernel(host, len(cores)).to_json(),
            "inputs": [asdict(spec) for spec in self._inputs],
            "outputs": [asdict(spec) for spec in self._outputs],
            "arena": self._arena.fd,
            "cold": cold_inputs(program, host) if target.gpu is None else [],
            "cache": host.l3,
            "gpu": target.gpu is not None,
        }
        self._pool = Pool("run", 1, 1, setup, (self._arena.fd,))
        self._pool.start()

    def close(self) -> None:
        """End the process and give back what it used."""
        self._pool.close()
        self._arena.close()

    def listen(self, listener: Listener) -> None:
        """Call `listener` with what is going on ("run", "confirm" or "wait"), how much of it is done, of how
        much, and more in words."""
        self._listener = listener

    # --- running ---

    def run(self, entries: Sequence[Built | Outcome], best: float | None = None) -> list[Outcome]:
        """Each once, those that could not be measured undisturbed a few times."""
        outcomes = self._run(entries, best, MEASURE_SECONDS)
        waited = True
        while waited and (doubtful := [n for n, outcome in enumerate(outcomes) if not outcome.reliable]):
            waited = 2 * len(doubtful) > len(entries) and self._wait(len(doubtful), len(entries))
            latencies = [best, *[outcome.latency for outcome in outcomes]]
            best = min((latency for latency in latencies if latency is not None), default=None)
            again = self._run([entries[n] for n in doubtful], best, MEASURE_SECONDS)
            for n, outcome in zip(doubtful, again, strict=True):
                outcomes[n] = choose_better(outcomes[n], outcome)
        return outcomes

    def confirm(self, entries: Sequence[Built | Outcome]) -> list[Outcome]:
        """All by turns, some rounds of them."""
        rounds: list[list[Outcome]] = []
        results: list[Outcome] = []
        deadline = time.monotonic() + CONFIRM_LONGEST
        for n in range(CONFIRM_ROUNDS + MORE_ROUNDS):
            of = max(CONFIRM_ROUNDS, n + 1)
            rounds.append(self._run(entries, None, CONFIRM_SECONDS, ("confirm", n, of)))
            entries = [entry if outcome.ok else outcome for entry, outcome in zip(entries, rounds[-1])]
            results = [merge_rounds(outcomes) for outcomes in zip(*rounds)]
            settled = n + 1 >= CONFIRM_ROUNDS and all(outcome.reliable for outcome in results)
            if settled or (n + 1 >= FEWEST_ROUNDS and time.monotonic() > deadline):
                break
        return results

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
                    more = {"best": best, "min_time": min_time}
                    yield make_job(i, entry, self._workload.limits.run_seconds, **more)

        self._tell(what, round * len(entries), rounds * len(entries))
        for job, (answer, _) in self._pool.run(jobs()):
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
            log.warning("%s: %s; waiting for %g s", self._workload.program.name, why, pause)
        self._tell("wait", 0, 1, f"{why}; waiting for {pause:g} s")
        time.sleep(pause)
        return True

    # --- what is right ---

    def establish(self, reference: Built | Outcome) -> None:
        """Fill the arena: inputs and what the program makes of them as written.

        Where an assertion fails or a result is not finite, as of the logarithm of a negative number, inputs
        are positive instead.
        """
        program, given = self._workload.program, self._workload.inputs
        highest = {b: values.high for b, values in values_of(program).items()}
        magnitude = exact_magnitude(program, highest) if given is None else None
        rng = np.random.default_rng(self._workload.seed)
        positive = (False, True) if given is None else (False,)
        failure, results = "", ()
        for attempt in positive:
            data = given or arrays(program, magnitude, attempt, rng)
            for array, values in zip(self._arena.arrays, data):
                array[...] = values
            failure, results = self._reference_results(reference)
            if failure is None and (attempt == positive[-1] or all(np.isfinite(r).all() for r in results)):
                break
        if failure is not None:
            raise MeasureError(
                f"{program.name} cannot be run as written: {failure}; "
                f"if its inputs must be special, pass Measurer(..., inputs=[...])"
            )
        for expected, result in zip(self._arena.arrays[-len(self._outputs) :], results, strict=True):
            expected[...] = result

    def _reference_results(self, reference: Built | Outcome) -> tuple[str | None, Sequence[np.ndarray]]:
        """Why there are none, and the outputs; by the interpreter if the loops as written cannot be built."""
        first, last = len(self._inputs), len(self._inputs) + len(self._outputs)
        if isinstance(reference, Outcome):
            try:
                results = interpret(self._workload.program, *self._arena.arrays[:first])
            except InterpreterError as error:
                return one_line(error), ()
            return None, results if isinstance(results, tuple) else (results,)
        job = make_job(0, reference, REFERENCE_SECONDS, reference=True)
        ((_, (answer, _)),) = self._pool.run([job])
        if answer["kind"] == "ok":
            return None, self._arena.arrays[first:last]
        return f"{answer['kind']}: {answer['detail']}", ()


def make_job(key: int, built: Built, seconds: float, **more: float | bool | None) -> Job:
    header, code = built.pack()
    return Job(key, seconds, header | more, code)


def choose_better(first: Outcome, second: Outcome) -> Outcome:
    """Of the same candidate, measured twice because the first could not be believed: a failure of the second
    may be chance or not, so it counts."""
    seconds = first.run_seconds + second.run_seconds
    if second.reliable or (second.latency or 0.0) < (first.latency or 0.0):
        return replace(second, run_seconds=seconds)
    return replace(first, run_seconds=seconds)


def merge_rounds(outcomes: Sequence[Outcome]) -> Outcome:
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
