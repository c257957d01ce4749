"""`metaschedule show`: a program, what is made of it, and the machine code."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.syntax import Syntax

from ..build import build, choose_schedule
from ..codegen.gpu import device_executable
from ..cost.gpu import BOUNDS, LIMITS, GpuEstimate, hold_blocks, predict_gpu
from ..ir import Program
from ..runtime.gpu import DeviceExecutable
from ..runtime.gpu.device import DeviceError
from .options import PLACE, Config, check_database, find_target
from .programs import find_program

LANGUAGES = {
    "program": "python", "trace": "python", "schedule": "python", "llvm": "llvm", "asm": "nasm",
    "kernel": "c", "cuda": "c", "opencl": "c", "ptx": "text",
}  # fmt: skip


def show(
    program: Annotated[str, typer.Argument(help="a workload (GMM, C2D, ...) or file.py:program")],
    what: Annotated[
        str,
        typer.Argument(help="program, trace, schedule, llvm or asm; kernel, cuda, opencl or ptx of a GPU"),
    ] = "",
    config: Config = 0,
    target: Annotated[str, typer.Option(help="machine to build for")] = "native",
    db: Annotated[
        str | None,
        typer.Option(callback=check_database, help=f"take the best record of this database: {PLACE}"),
    ] = None,
) -> None:
    """Print the program as written, or the trace, the program or the code of what `build` would take."""
    machine = find_target(target)
    what = what or ("schedule" if machine.gpu is None else "kernel")
    if what not in LANGUAGES:
        raise typer.BadParameter(f"{what!r} is none of {', '.join(LANGUAGES)}")
    found = find_program(program, config)
    text = str(found)
    if what != "program":
        sch = choose_schedule(found, machine, database=db)
        if what == "kernel":
            text = describe_kernels(device_executable(sch.program, machine), sch.program)
        else:
            text = str(
                {"trace": sch.trace, "schedule": sch.program}.get(what)
                or build(sch, target=machine).source(what)
            )
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, LANGUAGES[what], theme="ansi_light", word_wrap=True))
    else:
        print(text)


def describe_kernels(exe: DeviceExecutable, scheduled: Program) -> str:
    """The kernels of a GPU, how they are launched, what they take of a multiprocessor, and what they are
    predicted to take of time. Registers are those of NVIDIA's compiler, or an estimate (~)."""
    program = exe.program
    source = program.sources[program.target.kind]
    gpu = program.target.gpu
    assert gpu is not None
    resources: dict[str, dict[str, int]] = {}
    note = ""
    if program.target.kind == "cuda":
        try:
            resources = exe.resources()
        except DeviceError as error:
            note = f"\n{error}"
    estimate = predict_gpu([scheduled], gpu)
    rows: list[tuple[str, ...]] = [
        ("kernel", "blocks", "threads", "shared bytes", "registers", "spilled bytes",
         "resident blocks", "occupancy", "predicted us", "bound by")
    ]  # fmt: skip
    for n, launch in enumerate(program.launches):
        found = resources.get(launch.kernel, {})
        sizes = ["x".join(map(str, size)) for size in (launch.grid, launch.block)]
        known = n < len(estimate.kernel_seconds)
        guess = f"~{estimate.occupancy.registers[n]:.0f}" if known else "-"
        taken = [str(found.get("registers", guess)), str(found.get("spilled", "-"))]
        warps = -(-math.prod(launch.block) // gpu.warp)
        registers = found.get("registers") or (estimate.occupancy.registers[n] if known else 1)
        limits = hold_blocks(gpu, *(np.array([float(x)]) for x in (warps, registers, launch.shared_bytes)))[
            :, 0
        ]
        share = limits.min() * warps * gpu.warp / gpu.resident_threads
        rows.append(
            (
                launch.kernel,
                *sizes,
                str(launch.shared_bytes),
                *taken,
                f"{limits.min():.0f}",
                f"{100 * share:.0f}% ({LIMITS[int(limits.argmin())]})",
                f"{1e6 * estimate.kernel_seconds[n]:.1f}" if known else "-",
                BOUNDS[int(estimate.bound[n])] if known else "-",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    parts = [describe_parts(estimate, n) for n in range(len(estimate.kernel_seconds))]
    first = min(source.index(launch.kernel + "(") for launch in program.launches)
    begin = source.rindex("\n\n", 0, first) + 2
    return source[begin:] + "\n" + "\n".join([*lines, *parts]) + note


def describe_parts(estimate: GpuEstimate, kernel: int) -> str:
    """What each part of the GPU would take of one kernel."""
    parts = estimate.describe(kernel)
    return f"predicted for {estimate.gpu.device}: " + ", ".join(
        f"{n} {1e3 * ms:.1f} us" for n, ms in parts.items()
    )
