"""`MeasuredWorkload` and `Built`: what a runner is given, as data that can cross to other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ..ir import Program
from ..runtime import ArgSpec
from ..script import parse
from ..target import Target
from .frames import Frame, Header
from .outcome import Limits
from .stage import KernelStage, cut, join


@dataclass(frozen=True)
class MeasuredWorkload:
    """A program that candidates are of, as written. `inputs` are arrays to use instead of those that
    `inputs.draw` makes of `seed`; `threads` is how many a candidate may use."""

    program: Program
    target: Target
    limits: Limits
    threads: int | None = None
    seed: int = 0
    inputs: Sequence[np.ndarray] | None = None

    def pack(self) -> Frame:
        header = {
            "program": str(self.program), "target": self.target.to_json(), "limits": asdict(self.limits),
            "threads": self.threads, "seed": self.seed,
        }  # fmt: skip
        if self.inputs is None:
            return header, b""
        specs = map(ArgSpec.of, self.program.inputs)
        dense = [np.ascontiguousarray(a, s.empty().dtype) for a, s in zip(self.inputs, specs, strict=True)]
        sizes, data = join([array.tobytes() for array in dense])
        return header | {"sizes": sizes}, data

    @staticmethod
    def unpack(frame: Frame) -> MeasuredWorkload:
        header, data = frame
        program = parse(header["program"])
        inputs = None
        if "sizes" in header:
            specs = map(ArgSpec.of, program.inputs)
            parts = cut(header["sizes"], data)
            inputs = [
                np.frombuffer(part, spec.empty().dtype).reshape(spec.shape)
                for part, spec in zip(parts, specs, strict=True)
            ]
        return MeasuredWorkload(
            program, Target.from_json(header["target"]), Limits(**header["limits"]), header["threads"],
            header["seed"], inputs,
        )  # fmt: skip


@dataclass(frozen=True)
class Built:
    """Kernels with their code, as a builder gave them: who passes them on need not decode them. `seconds` is
    what building took, `tolerance` how far results may be off."""

    header: Header
    code: bytes
    seconds: float
    tolerance: float

    @property
    def stages(self) -> list[KernelStage]:
        return list(map(KernelStage.from_json, self.header["stages"], cut(self.header["sizes"], self.code)))

    def pack(self) -> Frame:
        kernels = {"stages": self.header["stages"], "sizes": self.header["sizes"]}
        return kernels | {"seconds": self.seconds, "tolerance": self.tolerance}, self.code

    @staticmethod
    def unpack(frame: Frame) -> Built:
        header, code = frame
        return Built(header, code, header["seconds"], header["tolerance"])
