"""`Predictor`: candidates for a GPU that is not here. Everything is checked but the clock: kernels are
generated, NVIDIA's are compiled where its compiler is, and what they would take is predicted."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..codegen.gpu import generate_device_program
from ..cost import Analytical
from ..errors import ScheduleError, VerifyError
from ..ir import Program
from ..runtime.gpu.device import DeviceError
from ..runtime.gpu.nvrtc import compile_cuda
from ..target import NoDevice, Target, detect_cuda, detect_opencl
from .outcome import Outcome, one_line

log = logging.getLogger("metaschedule")
REGISTER_LIMIT = "the compiler spills {} bytes of registers"


def missing_device(target: Target) -> str | None:
    """Why nothing can be measured for a target on this machine; None if it can."""
    gpu = target.gpu
    if gpu is None:
        return None
    try:
        here = detect_cuda() if target.kind == "cuda" else detect_opencl()
    except NoDevice as error:
        return str(error).partition(";")[0]
    if here.device != gpu.device:
        return f"the {target.kind} device here is {here.device}, not {gpu.device}"
    return None


class Predictor:
    """Builds and checks candidates of a program; their latency is the analytical model's."""

    constraint = ""

    def __init__(self, program: Program, target: Target) -> None:
        self.program, self.target = program, target
        self.model = Analytical(target)
        self.compiles = target.kind == "cuda"

    def measure(self, candidates: Sequence[Program], best: float | None = None) -> list[Outcome]:
        """What becomes of each candidate, in order."""
        return [self.examine(candidate) for candidate in candidates]

    def confirm(self, candidates: Sequence[Program]) -> list[Outcome]:
        return self.measure(candidates)

    def examine(self, candidate: Program) -> Outcome:
        begin = time.perf_counter()
        detail = ""
        try:
            made = generate_device_program(candidate, self.target)
            if self.compiles:
                try:
                    resources = compile_cuda(made.sources["cuda"], self.target).resources
                    spilled = sum(kernel["spilled"] for kernel in resources.values())
                    detail = REGISTER_LIMIT.format(spilled) if spilled else ""
                except DeviceError:  # no compiler: the text alone is checked
                    self.compiles = False
        except (ScheduleError, VerifyError) as error:
            return Outcome("illegal", detail=error.message)
        except Exception as error:  # a bug of ours or of an extension, recorded with the candidate
            log.debug("a candidate of %s cannot be generated", candidate.name, exc_info=True)
            return Outcome("build error", detail=one_line(error))
        seconds = float(self.model.predict([candidate])[0])
        return Outcome("ok", seconds, (), detail, time.perf_counter() - begin)

    def close(self) -> None:
        """There is nothing to end."""
