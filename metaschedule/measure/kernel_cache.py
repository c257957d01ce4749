"""Compiled programs in the cache on disk: by their structure and what is to be made of them.

A key has everything that code is made of: the program (or LLVM text), the trace or "untuned", `bounds`, and
what a user has added to the language. The package's own code, LLVM and the target are its identity.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..cache import digest_of, identify, store
from ..ir import Program, structural_hash
from ..runtime import Kernel
from ..schedule import Trace
from ..schedule.instructions import OWN
from ..schedule.intrinsics import INTRINSICS, Intrinsic
from ..target import Target
from .stage import KernelStage

KIND = "kernels"
FASTEST = 1  # level of zlib: 10 MB of LLVM text in 30 ms


def kernel_key(program: Program | Kernel, how: Trace | str, bounds: str) -> str | None:
    """The name of what is compiled; None if a key cannot say all that it depends on."""
    if isinstance(program, Kernel):
        return digest_of(["kernel", program.to_json()])
    if isinstance(how, Trace) and not all(is_own(step.primitive) for step in how.instructions):
        return None
    made_by = how if isinstance(how, str) else how.to_json()
    names = [b.name for b in program.inputs]  # which constants are given by
    return digest_of(["program", structural_hash(program), names, made_by, bounds, extensions()])


def is_own(step: object) -> bool:
    """Whether a step of a schedule is the package's: what a user's does is not known from its name."""
    return type(step).__module__.partition(".")[0] == "metaschedule"


def extensions() -> list[list[Any]]:
    """The intrinsics that a user has made known: the untuned default tries them all."""
    return [describe_intrinsic(found) for name, found in sorted(INTRINSICS.items()) if name not in OWN]


def describe_intrinsic(found: Intrinsic) -> list[Any]:
    if found.instruction is not None:
        better = [found.instruction.code, list(found.instruction.features)]
    else:
        better = [structural_hash(found.implementation) if found.implementation else ""]
    return [found.name, structural_hash(found.description), better]


def find_stages(key: str | None, target: Target) -> list[KernelStage] | None:
    """What was compiled for a target, in this process or another."""
    entry = None if key is None else store().read(KIND, key, identify(target.to_json()))
    if entry is None:
        return None
    found: list[KernelStage] = []
    for n, data in enumerate(entry.data["stages"]):
        code, llvm = entry.parts[2 * n : 2 * n + 2]
        stage = KernelStage.from_json(data, bytes(code))
        kernel = replace(stage.cpu_kernel, llvm=zlib.decompress(llvm).decode())
        found.append(replace(stage, kernel=kernel, script=entry.data["scripts"][n]))
    return found


def keep_stages(key: str | None, target: Target, stages: Sequence[KernelStage]) -> None:
    if key is None or not all(isinstance(stage.kernel, Kernel) for stage in stages):
        return
    data = {"stages": [stage.to_json() for stage in stages], "scripts": [stage.script for stage in stages]}
    parts = [p for s in stages for p in (s.code, zlib.compress(s.llvm.encode(), FASTEST))]
    store().write(KIND, key, identify(target.to_json()), data, parts)
