"""`build`: from a program to something that can be called."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from .codegen import check_bounds, executable
from .database import Database, open
from .ir import Program, Substitute, replace_fields
from .runtime import Executable
from .schedule import Schedule
from .search import best_schedule
from .space.untuned import schedule_untuned
from .target import Target, resolve
from .validation import Threads, check_arguments


@check_arguments
def build(
    program: Program | Schedule,
    *,
    target: Target | str = "native",
    constants: Mapping[str, Any] | None = None,
    threads: Threads | None = None,
    database: str | os.PathLike[str] | Database | None = None,
    bounds: str = "checked",
) -> Executable:
    """Compile a program, or exactly what a schedule made of one.

    A program gets the fastest schedule that the `database` has for it and the target; the log (at level INFO)
    says whether there was one. Otherwise it gets the most plausible schedule of the default space, by an
    analytical cost model and without measuring; `build(Schedule(program))` is the loops as written.

    `constants` fixes parameters by name, which then are no call arguments: stages that depend on them alone
    (packing, for one) are done now. `threads` is how many threads the kernel may use (default:
    `metaschedule.runtime.get_num_threads()`).

    A call raises a `runtime.KernelError` where a loaded or computed index is outside of its buffer or an
    integer is divided by zero; what is proved when compiling is not checked. With `bounds="unchecked"`
    nothing is: such an access is then undefined, and may crash.

    >>> import numpy as np
    >>> from metaschedule import workloads
    >>> gmm = build(workloads.create("GMM", b=1, n=3, m=5, k=7))
    >>> x, y = np.ones((1, 3, 7), "float32"), np.ones((1, 7, 5), "float32")
    >>> gmm(x, y).shape
    (1, 3, 5)
    """
    check_bounds(bounds)
    machine = resolve(target) if threads is None else resolve(target).with_cores(threads)
    if isinstance(program, Program):
        program = choose_schedule(declare_constants(program, constants or ()), machine, database)
    return executable(program.program, machine, constants, threads, bounds)


def choose_schedule(
    program: Program, target: Target, database: str | os.PathLike[str] | Database | None = None
) -> Schedule:
    """What `build` makes of a program: the best record, else the untuned default."""
    if database is None:
        return schedule_untuned(program, target)
    db = open(database, readonly=True)
    try:
        return best_schedule(db, program, target) or schedule_untuned(program, target)
    finally:
        if db is not database:
            db.close()


def declare_constants(program: Program, names: Collection[str]) -> Program:
    """The program with some of its parameters declared constant, so that spaces know."""
    new = {b: replace_fields(b, constant=True) for b in program.inputs if b.name in names and not b.constant}
    return Substitute({}, new).program(program) if new else program
