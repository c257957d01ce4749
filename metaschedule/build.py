"""`build`: from a program to something that can be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .codegen import generate
from .ir import Program
from .runtime import Executable
from .schedule import Schedule
from .target import Target, resolve


def build(
    program: Program | Schedule,
    *,
    target: Target | str = "native",
    constants: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Executable:
    """Compile a program, or exactly what a schedule made of one.

    `constants` fixes parameters by name, which then are no call arguments. `threads` is how many threads
    the kernel may use (default: `metaschedule.runtime.get_num_threads()`).

    >>> import numpy as np
    >>> from metaschedule import workloads
    >>> gmm = build(workloads.create("GMM", b=1, n=3, m=5, k=7))
    >>> x, y = np.ones((1, 3, 7), "float32"), np.ones((1, 7, 5), "float32")
    >>> gmm(x, y).shape
    (1, 3, 5)
    """
    if isinstance(program, Schedule):
        program = program.program
    if not isinstance(program, Program):
        raise TypeError(f"build takes a Program or a Schedule, got {type(program).__name__}")
    kernel = generate(program, resolve(target))
    return Executable(kernel, script=str(program), constants=constants, threads=threads)
