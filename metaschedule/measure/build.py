"""Programs to object code: what a builder is asked, and how it answers. Candidates and models alike.

A builder gets a program as text, with what is to be made of it: lowering takes far longer than printing (33
ms beside 0.6, of a matrix product), and LLVM sits behind one lock in a process. What a builder cannot read,
because it has an instruction of the user's or what `parse` refuses, is lowered by the caller and sent as
LLVM text.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from threading import Event

from ..errors import ScheduleError, ScriptError, VerifyError
from ..ir import Program
from ..runtime import CompileError, Kernel
from ..runtime.gpu import DeviceProgram
from ..schedule import Trace
from ..script import parse
from ..space.untuned import schedule_untuned
from ..target import Target
from .frames import Frame, Header
from .kernel_cache import find_stages, keep_stages, kernel_key
from .local import LocalWorkers
from .outcome import Limits, MeasureError, one_line
from .pool import Job
from .reference import reference_kernel
from .stage import KernelStage, cut, join, lower_stages
from .workers import Workers

log = logging.getLogger("metaschedule")
AS_WRITTEN, UNTUNED, REFERENCE = "as written", "untuned", "reference"
UNKNOWN = "unknown"  # the answer of a builder that cannot read a program
FEW = 3  # programs that are compiled before workers have started
SECONDS = 120.0  # for a program of a model: it is scheduled too


class Unreadable(ValueError):
    """A program that cannot be read here."""


@dataclass(frozen=True)
class BuildJob:
    """A program, or a kernel that is only to be compiled. `how` says what is to be made of the program: the
    kernel "as written", that of the "untuned" default or of a trace, or the "reference" of its results."""

    program: Program | Kernel
    how: Trace | str = AS_WRITTEN

    def request(self, target: Target, bounds: str = "checked", text: bool = False) -> Frame:
        """What to send to a builder; `text` asks for LLVM text and scripts beside the code."""
        if isinstance(self.program, Kernel):
            return self.lowered_request(target, bounds, text)
        how = self.how if isinstance(self.how, str) else {"trace": self.how.to_json()}
        header = {"program": str(self.program), "how": how, "bounds": bounds, "text": text}
        return header | {"target": target.to_json()}, b""

    def lowered_request(self, target: Target, bounds: str = "checked", text: bool = False) -> Frame:
        """The same with LLVM text, for which a builder need not know the program's instructions."""
        stages = self.lower(target, bounds)
        sizes, texts = join([stage.llvm.encode() for stage in stages])
        return {"stages": [stage.to_json() for stage in stages], "sizes": sizes, "text": text}, texts

    def expected_cost(self) -> float:
        """How long it takes to build, in no unit: jobs that take longest are begun first, so that none of
        them is alone at the end."""
        program = self.program
        if isinstance(program, Kernel):
            return float(len(program.llvm))
        return float(len(str(program)))

    def lower(self, target: Target, bounds: str = "checked") -> list[KernelStage]:
        if isinstance(self.program, Kernel) or self.how == AS_WRITTEN:
            return lower_stages(self.program, target, bounds)
        if self.how == REFERENCE:
            return lower_stages(reference_kernel(self.program, target), target)
        if isinstance(self.how, Trace):
            sch = self.how.apply(self.program)
        else:
            sch = schedule_untuned(self.program, target)
        return lower_stages(sch.program, target, bounds)


def answer(header: Header, payload: bytes) -> Frame:
    """The builder's side."""
    try:
        stages = [stage.compile() for stage in read_request(header, payload)]
    except Unreadable as error:
        return {"kind": UNKNOWN, "detail": one_line(str(error))}, b""
    except (ScheduleError, VerifyError) as error:
        return {"kind": "illegal", "detail": error.message}, b""
    except CompileError as error:
        message = str(error)
        if error.path:  # whoever sent the text still has it
            error.path.unlink()
            message = message.rpartition("\n")[0]
        return {"kind": "build error", "detail": one_line(message)}, b""
    sizes, code = join([stage.code for stage in stages])
    reply: Header = {"kind": "ok", "stages": [stage.to_json() for stage in stages], "sizes": sizes}
    if header["text"]:
        reply |= {"llvm": [s.llvm for s in stages], "scripts": [s.script for s in stages]}
    return reply, code


def read_request(header: Header, payload: bytes) -> list[KernelStage]:
    """The stages that a request is about, lowered."""
    if "stages" in header:
        texts = cut(header["sizes"], payload)
        stages = map(KernelStage.from_json, header["stages"])
        return [
            replace(stage, kernel=with_llvm(stage.kernel, text.decode()))
            for stage, text in zip(stages, texts, strict=True)
        ]
    how = header["how"]
    try:
        program = parse(header["program"])
    except (ScriptError, VerifyError) as error:
        raise Unreadable(one_line(error)) from error
    job = BuildJob(program, how if isinstance(how, str) else Trace.from_json(how["trace"]))
    return job.lower(Target.from_json(header["target"]), header["bounds"])


def stages_of(reply: Header, code: bytes) -> list[KernelStage]:
    """What a builder has built."""
    codes = cut(reply["sizes"], code)
    stages = [KernelStage.from_json(data, part) for data, part in zip(reply["stages"], codes, strict=True)]
    if "llvm" not in reply:
        return stages
    return [
        replace(stage, kernel=with_llvm(stage.kernel, llvm), script=script)
        for stage, llvm, script in zip(stages, reply["llvm"], reply["scripts"], strict=True)
    ]


def with_llvm(kernel: Kernel | DeviceProgram, llvm: str) -> Kernel | DeviceProgram:
    return replace(kernel, llvm=llvm) if isinstance(kernel, Kernel) else kernel


class Cancelled(Exception):
    """Nobody waits any more for what was being built."""


def build_all(
    jobs: Sequence[BuildJob],
    target: Target,
    bounds: str = "checked",
    workers: Workers | None = None,
    stop: Event | None = None,
) -> list[list[KernelStage]]:
    """The stages of each program with their code: from the cache, or compiled, several in worker processes at
    once. What a worker fails at is done here, so that errors are the caller's. `bounds` is that of
    `codegen.generate`. Once `stop` is set, what is not begun is not done, and `Cancelled` is raised."""
    keys = [kernel_key(job.program, job.how, bounds) for job in jobs]
    done = {n: found for n, key in enumerate(keys) if (found := find_stages(key, target)) is not None}
    missing = sorted([n for n in range(len(jobs)) if n not in done], key=lambda n: -jobs[n].expected_cost())
    with closing(build_missing({n: jobs[n] for n in missing}, target, bounds, workers)) as built:
        for n, stages in built:
            keep_stages(keys[n], target, stages)
            done[n] = stages
            if stop is not None and stop.is_set() and len(done) < len(jobs):
                raise Cancelled
    return [done[n] for n in range(len(jobs))]


def build_missing(
    jobs: Mapping[int, BuildJob], target: Target, bounds: str, workers: Workers | None
) -> Generator[tuple[int, list[KernelStage]], None, None]:
    left = dict(jobs)
    if len(jobs) > FEW:
        with closing(build_in_workers(jobs, target, bounds, workers)) as built:
            for n, stages in built:
                del left[n]
                yield n, stages
    for n, job in left.items():
        yield n, build_here(job, target, bounds)


def build_here(job: BuildJob, target: Target, bounds: str = "checked") -> list[KernelStage]:
    return [stage.compile() for stage in job.lower(target, bounds)]


def build_in_workers(
    jobs: Mapping[int, BuildJob], target: Target, bounds: str, workers: Workers | None = None
) -> Generator[tuple[int, list[KernelStage]], None, None]:
    """What workers make of the jobs, by number, as it comes; without those that they fail at. They are begun
    in the order of the jobs."""

    def requests() -> Iterator[Job]:
        for n, job in jobs.items():
            yield Job(n, SECONDS, *job.request(target, bounds, text=True))

    with ExitStack() as stack:
        if workers is None:
            workers = stack.enter_context(LocalWorkers())
        try:
            for job, (reply, code) in workers.build(requests(), Limits().memory):
                if reply["kind"] == "ok":
                    yield job.key, stages_of(reply, code)
                else:
                    program = jobs[job.key].program
                    name = program.name if isinstance(program, Program) else program.entry
                    log.info("%s: %s in a worker: %s", name, reply["kind"], reply["detail"])
        except MeasureError as error:
            log.warning("compiling without worker processes: %s", error)
