"""From a scheduled program to something that can be called in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..ir import Program
from ..runtime import Executable
from ..target import Target
from ..verifier import check_depth
from .constants import split_constants
from .generate import generate
from .gpu import device_executable


def executable(
    program: Program,
    target: Target,
    constants: Mapping[str, Any] | None = None,
    threads: int | None = None,
    bounds: str = "checked",
) -> Executable:
    """Compile a program as it is. `constants` are values of parameters, by name; stages that depend on them
    alone are done now. `bounds` is that of `generate`."""
    if target.gpu is not None:
        # Called, timed and printed as an Executable is; what a GPU has not (threads, export) it has not.
        return cast(Executable, device_executable(program, target, constants, bounds))
    check_depth(program)
    values = dict(constants or {})
    preparation, kernel = split_constants(program, values)
    if preparation is not None:
        values = prepare_constants(preparation, kernel, target, values, bounds)
    return Executable(
        generate(kernel, target, bounds=bounds), script=str(kernel), constants=values, threads=threads
    )


def prepare_constants(
    preparation: Program, kernel: Program, target: Target, constants: dict[str, Any], bounds: str
) -> dict[str, Any]:
    """The constants that a kernel takes instead of those that its preparation reads."""
    run = Executable(generate(preparation, target, bounds=bounds))
    results = run(*[constants[b.name] for b in preparation.inputs])
    results = results if isinstance(results, tuple) else (results,)
    made = dict(zip([b.name for b in preparation.outputs], results))
    needed = {b.name for b in kernel.inputs}
    return made | {name: value for name, value in constants.items() if name in needed}
