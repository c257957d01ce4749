"""`DeviceSequence`: kernels of several programs, started one after the other.

The parameters of each lie at places behind a few bases, and so do the buffers that its kernels pass values
through. Whoever calls it says what memory of the device a place is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ..sequence import KernelCall, Place
from .device import Device
from .executable import STATUS_BYTES, DeviceExecutable, start_kernels
from .program import ALIGNMENT

MemoryOf = Callable[[Place, int], Any]  # by place and number of bytes


class DeviceSequence:
    """Where a check of a kernel fails, those after it still run; the error is raised at the end."""

    def __init__(self, calls: Sequence[KernelCall[DeviceExecutable]]) -> None:
        self.calls = list(calls)
        self.status: dict[Hashable, Any] = {}  # of the checks, by device and queue
        self.can_fail = any(call.executable.program.failures for call in self.calls)

    def run(self, device: Device, memory_of: MemoryOf) -> None:
        if device.key not in self.status:  # allocating waits for the device
            self.status[device.key] = device.allocate(max(1, len(self.calls)) * ALIGNMENT)
        status = self.status[device.key]
        if self.can_fail:
            device.write(status, np.zeros(len(self.calls) * ALIGNMENT, np.uint8))
        for n, call in enumerate(self.calls):
            program = call.executable.program
            arguments = [
                memory_of(place, spec.nbytes)
                for place, spec in zip(call.arguments, program.params, strict=True)
            ]
            base, offset = call.workspace
            temporaries = [
                memory_of(Place(base, offset + at), t.nbytes)
                for at, t in zip(program.offsets, program.temporaries, strict=True)
            ]
            own = device.part(status, n * ALIGNMENT, STATUS_BYTES)
            compiled = call.executable.compiled(device)
            start_kernels(program, compiled, device, arguments, temporaries, own)
        if self.can_fail:
            self.check(device, status)

    def check(self, device: Device, status: Any) -> None:
        raw = np.zeros(len(self.calls) * ALIGNMENT, np.uint8)
        device.read(status, raw)
        for n, call in enumerate(self.calls):
            own = raw[n * ALIGNMENT : n * ALIGNMENT + STATUS_BYTES]
            code, value = int(own.view(np.int32)[0]), int(own.view(np.int64)[1])
            if code:
                raise call.executable.program.error_of(code, value)
