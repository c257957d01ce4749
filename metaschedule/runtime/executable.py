"""`Executable`: a kernel in this process, called with arrays.

A call goes to the native caller, which succeeds where every argument is exactly as expected;
otherwise `_call_slowly` reads the arguments one by one and either runs the kernel on their memory
or says what is wrong with which. Neither copies. The GIL is released while the kernel runs, and
every concurrent call has a workspace of its own.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy import empty, ndarray

from metaschedule.ir import dense_strides, numpy_dtype
from metaschedule.target import missing_features
from metaschedule.validation import Positive, Within, check_arguments, convert, converter
from metaschedule.validation import Threads as ThreadCount

from . import pages, storage
from .arguments import ArgumentFacts, Label, address_of, check_overlap, is_tensor
from .compile import assembly, compile_object, optimize_llvm
from .export import export_library
from .kernel import ArgSpec, Kernel
from .layout import Runtime
from .loader import Loaded, load_object
from .native import BOUND, INPUT, OUTPUT, adopt_tensors, context, native_module, param
from .threads import THREADS
from .timing import KernelStatus, Timing, random_arrays, time_kernel


class Executable:
    """A compiled kernel. `exe(*inputs)` allocates its outputs, `exe(*inputs, *outputs)` fills the
    given.

    `code` is the kernel's object code if it is compiled already. `constants` are copied and then
    are no call arguments. `threads` is how many this executable may use (None: `get_num_threads()`,
    but no more than its target has cores). `script` is the program's text, for `source`.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        code: bytes | None = None,
        constants: Mapping[str, Any] | None = None,
        threads: int | None = None,
        script: str = "",
        _loaded: Loaded | None = None,
    ) -> None:
        self.kernel = kernel
        self.script = script
        self.code = compile_object(kernel.llvm, kernel.target) if code is None else code
        self.constants = copy_constants(kernel, constants or {})
        missing = missing_features(kernel.target)
        self._why_not = (
            f"this executable is for {kernel.target}; this machine lacks {', '.join(missing)}"
            if missing
            else None
        )
        self._loaded = _loaded
        self._check = bool(missing) or kernel.max_threads > 1
        if not missing:
            if _loaded is None:
                self._loaded = load_object(self.code, [kernel.entry], expected=kernel.externals)
            self._make_caller()
        self.threads = threads

    def _make_caller(self) -> None:
        kernel = self.kernel
        assert self._loaded is not None
        params = [
            param(spec, BOUND, self.constants[spec.name].ctypes.data)
            if spec.name in self.constants
            else param(spec, INPUT)
            for spec in kernel.inputs
        ]
        params += [param(spec, OUTPUT) for spec in kernel.outputs]
        native = native_module()
        self._context = context(self._loaded[kernel.entry], params, kernel)
        self._native = native.function("call_arrays", self._context)
        self._native_pointers = native.function("call_pointers", self._context)
        self._parallel = kernel.max_threads > 1
        self._inputs = self.inputs
        self._input_count = len(self._inputs)
        self._total = self._input_count + len(kernel.outputs)
        self._prototypes: list[Any] | None = None  # of tensors to allocate
        self._allocations = [(spec.shape, numpy_dtype(spec.dtype)) for spec in kernel.outputs]
        self._dense = all(spec.strides is None for spec in kernel.outputs)
        # At exit memory goes with the process; other threads may still be calling.
        weakref.finalize(self, release, self._context, params).atexit = False

    @property
    def name(self) -> str:
        return self.kernel.entry

    @property
    def entry(self) -> int:
        """The address of the kernel."""
        if self._loaded is None:
            raise RuntimeError(self._why_not)
        return self._loaded[self.kernel.entry]

    @property
    def inputs(self) -> tuple[ArgSpec, ...]:
        """The inputs a call takes: all but the bound constants."""
        return tuple(spec for spec in self.kernel.inputs if spec.name not in self.constants)

    @property
    def outputs(self) -> tuple[ArgSpec, ...]:
        return self.kernel.outputs

    @property
    def threads(self) -> int | None:
        """How many threads a call may use; None for the process's default."""
        return self._threads

    @threads.setter
    def threads(self, n: int | None) -> None:
        self._threads = convert(converter(ThreadCount | None), n, self.name, "threads")
        if self._why_not is None:
            self._context.threads = self._threads or 0

    def _ready(self) -> None:
        if self._why_not is not None:
            raise RuntimeError(self._why_not)
        if self._parallel and not THREADS.settled:
            THREADS.refresh()

    def __call__(self, *args: Any) -> Any:
        """Call it with its inputs, or with inputs and outputs, which are then filled and returned."""
        if self._check:
            self._ready()
        count = len(args)
        if count == self._total and count != self._input_count:
            outcome = self._native(*args)
            outputs = args[self._input_count :]
        elif count == self._input_count:
            outputs = self._allocate(args)
            outcome = self._native(*args, *outputs)
        else:
            raise TypeError(self._count_message(count))
        if outcome:
            if type(outcome) is tuple:
                raise self.kernel.error_of(*outcome)
            self._call_slowly(args, outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _allocate(self, args: tuple[Any, ...]) -> list[Any]:
        """New outputs: torch's if an input is torch's, else NumPy's."""
        for value in args:
            if type(value) is not ndarray and is_tensor(value):
                return self._allocate_tensors()
        if not self._dense:
            return [spec.empty() for spec in self.outputs]
        return [empty(shape, dtype) for shape, dtype in self._allocations]

    def _allocate_tensors(self) -> list[Any]:
        """Like one-element tensors expanded to the shape: half the time of torch.empty(shape,
        dtype)."""
        torch: Any = sys.modules["torch"]
        if not self._dense:
            return [
                torch.empty_strided(
                    s.shape, s.strides or dense_strides(s.shape), dtype=getattr(torch, s.dtype), device="cpu"
                )
                for s in self.outputs
            ]
        if self._prototypes is None:
            scalars = [torch.empty((), dtype=getattr(torch, s.dtype), device="cpu") for s in self.outputs]
            self._prototypes = [t.expand(s.shape) for t, s in zip(scalars, self.outputs)]
        like, dense = torch.empty_like, torch.contiguous_format
        return [like(prototype, memory_format=dense) for prototype in self._prototypes]

    def _call_slowly(self, args: tuple[Any, ...], outputs: Any) -> None:
        facts = self._read(args[: self._input_count], outputs)
        outcome = self._native_pointers(*[f.address for f in facts])
        if outcome:
            raise self.kernel.error_of(*outcome)

    def _read(self, inputs: Any, outputs: Any) -> list[ArgumentFacts]:
        """The memory of checked call arguments."""
        labels = [Label("input", spec, i) for i, spec in enumerate(self._inputs)]
        first = len(labels)
        labels += [Label("output", spec, first + i) for i, spec in enumerate(self.kernel.outputs)]
        values = (*inputs, *outputs)
        facts = [address_of(value, label) for value, label in zip(values, labels, strict=True)]
        check_overlap(facts, labels)
        for value in values:
            if is_tensor(value):
                adopt_tensors(sys.modules["torch"].Tensor)
        return facts

    def _count_message(self, count: int) -> str:
        def names(specs: tuple[ArgSpec, ...]) -> str:
            return ", ".join(map(str, specs)) or "none"

        bound = f"; bound already: {', '.join(self.constants)}" if self.constants else ""
        return (
            f"{self.name}: expected {self._input_count} input(s) ({names(self._inputs)}), "
            f"optionally followed by {len(self.outputs)} output(s) ({names(self.outputs)}), "
            f"got {count} argument(s){bound}"
        )

    @check_arguments
    def bind(self, constants: Mapping[str, Any]) -> Executable:
        """The same code with more inputs bound to fixed values; this executable stays as it is."""
        again = sorted(set(constants) & set(self.constants))
        if again:
            raise ValueError(f"{self.name}: already bound: {', '.join(again)}")
        return Executable(
            self.kernel,
            code=self.code,
            constants={**self.constants, **constants},
            threads=self.threads,
            script=self.script,
            _loaded=self._loaded,
        )

    @check_arguments
    def benchmark(
        self,
        *args: Any,
        repeats: Positive | None = None,
        min_time: Annotated[float, Within(0, 3600)] = 0.1,
        watch: Callable[[Callable[[], list[float]]], list[float]] | None = None,
    ) -> Timing:
        """Time calls in a native loop, warm, without Python or the GIL.

        Arguments are those of a call; without any, random data, with indices in range. `repeats`
        measurements are taken, or as many as fit in `min_time` seconds, each of enough calls to last a
        millisecond. `watch` is given every measurement to take, and returns what counts of it: its times,
        or none.
        """
        self._ready()
        inputs: Any = args
        outputs: Any = None
        if not args:
            inputs = random_arrays(self._inputs, values=dict(self.kernel.values))
            outputs = [spec.array(pages.zeros(spec.nbytes)) for spec in self.outputs]
        elif len(args) == self._total:
            inputs, outputs = args[: self._input_count], args[self._input_count :]
        elif len(args) != self._input_count:
            raise TypeError(self._count_message(len(args)))
        facts = self._read(inputs, self._allocate(tuple(inputs)) if outputs is None else outputs)
        given = iter([f.address for f in facts])
        addresses = [
            self.constants[spec.name].ctypes.data if spec.name in self.constants else next(given)
            for spec in self.kernel.params
        ]
        try:
            return time_kernel(self._context, addresses, repeats, min_time, watch)
        except KernelStatus as error:
            failure = self.kernel.error_of(error.status, error.value)
            if args:
                raise failure from None
            raise ValueError(
                f"benchmark found no data that this kernel accepts ({failure}); "
                f"pass its inputs: {', '.join(map(str, self._inputs))}"
            ) from failure

    def fill_workspace(self, byte: int = 0xFF) -> None:
        """Overwrite the idle workspace (0xFF: floats become NaN), so that a kernel that reads what
        it has not written shows it."""
        self._ready()
        native, at = native_module(), ctypes.addressof(self._context)
        need = native.prepare(at, ctypes.byref(Runtime()))
        workspace = native.take(at, need) if need else None
        if workspace:
            ctypes.memset(workspace, byte, need)
            native.give(at, workspace)
        elif need:
            raise MemoryError(f"no memory for a workspace of {need} bytes")

    @check_arguments
    def save(self, path: str | PathLike[str]) -> None:
        """Write the compiled code and the bound constants to a file that `load` reads, in any
        process."""
        storage.write(
            path,
            storage.Stored(self.kernel, self.code, self.constants, self.script, self.threads),
        )

    @check_arguments
    def export_library(self, path: str | PathLike[str], *, name: str | None = None, cc: str = "cc") -> Path:
        """Write a shared library and, beside it, a C header `<name>.h`; neither needs Python.

        The C function is called `name`, by default the file's name ("libgmm.so": gmm). Bound
        constants are embedded. A parallel kernel uses libgomp and its usual settings
        (OMP_NUM_THREADS).
        """
        return export_library(Path(path), self.kernel, self.constants, self.threads, name, cc)

    @check_arguments
    def source(self, kind: str = "script") -> str:
        """The program's text: "script", "llvm" as generated, "llvm-optimized", or "asm"."""
        kernel = self.kernel
        if kind == "script":
            if not self.script:
                raise ValueError(f"{self.name}: no script was given when this executable was made")
            return self.script
        if kind == "llvm":
            return kernel.llvm
        if kind == "llvm-optimized":
            return optimize_llvm(kernel.llvm, kernel.target)
        if kind == "asm":
            return assembly(kernel.llvm, kernel.target)
        raise ValueError(f"source: unknown kind {kind!r}; known: script, llvm, llvm-optimized, asm")

    def __repr__(self) -> str:
        def specs(args: tuple[ArgSpec, ...]) -> str:
            return ", ".join(map(str, args))

        return f"<Executable {self.name}({specs(self.inputs)}) -> {specs(self.outputs)}>"


def copy_constants(kernel: Kernel, constants: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Constants by name, copied into arrays of our own, in the kernel's order."""
    specs = {spec.name: spec for spec in kernel.inputs}
    unknown = sorted(set(constants) - set(specs))
    if unknown:
        raise ValueError(
            f"{kernel.entry}: no input {', '.join(map(repr, unknown))} to bind; "
            f"inputs are {', '.join(specs) or 'none'}"
        )
    copies: dict[str, np.ndarray] = {}
    for name, spec in specs.items():
        if name in constants:
            facts = address_of(constants[name], Label("constant", spec))
            copies[name] = copy = spec.empty()
            copy[...] = facts.array()
            copy.flags.writeable = False
    return copies


@check_arguments
def load(path: str | PathLike[str]) -> Executable:
    """The executable that `Executable.save` wrote, if its code can run on this machine."""
    stored = storage.read(path)
    missing = missing_features(stored.kernel.target)
    if missing:
        raise RuntimeError(
            f"{path}: compiled for {stored.kernel.target}; this machine lacks {', '.join(missing)}"
        )
    return Executable(
        stored.kernel,
        code=stored.code,
        constants=stored.constants,
        threads=stored.threads,
        script=stored.script,
    )


def release(context: Any, keep: Any) -> None:
    """Free an executable's idle workspaces; `keep` is what its table points into."""
    native_module().drain(ctypes.addressof(context))
