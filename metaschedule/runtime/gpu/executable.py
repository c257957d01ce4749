"""`DeviceExecutable`: a program's kernels on a GPU, called with arrays as an `Executable` is.

Arrays of the host are copied to the device and back; the memory of those that are on it (`arrays.py`) is used
as it is. Compilation for the device waits for the first call, so that without a device everything but a call
works: `source`, `resources`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from metaschedule.ir import dense_strides, numpy_dtype, reach
from metaschedule.validation import Positive, Within, check_arguments

from ..arguments import ArgumentFacts, Label, address_of, check_overlap, is_tensor
from ..kernel import ArgSpec
from ..timing import Timing, random_arrays
from .arrays import DeviceFacts, read_for
from .device import Device, device_of
from .program import DeviceProgram

REPEAT_TIME = 1e-3  # of the device, a repeat
MAX_REPEATS = 1000
STATUS_BYTES = 16
MOST_QUEUES = 8  # for which kernels and memory are kept


class DeviceExecutable:
    """`exe(*inputs)` allocates its outputs, `exe(*inputs, *outputs)` fills the given. `constants` are
    copied to the device once and are no call arguments.

    If an input is an array on the device, so are the outputs; a call then returns as soon as the kernels are
    started, unless a check in them may fail or an array is on the host."""

    def __init__(
        self, program: DeviceProgram, *, script: str = "", constants: Mapping[str, Any] | None = None
    ) -> None:
        self.program, self.script = program, script
        self.constants = self._copy_constants(constants or {})
        self._states: dict[Hashable, _Loaded] = {}  # by device and queue
        self._compiled: dict[Hashable, Any] = {}  # by device
        self._lock = threading.Lock()

    def _copy_constants(self, constants: Mapping[str, Any]) -> dict[str, np.ndarray]:
        specs = {spec.name: spec for spec in self.program.inputs}
        unknown = sorted(set(constants) - set(specs))
        if unknown:
            raise ValueError(
                f"{self.program.name}: no input {', '.join(map(repr, unknown))} to bind; "
                f"inputs are {', '.join(specs) or 'none'}"
            )
        return {
            name: self._host_copy(address_of(constants[name], Label("constant", spec), self._read))
            for name, spec in specs.items()
            if name in constants
        }

    @property
    def kernel(self) -> DeviceProgram:
        """What the code generator made."""
        return self.program

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def inputs(self) -> tuple[ArgSpec, ...]:
        return tuple(spec for spec in self.program.inputs if spec.name not in self.constants)

    @property
    def outputs(self) -> tuple[ArgSpec, ...]:
        return self.program.outputs

    def bind(self, constants: Mapping[str, Any]) -> DeviceExecutable:
        """The same kernels with more inputs bound to fixed values."""
        return DeviceExecutable(self.program, script=self.script, constants={**self.constants, **constants})

    def _read(self, value: Any, label: Label) -> ArgumentFacts:
        return read_for(self.program.target.kind, value, label)

    def _host_copy(self, facts: ArgumentFacts) -> np.ndarray:
        if not isinstance(facts, DeviceFacts):
            return np.array(facts.array())
        low, high = facts_span(facts)
        raw = np.empty(high - low, np.uint8)
        with facts.device.entered():
            facts.device.read(facts.memory, raw)
        here = ArgumentFacts(raw.ctypes.data - low, facts.shape, facts.dtype, facts.strides, False, raw)
        return np.array(here.array())

    def __call__(self, *args: Any) -> Any:
        outputs, facts = self._arguments(args)
        given, made = facts[: len(self.inputs)], facts[len(self.inputs) :]
        device = self._device(facts)
        with self._lock, device.entered():
            state = self._loaded(device)
            arguments = state.bind(given, made)
            state.reset_status()
            state.run(arguments)
            state.check_status()
            state.read_outputs(made)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _arguments(self, args: tuple[Any, ...]) -> tuple[list[Any], list[ArgumentFacts]]:
        """The outputs of a call, and what all its arguments are."""
        specs, results = self.inputs, self.outputs
        if len(args) not in (len(specs), len(specs) + len(results)):
            wanted = ", ".join(map(str, specs)) or "none"
            raise TypeError(
                f"{self.name}: expected {len(specs)} input(s) ({wanted}), optionally followed by "
                f"{len(results)} output(s), got {len(args)} argument(s)"
            )
        labels = [Label("input", spec, n) for n, spec in enumerate(specs)]
        labels += [Label("output", spec, len(specs) + n) for n, spec in enumerate(results)]
        facts = [address_of(x, label, self._read) for x, label in zip(args, labels)]
        outputs = list(args[len(specs) :])
        if not outputs:
            outputs = self._allocate(args, facts)
            facts += [
                address_of(x, label, self._read)
                for x, label in zip(outputs, labels[len(specs) :], strict=True)
            ]
        check_overlap(facts, labels)
        return outputs, facts

    def _allocate(self, args: tuple[Any, ...], facts: Sequence[ArgumentFacts]) -> list[Any]:
        """Outputs where the inputs are."""
        for example, found in zip(args, facts, strict=True):
            if isinstance(found, DeviceFacts):
                return [found.device.empty_like(spec, example) for spec in self.outputs]
        arrays = [spec.empty() for spec in self.outputs]
        if any(is_tensor(x) for x in args):
            torch: Any = sys.modules["torch"]
            return [
                torch.empty_strided(
                    s.shape, [n // a.itemsize for n in a.strides], dtype=getattr(torch, s.dtype)
                )
                for s, a in zip(self.outputs, arrays, strict=True)
            ]
        return list(arrays)

    def _device(self, facts: Sequence[ArgumentFacts]) -> Device:
        """Where a call runs: in the queue of the first array that is on a device."""
        found = [f.device for f in facts if isinstance(f, DeviceFacts)]
        if not found:
            return device_of(self.program.target)
        first = found[0]
        for other in {d.key: d for d in found[1:] if d.key != first.key}.values():
            if not first.shares_memory_with(other):
                raise ValueError(
                    f"{self.name}: arrays on several devices, {first} and {other}; move them to one"
                )
            with other.entered():
                other.finish()
        return first

    def _loaded(self, device: Device) -> _Loaded:
        if device.key not in self._states:
            while len(self._states) >= MOST_QUEUES:
                del self._states[next(iter(self._states))]
            self._states[device.key] = _Loaded(self.program, self.compiled(device), self.constants, device)
        return self._states[device.key]

    def compiled(self, device: Device) -> Any:
        """The kernels as a device starts them; all of its queues have the same."""
        if device.context_key not in self._compiled:
            self._compiled[device.context_key] = device.compile(self.program)
        return self._compiled[device.context_key]

    @check_arguments
    def benchmark(
        self,
        *args: Any,
        repeats: Positive | None = None,
        min_time: Annotated[float, Within(0, 3600)] = 0.1,
        watch: Callable[[Callable[[], list[float]]], list[float]] | None = None,
    ) -> Timing:
        """Time of the kernels on the device by its own events, warm; copies are not counted. Arguments are
        those of a call; without any, random data."""
        if not args:
            args = tuple(random_arrays(self.inputs, values=dict(self.program.values)))
        _, facts = self._arguments(args)
        device = self._device(facts)
        with self._lock, device.entered():
            state = self._loaded(device)
            arguments = state.bind(facts[: len(self.inputs)], facts[len(self.inputs) :])

            def seconds(number: int) -> float:
                events = [event for _ in range(number) for event in state.run(arguments, timed=True)]
                return device.elapsed(events)

            state.reset_status()
            first = seconds(1)
            state.check_status()
            once = min(first, seconds(1)) or 1e-9
            number = max(1, min(10000, round(REPEAT_TIME / once)))
            if repeats is None:
                repeats = min(MAX_REPEATS, max(3, round(min_time / (once * number))))
            measure: Callable[[], list[float]] = lambda: [seconds(number) / number]  # noqa: E731
            times = [t for _ in range(repeats) for t in (measure() if watch is None else watch(measure))]
        return Timing(tuple(times), number)

    def fill_workspace(self, byte: int = 0xFF) -> None:
        """Overwrite the memory that kernels pass values through (0xFF: floats become NaN)."""
        device = device_of(self.program.target)
        with self._lock, device.entered():
            self._loaded(device).fill(byte)

    @check_arguments
    def source(self, kind: str = "script") -> str:
        """The program's text: "script", "opencl", "cuda"; "ptx", and "sass" where there is a disassembler,
        of NVIDIA's compiler."""
        if kind == "script":
            return self.script
        if kind in self.program.sources:
            return self.program.sources[kind]
        if kind in ("ptx", "sass"):
            from .nvrtc import compile_cuda, disassemble

            made = compile_cuda(self.program.sources["cuda"], self.program.target)
            return made.ptx if kind == "ptx" else disassemble(made.cubin)
        raise ValueError(f"source: unknown kind {kind!r}; known: script, opencl, cuda, ptx, sass")

    def resources(self) -> dict[str, dict[str, int]]:
        """What NVIDIA's compiler says that each kernel takes: registers, shared memory, spilled bytes."""
        from .nvrtc import compile_cuda

        return compile_cuda(self.program.sources["cuda"], self.program.target).resources

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, specs)) for specs in (self.inputs, self.outputs))
        return f"<DeviceExecutable {self.name}({inputs}) -> {outputs} on {self.program.target.name}>"


class _Loaded:
    """Kernels and memory of one executable on its device, for one queue."""

    def __init__(
        self, program: DeviceProgram, compiled: Any, constants: Mapping[str, np.ndarray], device: Device
    ) -> None:
        self.program, self.compiled, self.device = program, compiled, device
        self.temporaries = [device.allocate(t.nbytes) for t in program.temporaries]
        self.status = device.allocate(STATUS_BYTES)
        self.own: dict[int, Any] = {}  # memory of parameters that are constants, or on the host
        self.inputs = [n for n, spec in enumerate(program.inputs) if spec.name not in constants]
        self.outputs = [len(program.inputs) + n for n in range(len(program.outputs))]
        for n, spec in enumerate(program.inputs):
            if spec.name in constants:
                self.write(n, constants[spec.name])
        self.constants = dict(self.own)

    def own_memory(self, n: int) -> Any:
        if n not in self.own:
            self.own[n] = self.device.allocate(self.program.params[n].nbytes)
        return self.own[n]

    def write(self, n: int, array: np.ndarray) -> None:
        """Fill the memory of a parameter, laid out as the kernel expects."""
        spec, memory = self.program.params[n], self.own_memory(n)
        if spec.strides is not None:
            raw = np.zeros(spec.nbytes, np.uint8)
            spec.array(raw)[...] = array
            self.device.write(memory, raw)
        else:
            self.device.write(memory, np.ascontiguousarray(array).reshape(-1))

    def bind(self, inputs: Sequence[ArgumentFacts], outputs: Sequence[ArgumentFacts]) -> list[Any]:
        """The memory of all parameters. Inputs of the host are copied now."""
        memory = dict(self.constants)
        for n, facts in zip([*self.inputs, *self.outputs], [*inputs, *outputs], strict=True):
            if isinstance(facts, DeviceFacts):
                memory[n] = facts.memory
                continue
            if n in self.inputs:
                self.write(n, facts.array())
            memory[n] = self.own_memory(n)
        return [memory[n] for n in range(len(self.program.params))]

    def run(self, arguments: Sequence[Any], timed: bool = False) -> list[Any]:
        start = self.program, self.compiled, self.device
        return start_kernels(*start, arguments, self.temporaries, self.status, timed)

    def read_outputs(self, outputs: Sequence[ArgumentFacts]) -> None:
        """Copy to outputs on the host; those on the device are there."""
        for n, facts in zip(self.outputs, outputs, strict=True):
            if not isinstance(facts, DeviceFacts):
                spec = self.program.params[n]
                raw = np.empty(spec.nbytes, np.uint8)
                self.device.read(self.own[n], raw)
                facts.array()[...] = spec.array(raw)

    def reset_status(self) -> None:
        if self.program.failures:
            self.device.write(self.status, np.zeros(STATUS_BYTES, np.uint8))

    def check_status(self) -> None:
        if self.program.failures:
            raw = np.zeros(STATUS_BYTES, np.uint8)
            self.device.read(self.status, raw)
            status, value = int(raw.view(np.int32)[0]), int(raw.view(np.int64)[1])
            if status:
                raise self.program.error_of(status, value)

    def fill(self, byte: int) -> None:
        for memory, temporary in zip(self.temporaries, self.program.temporaries, strict=True):
            self.device.write(memory, np.full(temporary.nbytes, byte, np.uint8))
        for n in self.outputs:
            self.device.write(self.own_memory(n), np.full(self.program.params[n].nbytes, byte, np.uint8))


def start_kernels(
    program: DeviceProgram,
    compiled: Any,
    device: Device,
    arguments: Sequence[Any],
    temporaries: Sequence[Any],
    status: Any,
    timed: bool = False,
) -> list[Any]:
    """Start all kernels with memory of the device. Gives the events of those that are timed."""
    events: list[Any] = []
    for launch in program.launches:
        if 0 in launch.grid or 0 in launch.block:
            continue
        chosen = [arguments[n] if kind == "argument" else temporaries[n] for kind, n in launch.places]
        events.append(device.launch(compiled, launch, [*chosen, status], timed))
    return events


def facts_span(facts: ArgumentFacts) -> tuple[int, int]:
    """The bytes of an array, from its address on."""
    item = numpy_dtype(facts.dtype).itemsize
    if 0 in facts.shape:
        return 0, 0
    low, high = reach(facts.shape, facts.strides or [n * item for n in dense_strides(facts.shape)])
    return low, high - 1 + item
