"""`Runner`: carries out a plan. Kernels between two eager steps are one native call.

Several threads may call one runner: each call has memory of its own, which is kept for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..ir import dense_strides, reach
from ..runtime import Executable, pages
from ..runtime.sequence import KernelCall, Place
from ..runtime.sequence import Sequence as KernelSequence
from .capture import draws, tensors_in
from .graph import map_argument, spec_of
from .outputs import Given, Output, restride
from .plan import CONSTANTS, FIRST, MEMORY, EagerStep, KernelStep, Plan, Ref

CPU = torch.device("cpu")
Kernels = Callable[..., None]


class Unexpected(Exception):
    """An eager step gave other results than those that were planned: a node's name, and what it gave."""

    def __init__(self, step: EagerStep, results: Sequence[torch.Tensor]) -> None:
        self.name, self.results = step.name, tuple([spec_of(t) for t in results])
        planned = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in step.results)
        given = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in self.results)
        super().__init__(f"{step.name} = {step.target} was planned to give {planned}, but gave {given}")


class Runner:
    """Called with the tensors that the plan takes; gives what the model returns, as a list."""

    def __init__(self, plan: Plan, device: torch.device = CPU) -> None:
        self.plan, self.device = plan, device
        self._parts: list[Kernels | EagerStep] = self._divide(plan.steps)
        self._returned = [(shape, getattr(torch, dtype)) for shape, dtype in plan.returned]
        self._draws = any(isinstance(step, EagerStep) and draws(step.target) for step in plan.steps)
        self._none_yet = [0] * plan.eager_results
        self._idle: list[torch.Tensor] = []  # memory that no call uses now

    def _divide(self, steps: Sequence[KernelStep | EagerStep]) -> list[Kernels | EagerStep]:
        parts: list[Kernels | EagerStep] = []
        kernels: list[KernelStep] = []
        for step in [*steps, None]:
            if isinstance(step, KernelStep):
                kernels.append(step)
                continue
            if kernels:
                parts.append(self._sequence(kernels))
                kernels = []
            parts += [] if step is None else [step]
        return parts

    def _sequence(self, steps: Sequence[KernelStep]) -> Kernels:
        """The kernels of some steps, called with a number of threads and the addresses of all bases."""
        return KernelSequence([self._call(step) for step in steps], self.plan.bases)

    def _call(self, step: KernelStep) -> KernelCall[Executable]:
        arguments = [
            Place(0, self.plan.constants[offset].data_ptr()) if base == CONSTANTS else Place(base, offset)
            for base, offset in step.arguments
        ]
        return KernelCall(self.plan.kernels[step.kernel].on_cpu, tuple(arguments), step.workspace)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        if not self._draws:
            return self._run(inputs)
        cuda = self.device.type == "cuda"
        before = torch.cuda.get_rng_state(self.device) if cuda else torch.get_rng_state()
        try:
            return self._run(inputs)
        except Exception:  # whoever does it again draws the same numbers
            torch.cuda.set_rng_state(before, self.device) if cuda else torch.set_rng_state(before)
            raise

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        tensors = [self._dense(t) for t in inputs]
        tensors += [torch.empty(shape, dtype=dtype, device=self.device) for shape, dtype in self._returned]
        memory = self._memory()
        bases = [memory.data_ptr(), *[t.data_ptr() for t in tensors], *self._none_yet]
        threads = min(torch.get_num_threads(), self.plan.threads)
        for part in self._in_turn():
            if not isinstance(part, EagerStep):
                part(threads, *bases)
            else:
                results = self._eager(part, memory, tensors)
                tensors += results
                at = part.base - MEMORY
                bases[at : at + len(results)] = [t.data_ptr() for t in results]
        outputs = [self._output(output, inputs, memory, tensors) for output in self.plan.outputs]
        if self.plan.writes:
            self._write(inputs, memory, tensors)
        self._keep(memory)
        return outputs

    def _keep(self, memory: torch.Tensor) -> None:
        """Memory that a call no longer uses, for the next."""
        self._idle.append(memory)

    def _write(
        self, inputs: Sequence[torch.Tensor], memory: torch.Tensor, tensors: Sequence[torch.Tensor]
    ) -> None:
        """Change inputs, if kernels have not done so. What they change to is known before any is changed."""
        found: list[tuple[torch.Tensor, torch.Tensor]] = []
        for write in self.plan.writes:
            own = inputs[write.input]
            if write.output is None:
                if tensors[write.input] is not own:
                    found.append((own, tensors[write.input]))
                continue
            value = self._output(write.output, inputs, memory, tensors)
            found.append((own, value.clone() if isinstance(write.output.source, Given) else value))
        with torch.no_grad():
            for own, value in found:
                own.copy_(value)

    def _in_turn(self) -> Iterable[Kernels | EagerStep]:
        return self._parts

    def _memory(self) -> torch.Tensor:
        try:
            return self._idle.pop()
        except IndexError:
            if self.plan.memory < pages.LARGE or self.device != CPU:
                return torch.empty(self.plan.memory, dtype=torch.uint8, device=self.device)
            return torch.from_numpy(pages.zeros(self.plan.memory))

    def _tensor(self, ref: Ref, memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        base, offset = ref.place
        dtype, strides = getattr(torch, ref.dtype), ref.strides or dense_strides(ref.shape)
        if base == MEMORY:
            size = reach(ref.shape, strides)[1] * dtype.itemsize
            found = memory[offset : offset + size].view(dtype)
            return found.as_strided(ref.shape, strides) if size else found.view(ref.shape)
        if base == CONSTANTS:
            found, first = self.plan.constants[offset], 0
        else:
            found, first = tensors[base - FIRST], offset // dtype.itemsize
        if found.shape == ref.shape:
            return found
        return found.as_strided(ref.shape, strides, found.storage_offset() + first)

    def _eager(
        self, step: EagerStep, memory: torch.Tensor, tensors: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """The results of a node by torch: dense, and in memory of their own."""
        args, kwargs = map_argument(
            (step.args, step.kwargs), Ref, lambda ref: self._tensor(ref, memory, tensors)
        )
        with torch.no_grad():
            results = tensors_in(step.target(*args, **kwargs))
        if tuple([spec_of(t) for t in results]) != step.results or not all(map(self._is_dense, results)):
            raise Unexpected(step, results)
        ours = memory.untyped_storage().data_ptr()
        found = map(self._dense, results)
        return [t.clone() if t.untyped_storage().data_ptr() == ours else t for t in found]

    def _dense(self, tensor: torch.Tensor) -> torch.Tensor:
        return dense(tensor)

    def _is_dense(self, tensor: torch.Tensor) -> bool:
        return tensor.layout is torch.strided and tensor.device.type == self.device.type

    def _output(
        self,
        output: Output,
        inputs: Sequence[torch.Tensor],
        memory: torch.Tensor,
        tensors: Sequence[torch.Tensor],
    ) -> Any:
        if isinstance(output.source, Ref):
            tensor = self._tensor(output.source, memory, tensors)
        elif isinstance(output.source, Given):
            tensor = inputs[output.source.number]
        else:
            return output.source
        for view in output.views:
            seen: Any = view.target(tensor, *view.args)
            tensor = seen[view.index] if isinstance(seen, (list, tuple)) else seen
        return tensor if output.strides is None else restride(tensor, output.strides)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in row-major order, without a pending negation."""
    if tensor.is_contiguous() and not tensor.is_neg():
        return tensor
    return tensor.resolve_neg().contiguous()
