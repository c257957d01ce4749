"""`build`: from a program to something that can be called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .codegen import executable
from .codegen.constants import Rebuffer
from .ir import Program, changed
from .runtime import Executable
from .schedule import Schedule
from .space.untuned import untuned
from .target import Target, resolve


def build(
    program: Program | Schedule,
    *,
    target: Target | str = "native",
    constants: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Executable:
    """Compile a program, or exactly what a schedule made of one.

    A program gets the most plausible schedule of the default space, by an analytical cost model and without
    measuring; `build(Schedule(program))` is the loops as written. `constants` fixes parameters by name, which
    then are no call arguments: stages that depend on them alone (packing, for one) are done now. `threads` is
    how many threads the kernel may use (default: `metaschedule.runtime.get_num_threads()`).

    >>> import numpy as np
    >>> from metaschedule import workloads
    >>> gmm = build(workloads.create("GMM", b=1, n=3, m=5, k=7))
    >>> x, y = np.ones((1, 3, 7), "float32"), np.ones((1, 7, 5), "float32")
    >>> gmm(x, y).shape
    (1, 3, 5)
    """
    machine = resolve(target)
    if isinstance(program, Schedule):
        program = program.program
    elif isinstance(program, Program):
        program = untuned(with_constants(program, constants or ()), machine).program
    else:
        raise TypeError(f"build takes a Program or a Schedule, got {type(program).__name__}")
    return executable(program, machine, constants, threads)


def with_constants(program: Program, names: Collection[str]) -> Program:
    """The program with some of its parameters declared constant, so that spaces know."""
    new = {b: changed(b, constant=True) for b in program.inputs if b.name in names and not b.constant}
    return Rebuffer(new).program(program) if new else program
