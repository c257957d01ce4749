"""What runs on the nodes of a cluster: the task of a builder, the actor that times. Only frames cross.

Both leave the work to worker processes of their node, so that a candidate may end those and never a task or
an actor of Ray.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import ray

from ... import __version__
from ...target import resolve
from ..frames import pack, unpack
from ..outcome import MeasureError, Outcome, one_line
from ..peak import measure_peak
from ..pool import Job, Pool
from ..runner import LocalRunner
from ..workload import Built, MeasuredWorkload
from . import gate
from .travel import unpack_parts

log = logging.getLogger("metaschedule")
REFUSED = "refused"  # the answer to who has another version
MINUTE = 60.0  # seconds
OPEN = 4  # workloads that have a process of their own, on a runner
BUILDERS: dict[int, Pool] = {}  # of this process, by the memory that a job may take


def read(data: bytes) -> Any:
    frame = unpack(bytearray(data))
    assert frame is not None
    return frame


def refusal(version: str) -> str:
    """What is wrong with a driver's version, if anything is."""
    if version == __version__:
        return ""
    return (
        f"node {socket.gethostname()} has metaschedule {__version__}, and the driver has {version}: install "
        "one of them on both"
    )


def build(version: str, memory: int, seconds: Sequence[float], requests: Sequence[bytes]) -> list[bytes]:
    """Answers to the requests of `measure.build`, in order."""
    if why := refusal(version):
        return [pack({"kind": REFUSED, "detail": why})] * len(requests)
    if memory not in BUILDERS:
        BUILDERS[memory] = Pool("build", 1, 2, {"memory": memory})
        BUILDERS[memory].start()
    jobs = [Job(n, limit, *read(data)) for n, (limit, data) in enumerate(zip(seconds, requests, strict=True))]
    answers: dict[int, bytes] = {}
    with gate.computing():
        for job, frame in BUILDERS[memory].run(jobs):
            answers[job.key] = pack(*frame)
    return [answers[n] for n in range(len(jobs))]


def probe() -> dict[str, Any]:
    """What this machine is, without timing anything."""
    return {"name": socket.gethostname(), "version": __version__, "target": resolve("native").to_json()}


class RunnerActor:
    """Times candidates on its node, whose cores it has for itself meanwhile. It ends with the driver, or when
    that has not been heard of for `lease` seconds."""

    def __init__(self, lease: float) -> None:
        os.environ.pop("OMP_NUM_THREADS", None)  # Ray's: 1, for an actor without cores of its own
        self._lease = lease
        self._heard = time.monotonic()
        self._open: OrderedDict[str, LocalRunner] = OrderedDict()
        self._now: dict[str, Any] = {"state": "idle", "program": "", "done": 0, "of": 0}
        self._progress = self._trials = self._disturbed = 0
        self._finished: deque[tuple[float, int]] = deque()  # batches of the last minute: when, how many
        threading.Thread(target=self._end_with_lease, daemon=True).start()

    def describe(self) -> dict[str, Any]:
        """What this machine is."""
        with gate.timing():
            return probe() | {"pid": os.getpid(), "peak": measure_peak(resolve("native"))}

    @ray.method(concurrency_group="control")
    def status(self) -> dict[str, Any]:
        """What it does now; to be asked is to be heard of."""
        self._heard = time.monotonic()
        return self._report()

    @ray.method(concurrency_group="control")
    def look(self) -> dict[str, Any]:
        """The same for somebody else than the driver."""
        return self._report()

    def run(
        self, version: str, key: str, best: float | None, confirm: bool, sizes: Sequence[int], *pieces: bytes
    ) -> bytes:
        """Outcomes of candidates, in order: `run` of a `LocalRunner`, or its `confirm`. `key` names the
        workload, which is opened if it is not. The pieces are the workload, its reference, the candidates."""
        if why := refusal(version):
            return pack({"error": why})
        self._heard = time.monotonic()
        workload, reference, *entries = unpack_parts(sizes, pieces)
        built = [Built.unpack(read(data)) for data in entries]
        self._tell("waiting")
        try:
            with gate.timing():
                runner = self._runner(key, workload, reference)
                outcomes = runner.confirm(built) if confirm else runner.run(built, best)
                constraint = runner.constraint
        except Exception as error:  # the workload's, or a bug: other nodes would fail as well
            log.debug("a workload cannot be measured", exc_info=True)
            message = str(error) if isinstance(error, MeasureError) else error
            return pack({"error": one_line(message)})
        finally:
            self._tell("idle")
        if not confirm:
            self._trials += len(outcomes)
            now = time.monotonic()
            self._finished.append((now, len(outcomes)))
            while self._finished[0][0] < now - MINUTE:
                self._finished.popleft()
            self._disturbed += sum(not outcome.reliable for outcome in outcomes)
        return pack({"outcomes": [asdict(outcome) for outcome in outcomes], "constraint": constraint})

    def drop(self, key: str) -> None:
        """End the process of a workload."""
        if key in self._open:
            self._open.pop(key).close()

    def _report(self) -> dict[str, Any]:
        """Called by other threads than the one that works: of what that changes they take a copy."""
        since = time.monotonic() - MINUTE
        return dict(self._now) | {
            "progress": self._progress, "trials": self._trials, "disturbed": self._disturbed,
            "rate": sum(count for when, count in tuple(self._finished) if when > since), "pid": os.getpid(),
        }  # fmt: skip

    def _runner(self, key: str, workload: bytes, reference: bytes) -> LocalRunner:
        if key not in self._open:
            while len(self._open) >= OPEN:
                self._open.popitem(last=False)[1].close()
            given = MeasuredWorkload.unpack(read(workload))
            self._now["program"] = given.program.name
            self._tell("preparing")
            runner = LocalRunner(given)
            try:
                runner.establish(read_entry(reference))
            except BaseException:
                runner.close()
                raise
            self._open[key] = runner
            runner.listen(lambda what, done, of, detail: self._tell(what, done, of, given.program.name))
        self._open.move_to_end(key)
        return self._open[key]

    def _tell(self, state: str, done: int = 0, of: int = 0, program: str = "") -> None:
        self._progress += 1
        self._now |= {"state": state, "done": done, "of": of}
        if program or state == "idle":
            self._now["program"] = program

    def _end_with_lease(self) -> None:
        while time.monotonic() - self._heard < self._lease:
            time.sleep(min(1.0, self._lease / 4))
        os._exit(0)  # its worker processes end with it


def pack_entry(entry: Built | Outcome) -> bytes:
    return pack(*entry.pack()) if isinstance(entry, Built) else pack({"outcome": asdict(entry)})


def read_entry(data: bytes) -> Built | Outcome:
    header, code = read(data)
    return outcome_of(header["outcome"]) if "outcome" in header else Built.unpack((header, code))


def outcome_of(data: dict[str, Any]) -> Outcome:
    return Outcome(**{**data, "times": tuple(data["times"])})
