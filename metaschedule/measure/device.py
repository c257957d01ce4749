"""Candidates for a GPU in the process that runs candidates: the device's own events time them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime import Executable
from ..runtime.gpu import DeviceExecutable, DeviceProgram
from ..target import Target, native
from .stage import KernelStage


def host_of(target: Target) -> Target:
    """The machine that compares the results of a target's kernels: the target itself, or that of its GPU."""
    return target if target.gpu is None else native()


def load_stage(
    stage: KernelStage, constants: Mapping[str, Any] | None = None, threads: int | None = None
) -> Executable | DeviceExecutable:
    """A stage that can be called."""
    if isinstance(stage.kernel, DeviceProgram):
        return DeviceExecutable(stage.kernel, constants=constants)
    return Executable(stage.kernel, code=stage.code, constants=constants, threads=threads)
