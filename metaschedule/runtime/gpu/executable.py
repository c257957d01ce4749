"""`DeviceExecutable`: a program's kernels on a GPU, called with arrays as an `Executable` is.

Arrays of the host are copied to the device and back. Compilation for the device waits for the first call, so
that without a device everything but a call works: `source`, `resources`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np

from metaschedule.validation import Positive, Within, check_arguments

from ..arguments import ArgumentFacts, Label, address_of, check_overlap, is_tensor
from ..kernel import ArgSpec
from ..timing import Timing, random_arrays
from .device import Device, device_of
from .program import DeviceProgram

REPEAT_TIME = 1e-3  # of the device, a repeat
MAX_REPEATS = 1000
STATUS_BYTES = 16


class DeviceExecutable:
    """`exe(*inputs)` allocates its outputs, `exe(*inputs, *outputs)` fills the given. `constants` are
    copied to the device once and are no call arguments."""

    def __init__(
        self, program: DeviceProgram, *, script: str = "", constants: Mapping[str, Any] | None = None
    ) -> None:
        self.program, self.script = program, script
        self.constants = self._copy_constants(constants or {})
        self._state: _Loaded | None = None
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
            name: np.array(address_of(constants[name], Label("constant", spec)).array())
            for name, spec in specs.items()
            if name in constants
        }

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

    def __call__(self, *args: Any) -> Any:
        inputs, outputs, facts = self._arguments(args)
        with self._lock:
            state = self._loaded()
            state.write_inputs([f.array() for f in facts[: len(inputs)]])
            state.reset_status()
            state.run()
            state.check_status()
            state.read_outputs([f.array() for f in facts[len(inputs) :]])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _arguments(self, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], list[ArgumentFacts]]:
        specs, results = self.inputs, self.outputs
        if len(args) == len(specs):
            inputs, outputs = list(args), self._allocate(args)
        elif len(args) == len(specs) + len(results):
            inputs, outputs = list(args[: len(specs)]), list(args[len(specs) :])
        else:
            wanted = ", ".join(map(str, specs)) or "none"
            raise TypeError(
                f"{self.name}: expected {len(specs)} input(s) ({wanted}), optionally followed by "
                f"{len(results)} output(s), got {len(args)} argument(s)"
            )
        labels = [Label("input", spec, n) for n, spec in enumerate(specs)]
        labels += [Label("output", spec, len(specs) + n) for n, spec in enumerate(results)]
        facts = [address_of(x, label) for x, label in zip([*inputs, *outputs], labels, strict=True)]
        check_overlap(facts, labels)
        return inputs, outputs, facts

    def _allocate(self, args: tuple[Any, ...]) -> list[Any]:
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

    def _loaded(self) -> _Loaded:
        if self._state is None:
            self._state = _Loaded(self.program, self.constants)
        return self._state

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
        inputs, _, facts = self._arguments(args)
        with self._lock:
            state = self._loaded()
            state.write_inputs([f.array() for f in facts[: len(inputs)]])
            state.reset_status()
            first = state.seconds(1)
            state.check_status()
            once = min(first, state.seconds(1)) or 1e-9
            number = max(1, min(10000, round(REPEAT_TIME / once)))
            if repeats is None:
                repeats = min(MAX_REPEATS, max(3, round(min_time / (once * number))))
            run: Callable[[], list[float]] = lambda: [state.seconds(number) / number]  # noqa: E731
            times = [t for _ in range(repeats) for t in (run() if watch is None else watch(run))]
        return Timing(tuple(times), number)

    def fill_workspace(self, byte: int = 0xFF) -> None:
        """Overwrite the memory that kernels pass values through (0xFF: floats become NaN)."""
        with self._lock:
            self._loaded().fill(byte)

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
    """Kernels and memory of one executable on its device."""

    def __init__(self, program: DeviceProgram, constants: Mapping[str, np.ndarray]) -> None:
        self.program = program
        self.device: Device = device_of(program.target)
        self.compiled = self.device.compile(program)
        self.memory = [self.device.allocate(spec.nbytes) for spec in program.params]
        self.temporaries = [self.device.allocate(t.nbytes) for t in program.temporaries]
        self.status = self.device.allocate(STATUS_BYTES)
        self.inputs = [n for n, spec in enumerate(program.inputs) if spec.name not in constants]
        self.outputs = [len(program.inputs) + n for n in range(len(program.outputs))]
        for n, spec in enumerate(program.inputs):
            if spec.name in constants:
                self.write(n, constants[spec.name])

    def write(self, n: int, array: np.ndarray) -> None:
        """Fill the memory of a parameter, laid out as the kernel expects."""
        spec = self.program.params[n]
        if spec.strides is not None:
            raw = np.zeros(spec.nbytes, np.uint8)
            spec.array(raw)[...] = array
            self.device.write(self.memory[n], raw)
        else:
            self.device.write(self.memory[n], np.ascontiguousarray(array).reshape(-1))

    def write_inputs(self, arrays: list[np.ndarray]) -> None:
        for n, array in zip(self.inputs, arrays, strict=True):
            self.write(n, array)

    def read_outputs(self, arrays: list[np.ndarray]) -> None:
        for n, array in zip(self.outputs, arrays, strict=True):
            spec = self.program.params[n]
            raw = np.empty(spec.nbytes, np.uint8)
            self.device.read(self.memory[n], raw)
            array[...] = spec.array(raw)

    def reset_status(self) -> None:
        if self.program.failures:
            self.device.write(self.status, np.zeros(STATUS_BYTES, np.uint8))

    def check_status(self) -> None:
        self.device.finish()
        if self.program.failures:
            raw = np.zeros(STATUS_BYTES, np.uint8)
            self.device.read(self.status, raw)
            status, value = int(raw.view(np.int32)[0]), int(raw.view(np.int64)[1])
            if status:
                raise self.program.error_of(status, value)

    def run(self) -> list[Any]:
        events: list[Any] = []
        for launch in self.program.launches:
            if 0 in launch.grid or 0 in launch.block:
                continue
            chosen = [
                self.memory[n] if kind == "argument" else self.temporaries[n] for kind, n in launch.places
            ]
            events.append(self.device.launch(self.compiled, launch, [*chosen, self.status]))
        return events

    def seconds(self, number: int) -> float:
        """Seconds on the device of so many calls."""
        events = [event for _ in range(number) for event in self.run()]
        return self.device.elapsed(events)

    def fill(self, byte: int) -> None:
        for memory, temporary in zip(self.temporaries, self.program.temporaries, strict=True):
            self.device.write(memory, np.full(temporary.nbytes, byte, np.uint8))
        for n in self.outputs:
            self.device.write(self.memory[n], np.full(self.program.params[n].nbytes, byte, np.uint8))
