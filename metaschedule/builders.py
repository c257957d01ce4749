"""Many programs compiled at once, in worker processes.

Scheduling is Python and LLVM sits behind one lock, so a process compiles one program at a time. A worker gets
a program as text and gives kernels with their object code; what it fails at is done here, so that errors are
the caller's.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from .codegen import generate, split_constants
from .ir import Program
from .measure import Limits, MeasureError
from .measure.frames import Frame, Header
from .measure.pool import Job, Pool
from .measure.steps import joined, parted
from .measure.worker import serve
from .runtime import Kernel, compile_object
from .schedule import Trace
from .script import parse
from .space.untuned import untuned
from .target import Target

log = logging.getLogger("metaschedule")
FEW = 3  # programs that are compiled before workers have started
SECONDS = 120.0  # for a program


@dataclass(frozen=True)
class BuildJob:
    """A program with the trace of its schedule; the untuned default without one."""

    program: Program
    trace: Trace | None = None


@dataclass(frozen=True)
class Part:
    """`script` is the text of the program that became the kernel."""

    kernel: Kernel
    code: bytes
    script: str


def compiled_tasks(tasks: Sequence[BuildJob], target: Target, bounds: str = "checked") -> list[list[Part]]:
    """The kernels of each program: the last is the kernel proper, one before it prepares constants. `bounds`
    is that of `codegen.generate`."""
    done = in_workers(tasks, target, bounds) if len(tasks) > FEW else {}
    return [done[n] if n in done else compiled(task, target, bounds) for n, task in enumerate(tasks)]


def compiled(task: BuildJob, target: Target, bounds: str) -> list[Part]:
    sch = untuned(task.program, target) if task.trace is None else task.trace.apply(task.program)
    programs = [program for program in split_constants(sch.program) if program is not None]
    kernels = [generate(program, target, bounds=bounds) for program in programs]
    return [Part(k, compile_object(k.llvm, target), str(p)) for k, p in zip(kernels, programs)]


def in_workers(tasks: Sequence[BuildJob], target: Target, bounds: str) -> dict[int, list[Part]]:
    """What workers make of the tasks, by number; without those that they fail at."""
    done: dict[int, list[Part]] = {}
    pool = Pool("build", len(os.sched_getaffinity(0)), 1, {"memory": Limits().memory}, module=__name__)

    def jobs() -> Iterator[Job]:
        for n, task in enumerate(tasks):
            trace = None if task.trace is None else task.trace.to_json()
            header = {
                "program": str(task.program),
                "trace": trace,
                "target": target.to_json(),
                "bounds": bounds,
            }
            yield Job(n, SECONDS, header)

    with closing(pool):
        try:
            for job, (answer, payload) in pool.run(jobs()):
                if answer["kind"] == "ok":
                    codes = parted(answer["sizes"], payload)
                    kernels = map(Kernel.from_json, answer["kernels"])
                    done[job.key] = list(map(Part, kernels, codes, answer["scripts"]))
                else:
                    name = tasks[job.key].program.name
                    log.info("%s: %s in a worker: %s", name, answer["kind"], answer["detail"])
        except MeasureError as error:
            log.warning("compiling without worker processes: %s", error)
    return done


def answer(header: Header, _: bytes) -> Frame:
    """The worker's side."""
    trace = Trace.from_json(header["trace"]) if header["trace"] else None
    task = BuildJob(parse(header["program"]), trace)
    parts = compiled(task, Target.from_json(header["target"]), header["bounds"])
    sizes, codes = joined([part.code for part in parts])
    kernels, scripts = [part.kernel.to_json() for part in parts], [part.script for part in parts]
    return {"kind": "ok", "sizes": sizes, "kernels": kernels, "scripts": scripts}, codes


if __name__ == "__main__":
    serve(lambda _: answer, int(sys.argv[2]))
