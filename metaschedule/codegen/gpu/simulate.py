"""Lowered kernels run by the letter, threads in any order: finds races, missing barriers and bad indices.

Blocks run one after the other in a random order. Between two barriers the threads of a block do, too; each
has its own registers. Every element notes which threads have touched it since the last barrier, so that a
race is found in whatever order it did not show: one thread writes what another touches in the same interval,
or one block what another touches at all. What a pipeline fetches has arrived when a barrier says so, whoever
reads it. Elements that are read before anything was written, and indices outside of their buffers, are
errors as in the interpreter, whose expressions these are.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import ir
from ...interpreter import InterpreterError
from ...interpreter.interpret import check_inputs, result
from ...interpreter.memory import Memory, TensorMemory, element, fresh, indices_at, readonly_tensor
from ...interpreter.walk import EXPRESSIONS, Eval, Interpreter
from .lower import LoweredGpu
from .model import BLOCKS, THREADS, Barrier, GpuKernel, is_shuffle

Thread = dict[ir.Var, Any]
SEVERAL = -1  # more than one thread


class RaceError(InterpreterError):
    """Two threads touch one element, one of them writes it, and nothing orders them."""


def simulate(
    lowered: LoweredGpu, program: ir.Program, *inputs: Any, seed: int = 0
) -> np.ndarray | tuple[np.ndarray, ...]:
    """What the kernels of a program give, as `interpret` does; `RaceError` or `InterpreterError` if the order
    of threads matters or an access is wrong."""
    rng = random.Random(seed)
    memory: Memory = {
        b: readonly_tensor(b, x) for b, x in zip(program.inputs, check_inputs(program, inputs), strict=True)
    }
    memory |= {b: fresh(b) for b in (*program.outputs, *lowered.workspace, *lowered.tables)}
    with np.errstate(all="ignore"):
        for kernel in lowered.kernels:
            try:
                Simulation(kernel, memory, rng).run()
            except InterpreterError as error:
                error.program = kernel.program
                raise
    results = tuple([result(memory[b]) for b in program.outputs])
    return results[0] if len(results) == 1 else results


class Touched:
    """Who has touched the elements of a tensor: the interval of the last write and read, and the thread; and
    in which group of copies each was written."""

    __slots__ = ("group", "read_at", "read_by", "wrote_at", "wrote_by")

    def __init__(self, size: int) -> None:
        self.wrote_at, self.read_at = np.full(size, -1), np.full(size, -1)
        self.wrote_by, self.read_by = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.group = np.zeros(size, np.int64)


class Simulation(Interpreter):
    """One kernel. A step of time is `interval`: barriers begin another for a block, blocks for the shared
    memory of the next; memory of the device has one for the whole kernel."""

    def __init__(self, kernel: GpuKernel, memory: Memory, rng: random.Random) -> None:
        super().__init__(dict(memory), lanes=False)
        self.kernel, self.rng = kernel, rng
        self.interval, self.thread, self.base = 0, 0, 0
        self.group, self.arrived = 1, 0  # of copies: that which is filled, and the last one that is there
        self.touched: dict[TensorMemory, Touched] = {}
        self.runs: dict[int, Callable[[], None]] = {}
        self.local = [b for b in kernel.program.allocs if b.scope == "local"]
        self.shared = [b for b in kernel.program.allocs if b.scope == "shared"]

    # --- accesses ---

    def expr(self, e: ir.Expr) -> Eval:
        if not isinstance(e, ir.Load) or e.buffer.scope == "local":
            return EXPRESSIONS[type(e)](self, e)
        read, buffer = self.load(e), e.buffer
        address = self.address("read of", buffer, e.indices)

        def noted() -> Any:
            self.note(buffer, address(), is_write=False)
            return read()

        return noted

    def assign(self, s: ir.Store) -> tuple[Eval, Callable[[], int], Callable[[int, Any], None]]:
        value, address, write = super().assign(s)
        if s.buffer.scope == "local":
            return value, address, write

        def noted(at: int, x: Any) -> None:
            self.note(s.buffer, at, is_write=True)
            write(at, x)

        return value, address, noted

    def note(self, buffer: ir.Buffer, at: int, is_write: bool) -> None:
        tensor = self.memory[buffer]
        if tensor.written is None:
            return
        if tensor not in self.touched:
            self.touched[tensor] = Touched(tensor.data.size)
        seen, me = self.touched[tensor], self.thread
        # Before `base` other blocks ran, which nothing orders; since then, barriers do.
        wrote_at, read_at = seen.wrote_at[at], seen.read_at[at]
        foreign = self.base if buffer.scope == "global" else 0
        if (wrote_at == self.interval and seen.wrote_by[at] != me) or 0 <= wrote_at < foreign:
            raise self.race(buffer, at, "written")
        if is_write:
            if (read_at == self.interval and seen.read_by[at] != me) or 0 <= read_at < foreign:
                raise self.race(buffer, at, "read")
            seen.wrote_at[at], seen.wrote_by[at] = self.interval, me
            seen.group[at] = self.group if buffer in self.kernel.ahead else 0
        else:
            if seen.group[at] > self.arrived:
                name = element(buffer, indices_at(buffer, at))
                raise RaceError(f"{name} is read while it may still be under way")
            several = read_at == self.interval and seen.read_by[at] != me
            seen.read_at[at], seen.read_by[at] = self.interval, SEVERAL if several else me

    def race(self, buffer: ir.Buffer, at: int, how: str) -> RaceError:
        name = element(buffer, indices_at(buffer, at))
        return RaceError(f"{name} is {how} by one thread and touched by another, and no barrier is between")

    # --- threads ---

    def run(self) -> None:
        axes = self.kernel.axes
        blocks = list(self.points([k for k, base in axes.base.items() if base in BLOCKS]))
        self.rng.shuffle(blocks)
        threads = list(self.points([k for k, base in axes.base.items() if base in THREADS]))
        for block in blocks:
            self.interval += 1
            self.base = self.interval
            for b in self.shared:
                self.memory[b] = fresh(b)
            own = [{b: fresh(b) for b in self.local} for _ in threads]
            self.values.update(block)
            self.together(self.kernel.body, threads, own)

    def points(self, keys: list[str]) -> Iterator[Thread]:
        axes = self.kernel.axes
        variables = [axes.vars[k] for k in keys]
        for point in itertools.product(*[range(axes.extents[k]) for k in keys]):
            yield {v: np.int64(x) for v, x in zip(variables, point, strict=True)}

    def together(self, body: ir.Body, threads: list[Thread], own: list[Memory]) -> None:
        """Run statements on all threads: up to the next barrier, in any order."""
        waiting: list[ir.Stmt] = []
        for s in body:
            if not any(isinstance(x, Barrier) or is_shuffle(x) for x in ir.walk(s)):
                waiting.append(s)
                continue
            self.each(waiting, threads, own)
            waiting = []
            if isinstance(s, Barrier):
                self.interval += 1
                self.arrived = max(self.arrived, self.group - s.under_way)
                self.group += 1
            elif isinstance(s, ir.Store):
                self.shuffle(s, threads, own)
            elif isinstance(s, ir.For):
                for n in range(int(self.uniform(s.extent, threads, own))):
                    self.values[s.var] = np.int64(n)
                    self.together(s.body, threads, own)
                self.values.pop(s.var, None)
            elif isinstance(s, ir.If):
                holds = self.uniform(s.cond, threads, own)
                self.together(s.then if holds else s.orelse, threads, own)
            else:
                raise InterpreterError("a barrier where not all threads come by")
        self.each(waiting, threads, own)

    def each(self, body: list[ir.Stmt], threads: list[Thread], own: list[Memory]) -> None:
        """Run statements without barriers, thread by thread."""
        order = list(range(len(threads))) if body else []
        self.rng.shuffle(order)
        for n in order:
            self.enter(n, threads, own)
            for s in body:
                if id(s) not in self.runs:
                    self.runs[id(s)] = self.stmt(s)
                self.runs[id(s)]()

    def shuffle(self, s: ir.Store, threads: list[Thread], own: list[Memory]) -> None:
        """Give every thread the value of another of its warp."""
        assert isinstance(s.value, ir.Call)
        value, step, width = s.value.args
        step, width = ir.as_int(step) or 0, ir.as_int(width) or 1
        value, address, write = super().assign(ir.Store(s.buffer, s.indices, value))
        held: dict[int, Any] = {}
        for n, thread in enumerate(threads):
            self.enter(n, threads, own)
            held[self.lane(thread)] = value()
        for n, thread in enumerate(threads):
            lane = self.lane(thread)
            source = lane + step if lane % width + step < width else lane
            self.enter(n, threads, own)
            write(address(), held.get(source, held[lane]))

    def lane(self, thread: Thread) -> int:
        """The number of a thread in its block."""
        axes, found, weight = self.kernel.axes, 0, 1
        for axis in THREADS:
            if axis in axes.whole:
                keys = axes.digits(axis)
                found += weight * sum(int(thread[axes.vars[k]]) * axes.strides[k] for k in keys)
                weight *= axes.whole[axis]
        return found

    def enter(self, n: int, threads: list[Thread], own: list[Memory]) -> None:
        self.thread = n
        self.values.update(threads[n])
        self.memory.update(own[n])

    def uniform(self, e: ir.Expr, threads: list[Thread], own: list[Memory]) -> Any:
        """A value that all threads agree on."""
        found: list[Any] = []
        value = self.expr(e)
        for n in range(len(threads)):
            self.enter(n, threads, own)
            found.append(value())
        if any(x != found[0] for x in found):
            raise InterpreterError(f"threads do not agree on {e}, and a barrier depends on it")
        return found[0]
