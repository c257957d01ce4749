"""`Sequence`: kernels called one after the other, without Python or allocation between them.

The arguments of each kernel lie at fixed offsets behind a few addresses (*bases*) that a call gives: the
memory for intermediate results, inputs, outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from .executable import Executable
from .layout import Argument, SequenceStep, Steps
from .native import PROCESS, native_module
from .threads import THREADS

E = TypeVar("E")


class Place(NamedTuple):
    """So many bytes behind the base of this number. Base 0 is address 0: fixed memory is there, too."""

    base: int
    offset: int


@dataclass(frozen=True)
class KernelCall(Generic[E]):
    """A kernel, whatever constants it is bound to, with the places of all its parameters."""

    executable: E
    arguments: tuple[Place, ...]
    workspace: Place


class Sequence:
    """Called with the number of threads and the address of every base from 1 on.

    Where a kernel fails, those after it do not run, and a `KernelError` names it. A `clocked` sequence keeps
    in `seconds` what each kernel took in the last call.
    """

    def __init__(self, calls: Items[KernelCall[Executable]], bases: int, clocked: bool = False) -> None:
        self.calls = list(calls)
        self._clock = (ctypes.c_double * (len(self.calls) + 1))() if clocked else None
        self._arguments: list[ctypes.Array[Argument]] = []  # what the steps point into
        steps = (SequenceStep * max(1, len(self.calls)))(*map(self._step, self.calls))
        most = max((len(a) for a in self._arguments), default=0)
        parallel = sum(call.executable.kernel.max_threads > 1 for call in self.calls)
        self._steps = Steps(
            steps, len(self.calls), bases, most, ctypes.pointer(PROCESS), parallel, self._clock
        )
        self._run = native_module().function("run_steps", self._steps)

    @property
    def seconds(self) -> list[float]:
        times = list(self._clock or ())
        return [after - before for before, after in pairwise(times)]

    def _step(self, call: KernelCall[Executable]) -> SequenceStep:
        places = [call.workspace, *call.arguments]
        arguments = (Argument * len(places))(*[Argument(*place) for place in places])
        self._arguments.append(arguments)
        kernel = call.executable.kernel
        return SequenceStep(call.executable.entry, arguments, len(places), kernel.max_threads)

    def __call__(self, threads: int, *bases: int) -> None:
        if not THREADS.settled:
            THREADS.refresh()
        outcome = self._run(threads, *bases)
        if outcome:
            raise self._error_of(outcome)

    def _error_of(self, outcome: int | tuple[int, int]) -> Exception:
        if not isinstance(outcome, tuple):
            return TypeError(f"a call gives {self._steps.bases} addresses after the number of threads")
        status, value = outcome
        kernel = self.calls[status >> 32].executable.kernel
        return kernel.error_of(status & 0xFFFFFFFF, value)
