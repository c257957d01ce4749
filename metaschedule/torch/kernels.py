"""Programs to kernels: the recorded schedule or the untuned default, compiled once per program.

What a kernel does with weights alone (packing) is a kernel of its own, the *preparation*, which runs once for
each set of weights; the code of both is shared by all layers that are equal.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any
from weakref import WeakValueDictionary

import torch

from ..codegen import generate
from ..database import Database, Record
from ..ir import For, Program, numpy_dtype, structural_hash, walk
from ..measure.build import AS_WRITTEN, UNTUNED, BuildJob, build_all
from ..measure.kernel_cache import kernel_key
from ..measure.stage import KernelStage
from ..runtime import ArgSpec, Executable
from ..runtime.gpu import DeviceExecutable, DeviceProgram
from ..schedule import Trace
from ..script import parse
from ..search.result import best_record, first_replaying
from ..target import Target, missing_features, native

log = logging.getLogger("metaschedule")


@dataclass(frozen=True, eq=False)
class Compiled:
    """`kernel` takes weights, or what `preparation` makes of them, among its inputs. `latency` is what was
    measured for its schedule (seconds); None if there is no record. `passed` are constant inputs that are
    no weights, by name. `packed` remembers what was prepared, where several kernels take the same. `name` is
    what the process and its cache on disk know it by; empty if they do not."""

    kernel: Executable | DeviceExecutable
    preparation: Executable | DeviceExecutable | None
    latency: float | None
    passed: Mapping[str, torch.Tensor] = field(default_factory=dict)
    packed: dict[Any, dict[str, torch.Tensor]] | None = None
    name: tuple[str, ...] = ()

    @property
    def on_cpu(self) -> Executable:
        """The kernel, where that is for a CPU."""
        assert isinstance(self.kernel, Executable)
        return self.kernel

    def prepare_constants(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The constant inputs of the kernel by name; of those with a layout all memory, as a vector."""
        if self.preparation is None:
            return {**weights, **self.passed}
        taken = [weights[spec.name] for spec in self.preparation.inputs]
        key = (self.preparation, *[(t.data_ptr(), t.shape, t.stride()) for t in taken])
        if self.packed is None:
            return {**weights, **self.prepare(taken), **self.passed}
        if key not in self.packed:  # with what it was made of: memory that is kept is not reused
            kept = {f"of {n}": t for n, t in enumerate(taken)}
            self.packed[key] = self.prepare(taken) | kept
        return {**weights, **self.packed[key], **self.passed}

    def prepare(self, taken: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        assert self.preparation is not None
        specs = self.preparation.outputs
        device = taken[0].device if taken else None
        made = [
            torch.empty(memory_shape(spec), dtype=getattr(torch, spec.dtype), device=device) for spec in specs
        ]
        views = [t.as_strided(s.shape, s.strides) if s.strides else t for s, t in zip(specs, made)]
        self.preparation(*taken, *views)
        return {spec.name: t for spec, t in zip(specs, made)}


def memory_shape(spec: ArgSpec) -> tuple[int, ...]:
    return spec.shape if spec.strides is None else (spec.nbytes // numpy_dtype(spec.dtype).itemsize,)


class Compiler:
    """Compiles programs for a target, by the records of a database if there is one: by those that were chosen
    for the `model`, which `name_model` names, or else the fastest. `stop` is that of `build_all`."""

    def __init__(
        self, target: Target, database: Database | None = None, model: str = "", stop: Event | None = None
    ) -> None:
        self.target = target
        self.database = database
        self.model = model
        self.stop = stop

    def __call__(self, programs: Sequence[Program]) -> list[Compiled]:
        """Equal programs are compiled once; what is compiled already, for whichever model is still there, is
        not compiled again."""
        hashes = [structural_hash(program) for program in programs]
        distinct = dict(zip(hashes, programs))
        records = {key: self.find_record(program) for key, program in distinct.items()}
        jobs = {
            key: BuildJob(program, how_to_build(program, records[key])) for key, program in distinct.items()
        }
        names = {key: self.name_kernel(job, records[key]) for key, job in jobs.items()}
        found = {key: known for key, name in names.items() if (known := KNOWN.get(name))}
        missing = [key for key in distinct if key not in found]
        built = build_all([jobs[key] for key in missing], self.target, stop=self.stop)
        for key, stages in zip(missing, built):
            record = records[key]
            loaded = load_kernels(stages, record.latency if record else None, names[key])
            found[key] = KNOWN[names[key]] = loaded
        return [found[key] for key in hashes]

    def name_kernel(self, job: BuildJob, record: Record | None) -> tuple[str, ...]:
        """The key in the cache on disk, where it has one, first."""
        assert isinstance(job.program, Program)
        key = kernel_key(job.program, job.how, "checked") or structural_hash(job.program)
        return key, self.target.key, record.uid if record else ""

    def describe_records(self, workload: str) -> str:
        """What the database says of a program, by hash: what it is compiled to changes only if this does."""
        if self.database is None:
            return ""
        choice = self.database.choice(workload, self.target, self.model)
        best = self.database.best(workload, self.target)
        chosen = f"{choice.how} {choice.record}" if choice else ""
        return f"{chosen}, {best.uid if best else ''}"

    def find_record(self, program: Program) -> Record | None:
        if self.database is None:
            return None
        choice = self.database.choice(program, self.target, self.model)
        if choice is not None and choice.how != "record":
            return None
        chosen = self.database.record(choice.record) if choice else None
        if chosen is not None and first_replaying([chosen], program) is not None:
            log.info("%s: record %s, chosen for the model", program.name, chosen.uid)
            return chosen
        found = best_record(self.database, program, self.target)
        return None if found is None else found[0]


def how_to_build(program: Program, record: Record | None) -> Trace | str:
    if is_scheduled(program):
        return AS_WRITTEN
    return (record.trace if record else None) or UNTUNED


def is_scheduled(program: Program) -> bool:
    """Whether the loops of a program have kinds already: nothing is to be searched."""
    return any(isinstance(s, For) and s.kind != "serial" for s in walk(program))


def name_model(programs: Iterable[Program]) -> str:
    """What choices of kernels are kept under: the same for whatever runs these programs so often each."""
    hashes = sorted(structural_hash(program) for program in programs)
    return hashlib.blake2b("\n".join(hashes).encode(), digest_size=16).hexdigest()


def load_kernels(
    stages: Sequence[KernelStage], latency: float | None, name: tuple[str, ...] = ()
) -> Compiled:
    *before, kernel = [
        DeviceExecutable(s.kernel, script=s.script)
        if isinstance(s.kernel, DeviceProgram)
        else Executable(s.kernel, code=s.code, script=s.script)
        for s in stages
    ]
    preparation = before[0] if before else None
    if isinstance(preparation, Executable):
        preparation = runnable_here(preparation)
    return Compiled(kernel, preparation, latency, name=name)


def runnable_here(preparation: Executable) -> Executable:
    """What prepares weights runs on this machine, also for kernels of another."""
    if not missing_features(preparation.kernel.target):
        return preparation
    return Executable(generate(parse(preparation.script), native()), script=preparation.script)


KNOWN: WeakValueDictionary[tuple[str, ...], Compiled] = WeakValueDictionary()
