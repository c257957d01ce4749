"""A rule of thumb for kernels on a GPU: what `build` ranks a few candidates by when nothing was measured.

Counted are the operations of a thread and what it moves, per kernel: results in registers are free, a load
that loops inside of the last barrier do not change is done once, neighbouring threads that read neighbouring
elements share sectors. The device then takes as long as its slowest part, blocks being dealt out to
multiprocessors in rounds; too few warps do not hide latencies, too many registers are memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .. import ir
from ..affine.form import form_of
from ..codegen.gpu.lower import LoweredGpu
from ..codegen.gpu.model import THREADS, Barrier, GpuKernel
from ..errors import ScheduleError
from ..schedule import Schedule
from ..target import Gpu, Target
from .postprocess import lower_candidate

OTHER_REGISTERS = 40  # of a thread, for addresses and operands
ENOUGH_WARPS = 16  # of a multiprocessor, to hide latencies of operations that wait for each other
SPILLED = 8.0  # how much slower a kernel is that keeps its results in memory


@dataclass
class Work:
    """Of one thread: operations, bytes of shared memory, and bytes of memory as sectors count them."""

    operations: float = 0.0
    shared: float = 0.0
    memory: float = 0.0
    barriers: float = 0.0


@dataclass(frozen=True)
class GpuRule:
    """The rule as a cost model."""

    target: Target

    def predict(self, programs: Sequence[Schedule | ir.Program]) -> list[float]:
        """Seconds; infinitely many for what is no kernel of the target."""
        found: list[float] = []
        for each in programs:
            try:
                lowered = lower_candidate(each if isinstance(each, ir.Program) else each.program, self.target)
            except ScheduleError:
                found.append(math.inf)
            else:
                assert self.target.gpu is not None
                found.append(estimate_seconds(lowered, self.target.gpu))
        return found


def estimate_seconds(lowered: LoweredGpu, gpu: Gpu) -> float:
    """How long the kernels take, roughly."""
    return sum([estimate_kernel(kernel, gpu) for kernel in lowered.kernels])


def estimate_kernel(kernel: GpuKernel, gpu: Gpu) -> float:
    work = Work()
    count(kernel.body, (), work, kernel, gpu)
    warps = -(-kernel.threads // gpu.warp)
    blocks = math.prod(kernel.grid)
    if not blocks or not warps:
        return 0.0  # it is never started
    registers = sum([b.room for b in kernel.local]) + OTHER_REGISTERS
    resident = min(
        gpu.resident_blocks,
        max(1, gpu.resident_threads // max(1, warps * gpu.warp)),
        max(1, gpu.registers // (min(registers, gpu.max_registers) * warps * gpu.warp)),
        max(1, gpu.shared // max(1, kernel.shared_bytes)),
    )
    rounds = -(-blocks // gpu.multiprocessors)
    lanes = warps * gpu.warp
    hidden = min(1.0, warps * min(resident, rounds) * max(1, registers - OTHER_REGISTERS) / ENOUGH_WARPS)
    clocks = max(
        lanes * work.operations / gpu.rate("float32") / max(hidden, 1 / ENOUGH_WARPS),
        lanes * work.shared / gpu.shared_bytes,
        lanes * work.memory / (gpu.dram_bandwidth / gpu.clock / gpu.multiprocessors),
    )
    clocks += work.barriers * gpu.latency_shared + gpu.latency_dram / min(resident, rounds)
    if registers > gpu.max_registers:
        clocks *= SPILLED
    return gpu.seconds(rounds * clocks) + gpu.launch_seconds


def count(body: ir.Body, loops: tuple[ir.For, ...], work: Work, kernel: GpuKernel, gpu: Gpu) -> None:
    """Add the work of some statements inside of some loops."""
    for s in body:
        if isinstance(s, ir.For):
            count(s.body, (*loops, s), work, kernel, gpu)
        elif isinstance(s, ir.If):
            count(s.then, loops, work, kernel, gpu)
            count(s.orelse, loops, work, kernel, gpu)
        elif isinstance(s, Barrier):
            work.barriers += times(loops)
        else:
            stores = s.stores if isinstance(s, ir.TupleStore) else (s,)
            for store in stores:
                if isinstance(store, ir.Store):
                    work.operations += times(loops)
                    access(store, loops, work, kernel, gpu)
            for e in (x for own in ir.own_expressions(s) for x in ir.subexpressions(own)):
                if isinstance(e, ir.Load):
                    access(e, loops, work, kernel, gpu)


def times(loops: tuple[ir.For, ...]) -> float:
    return math.prod([f.fixed_extent or 1 for f in loops])


def access(a: ir.Load | ir.Store, loops: tuple[ir.For, ...], work: Work, kernel: GpuKernel, gpu: Gpu) -> None:
    if a.buffer.scope == "local":
        return
    own = {v for index in a.indices for v in ir.free_vars(index)}
    outer = max(
        [n + 1 for n, f in enumerate(loops) if any(isinstance(x, Barrier) for x in ir.walk(f.body))],
        default=0,
    )
    repeated = times(tuple([f for n, f in enumerate(loops) if n < outer or f.var in own]))
    item = ir.numpy_dtype(a.buffer.dtype).itemsize
    if a.buffer.scope == "shared":
        work.shared += repeated * item
        return
    last = [v for key, v in kernel.axes.vars.items() if kernel.axes.base[key] == THREADS[0]]
    step = 0
    for index, stride in zip(a.indices, a.buffer.strides, strict=True):
        step += sum([c for x, c in form_of(index).terms if last and x is last[-1]]) * stride
    if any(f.kind == "vectorized" and f.var in own for f in loops):
        work.memory += repeated * item
    else:
        work.memory += repeated * (min(gpu.sector, abs(step) * item) or 1)
