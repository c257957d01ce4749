"""What a candidate runs: its kernel, before that perhaps one that prepares its constants.

Stages that depend on constants alone are done when a kernel is built, so they are not timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..codegen import generate, split_constants
from ..codegen.gpu import generate_device_program
from ..ir import Program
from ..runtime import Kernel, compile_object
from ..runtime.gpu import DeviceProgram
from ..target import Target


@dataclass(frozen=True)
class KernelStage:
    """`takes` are the positions, among the workload's inputs, of those that the kernel is called with. Its
    other inputs are what the stage before it gives. `code` is its object code, once it is compiled, and
    `script` the text of the program that became it, where that is known."""

    kernel: Kernel | DeviceProgram
    takes: tuple[int, ...]
    code: bytes = b""
    script: str = ""

    def to_json(self) -> dict[str, Any]:
        """Without the LLVM text, the code and the script: who runs it is sent the code beside it."""
        if isinstance(self.kernel, DeviceProgram):
            return {"device": self.kernel.to_json(), "takes": self.takes}
        return {"kernel": replace(self.kernel, llvm="").to_json(), "takes": self.takes}

    @staticmethod
    def from_json(data: dict[str, Any], code: bytes = b"") -> KernelStage:
        kernel = DeviceProgram.from_json(data["device"]) if "device" in data else None
        return KernelStage(kernel or Kernel.from_json(data["kernel"]), tuple(data["takes"]), code)

    @property
    def cpu_kernel(self) -> Kernel:
        """The kernel of a stage that was lowered for a CPU."""
        assert isinstance(self.kernel, Kernel)
        return self.kernel

    @property
    def llvm(self) -> str:
        """Its LLVM text; what runs on a GPU has none."""
        return self.kernel.llvm if isinstance(self.kernel, Kernel) else ""

    def compile(self) -> KernelStage:
        """With its code; that of a GPU is made where the device is."""
        if isinstance(self.kernel, DeviceProgram):
            return self
        return replace(self, code=compile_object(self.kernel.llvm, self.kernel.target))


def lower_stages(candidate: Program | Kernel, target: Target, bounds: str = "checked") -> list[KernelStage]:
    """The last one is the kernel proper. `bounds` is that of `codegen.generate`."""
    if isinstance(candidate, Kernel):
        return [KernelStage(candidate, tuple(range(len(candidate.inputs))))]
    position = {b: n for n, b in enumerate(candidate.inputs)}
    parts = [part for part in split_constants(candidate) if part is not None]
    return [
        KernelStage(
            (generate if target.gpu is None else generate_device_program)(part, target, bounds=bounds),
            tuple([position[b] for b in part.inputs if b in position]),
            script=str(part),
        )
        for part in parts
    ]


def join(parts: Sequence[bytes]) -> tuple[list[int], bytes]:
    """Several payloads in one, with their sizes."""
    return [len(part) for part in parts], b"".join(parts)


def cut(sizes: Sequence[int], payload: bytes) -> list[bytes]:
    """What `join` was given.

    >>> cut(*join([b"one", b"three"]))
    [b'one', b'three']
    """
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return [payload[end - size : end] for size, end in zip(sizes, ends)]
