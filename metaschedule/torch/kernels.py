"""Programs to kernels: the recorded schedule or the untuned default, compiled once per program.

What a kernel does with weights alone (packing) is a kernel of its own, the *preparation*, which runs once for
each set of weights; the code of both is shared by all layers that are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch

from ..database import Database, Record
from ..ir import Program, numpy_dtype, structural_hash
from ..measure.build import UNTUNED, BuildJob, build_all
from ..measure.stage import KernelStage
from ..runtime import ArgSpec, Executable
from ..search.result import best_record
from ..target import Target


@dataclass(frozen=True, eq=False)
class Compiled:
    """`kernel` takes weights, or what `preparation` makes of them, among its inputs. `latency` is what was
    measured for its schedule (seconds); None if there is no record."""

    kernel: Executable
    preparation: Executable | None
    latency: float | None

    def prepare_constants(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The constant inputs of the kernel by name; of those with a layout all memory, as a vector."""
        if self.preparation is None:
            return dict(weights)
        specs = self.preparation.outputs
        made = [torch.empty(memory_shape(spec), dtype=getattr(torch, spec.dtype)) for spec in specs]
        views = [t.as_strided(s.shape, s.strides) if s.strides else t for s, t in zip(specs, made)]
        self.preparation(*[weights[spec.name] for spec in self.preparation.inputs], *views)
        return dict(weights) | {spec.name: t for spec, t in zip(specs, made)}


def memory_shape(spec: ArgSpec) -> tuple[int, ...]:
    return spec.shape if spec.strides is None else (spec.nbytes // numpy_dtype(spec.dtype).itemsize,)


class Compiler:
    """Compiles programs for a target, by the records of a database if there is one."""

    def __init__(self, target: Target, database: Database | None = None) -> None:
        self.target = target
        self.database = database

    def __call__(self, programs: Sequence[Program]) -> list[Compiled]:
        """Equal programs are compiled once; what is compiled already, for whichever model is still there, is
        not compiled again."""
        hashes = [structural_hash(program) for program in programs]
        distinct = dict(zip(hashes, programs))
        records = {key: self._record(program) for key, program in distinct.items()}
        names = {key: (key, self.target.key, record.uid if record else "") for key, record in records.items()}
        found = {key: known for key, name in names.items() if (known := KNOWN.get(name))}
        missing = [key for key in distinct if key not in found]
        tasks = [
            BuildJob(distinct[key], (record.trace if (record := records[key]) else None) or UNTUNED)
            for key in missing
        ]
        for key, stages in zip(missing, build_all(tasks, self.target)):
            found[key] = KNOWN[names[key]] = load_kernels(stages, records[key])
        return [found[key] for key in hashes]

    def _record(self, program: Program) -> Record | None:
        found = best_record(self.database, program, self.target) if self.database else None
        return None if found is None else found[0]


def load_kernels(stages: Sequence[KernelStage], record: Record | None) -> Compiled:
    *before, kernel = [Executable(s.kernel, code=s.code, script=s.script) for s in stages]
    return Compiled(kernel, before[0] if before else None, record.latency if record else None)


KNOWN: WeakValueDictionary[tuple[str, str, str], Compiled] = WeakValueDictionary()
