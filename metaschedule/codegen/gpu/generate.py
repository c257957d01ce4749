"""One program, one GPU: its kernels in both dialects, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import ir
from ...runtime import ArgSpec
from ...runtime.failure import Failure
from ...runtime.gpu import DeviceExecutable, DeviceProgram, Launch, Temporary
from ...target import Target
from ...verifier import check_depth
from ..constants import split_constants
from ..legal import values_of
from .dialect import DIALECTS
from .emit import Emit
from .lower import LoweredGpu, clean_name, lower_gpu
from .model import GpuKernel, buffer_bytes, refuse


def generate_device_program(program: ir.Program, target: Target, *, bounds: str = "checked") -> DeviceProgram:
    """The kernels of a program and how they are launched."""
    check_depth(program)
    check_layouts(program)
    lowered = lower_gpu(program, target, checked=bounds == "checked")
    return emit_device_program(program, lowered, target)


def check_layouts(program: ir.Program) -> None:
    """That the first element of every parameter is the lowest: memory of a device begins with it."""
    for b in program.params:
        if ArgSpec.of(b).span[0] < 0:
            raise refuse(
                f"parameter {b.name} has negative strides, {b.strides}",
                program,
                {},
                "pass a copy in row-major order, and build the kernel for that",
            )


def emit_device_program(program: ir.Program, lowered: LoweredGpu, target: Target) -> DeviceProgram:
    failures: list[Failure] = []
    sources: dict[str, str] = {}
    launches: list[Launch] = []
    for dialect in DIALECTS.values():
        parts = [dialect.prelude]
        launches = []
        for kernel in lowered.kernels:
            emit = Emit(kernel, dialect, failures, target.gpu)
            parts.append(emit.text())
            launches.append(launch_of(kernel, emit, program, lowered))
        sources[dialect.name] = "\n\n".join(parts) + "\n"
    return DeviceProgram(
        name=clean_name(program.name),
        target=target,
        inputs=tuple(ArgSpec.of(b) for b in program.inputs),
        outputs=tuple(ArgSpec.of(b) for b in program.outputs),
        sources=sources,
        launches=tuple(launches),
        temporaries=tuple(Temporary(b.name, buffer_bytes(b)) for b in lowered.workspace),
        failures=tuple(failures),
        values=tuple((b.name, values) for b, values in values_of(program).items()),
    )


def launch_of(kernel: GpuKernel, emit: Emit, program: ir.Program, lowered: LoweredGpu) -> Launch:
    places = {b: ("argument", n) for n, b in enumerate((*program.inputs, *program.outputs))}
    places |= {b: ("temporary", n) for n, b in enumerate(lowered.workspace)}
    return Launch(
        kernel.name,
        kernel.grid,
        kernel.block,
        tuple(places[b] for b in emit.parameters()),
        kernel.shared_bytes,
    )


def device_executable(
    program: ir.Program,
    target: Target,
    constants: Mapping[str, Any] | None = None,
    bounds: str = "checked",
) -> DeviceExecutable:
    """Compile a program as it is. Stages that depend on `constants` alone are done now, on the device."""
    values = dict(constants or {})
    preparation, kernel = split_constants(program, values)
    if preparation is not None:
        run = DeviceExecutable(generate_device_program(preparation, target, bounds=bounds))
        results = run(*[values[b.name] for b in preparation.inputs])
        results = results if isinstance(results, tuple) else (results,)
        made = dict(zip([b.name for b in preparation.outputs], results, strict=True))
        needed = {b.name for b in kernel.inputs}
        values = made | {name: value for name, value in values.items() if name in needed}
    return DeviceExecutable(
        generate_device_program(kernel, target, bounds=bounds), script=str(kernel), constants=values
    )
