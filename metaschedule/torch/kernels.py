"""Programs to kernels: the recorded schedule or the untuned default, compiled once per program.

What a kernel does with weights alone (packing) is a kernel of its own, the *preparation*, which runs once for
each set of weights; the code of both is shared by all layers that are equal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch

from ..codegen import generate, split_constants
from ..database import Database, Record
from ..ir import Program, structural_hash
from ..runtime import Executable
from ..schedule import Schedule
from ..search.result import fastest
from ..space.untuned import untuned
from ..target import Target

log = logging.getLogger("metaschedule")


@dataclass(frozen=True, eq=False)
class Compiled:
    """`kernel` takes weights, or what `preparation` makes of them, among its inputs. `latency` is what was
    measured for its schedule (seconds); None if there is no record."""

    kernel: Executable
    preparation: Executable | None
    latency: float | None

    def prepared(self, weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """The constant inputs of the kernel by name."""
        if self.preparation is None:
            return dict(weights)
        made = self.preparation(*[weights[spec.name] for spec in self.preparation.inputs])
        made = made if isinstance(made, tuple) else (made,)
        return dict(weights) | {spec.name: t for spec, t in zip(self.preparation.outputs, made)}


class Compiler:
    """Compiles programs for a target, by the records of a database if there is one."""

    def __init__(self, target: Target, database: Database | None = None) -> None:
        self.target = target
        self.database = database

    def __call__(self, program: Program) -> Compiled:
        """What is compiled already, for whichever model is still there, is not compiled again."""
        records = self.database.records(program, self.target) if self.database else []
        found = fastest(records, program)
        record = found[0] if found else None
        key = (structural_hash(program), self.target.key, record.uid if record else "")
        compiled = KNOWN.get(key)
        if compiled is None:
            schedule = found[1] if found else untuned(program, self.target)
            compiled = KNOWN[key] = self._compile(schedule, record)
        if record is None:
            log.info("%s: no record for %s", program.name, self.target.key)
        else:
            log.info("%s: record %s of %.1f us", program.name, record.uid, 1e6 * (record.latency or 0))
        return compiled

    def _compile(self, schedule: Schedule, record: Record | None) -> Compiled:
        preparation, kernel = split_constants(schedule.program)
        return Compiled(
            Executable(generate(kernel, self.target), script=str(kernel)),
            None if preparation is None else Executable(generate(preparation, self.target)),
            record.latency if record else None,
        )


KNOWN: WeakValueDictionary[tuple[str, str, str], Compiled] = WeakValueDictionary()
