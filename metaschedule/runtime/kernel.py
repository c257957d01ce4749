"""`Kernel`: what the code generator hands to the runtime. Pure data; it crosses processes.

The calling convention is this, and nothing else is shared between generated code and runtime:

    i32 entry(ptr args, ptr workspace, ptr runtime)

- `args`: an array of pointers, inputs then outputs in program order, constants at their position.
  No output overlaps another, each is aligned to its element (not more: NumPy promises 16 bytes at best).
  A pointer is that of the first element, which is not the lowest where strides are negative.
- `workspace`: 64-byte aligned. `shared_bytes` for the call, then `private_bytes` for each thread,
  both rounded up to 64, so that thread `t` owns `workspace + shared + t * private`. Its content is
  undefined.
- `runtime`: `{ ptr GOMP_parallel, ptr omp_get_thread_num, ptr omp_get_num_threads, i32 threads,
  i64 value }`.
  With `threads` 1 the pointers may be null: the kernel calls its parallel bodies itself, as thread
  0 of 1. Otherwise it calls `GOMP_parallel(body, data, threads, 0)`, and `body` divides its work by
  what `omp_get_num_threads()` says, which may be less than asked.
- Result: 0, or k > 0 if the check `failures[k - 1]` failed; of a wrong index, `value` then is the index.
  What the outputs hold is undefined in that case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from metaschedule import ir
from metaschedule.target import Target

from .failure import Failure, KernelError

ALIGNMENT = 64  # of the workspace and of its parts


def align(n: int) -> int:
    """`n` rounded up to the workspace's alignment.

    >>> align(0), align(1), align(64)
    (0, 64, 64)
    """
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class ArgSpec:
    """A parameter of a kernel; a `constant` one may be bound once and then is no call argument.

    Its elements are `strides` apart, dense and row-major if that is None; its address is that of the first.

    >>> spec = ArgSpec("x", (4, 3), "float32", strides=(8, 2))
    >>> str(spec), spec.nbytes, spec.empty().strides
    ('x: float32[4, 3] with strides (8, 2)', 116, (32, 8))
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: bool = False
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(n) for n in self.shape))
        object.__setattr__(self, "dtype", ir.check_dtype(self.dtype))
        if self.strides is not None:
            strides = ir.Layout(tuple(self.strides)).strides
            if len(strides) != len(self.shape):
                raise ValueError(f"{self.name}: strides {strides} for shape {self.shape}")
            object.__setattr__(self, "strides", ir.normal_strides(self.shape, strides))

    @staticmethod
    def of(buffer: ir.Buffer) -> ArgSpec:
        """The parameter that a buffer is."""
        strides = None if buffer.layout is None else buffer.strides
        return ArgSpec(buffer.name, buffer.shape, buffer.dtype, buffer.constant, strides)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> tuple[int, int]:
        """Where its memory begins and ends, in bytes from its address."""
        size = ir.numpy_dtype(self.dtype).itemsize
        if self.strides is None:
            return 0, self.size * size
        low, high = ir.reach(self.shape, self.strides)
        return low * size, high * size

    @property
    def nbytes(self) -> int:
        """Bytes of its memory, gaps included."""
        low, high = self.span
        return high - low

    def array(self, memory: Any, at: int = 0) -> np.ndarray:
        """The array whose memory begins `at` bytes behind the start of `memory`, a buffer."""
        dtype = ir.numpy_dtype(self.dtype)
        if self.strides is None:
            return np.ndarray(self.shape, dtype, memory, at)
        strides = [n * dtype.itemsize for n in self.strides]
        return np.ndarray(self.shape, dtype, memory, at - self.span[0], strides)

    def empty(self) -> np.ndarray:
        """A new array, whatever it holds."""
        dtype = ir.numpy_dtype(self.dtype)
        return (
            np.empty(self.shape, dtype) if self.strides is None else self.array(np.empty(self.nbytes, "u1"))
        )

    def __str__(self) -> str:
        layout = "" if self.strides is None else f" with strides {self.strides}"
        return f"{self.name}: {self.dtype}{list(self.shape)}{layout}"


@dataclass(frozen=True)
class Values:
    """What an integer input may hold: `low` to `high`, both included. `ascending`: sorted, from the one to
    the other."""

    low: int
    high: int
    ascending: bool = False

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """
        >>> Values(0, 7, ascending=True).draw((4,), np.random.default_rng(0))[[0, -1]].tolist()
        [0, 7]
        """
        values = rng.integers(self.low, self.high, shape, endpoint=True)
        if self.ascending and shape and values.size:
            values = np.sort(values, axis=-1)
            values[..., 0], values[..., -1] = self.low, self.high
        return np.asarray(values)


@dataclass(frozen=True, repr=False)
class Kernel:
    """A compiled-to-LLVM program. `llvm` is the text of one module that defines `entry`.

    `externals` are the symbols it expects of libm, libmvec and libc; `max_threads` says how many threads it
    can use (1: it has no parallel loop). Without `failures` and parallel loops `runtime` is not used.
    `values` are of inputs, by name, that may not hold everything (indices, divisors): for data to time with.
    """

    entry: str
    llvm: str
    inputs: tuple[ArgSpec, ...]
    outputs: tuple[ArgSpec, ...]
    target: Target
    shared_bytes: int = 0
    private_bytes: int = 0
    failures: tuple[Failure, ...] = ()
    externals: tuple[str, ...] = ()
    max_threads: int = 1
    values: tuple[tuple[str, Values], ...] = ()

    def __post_init__(self) -> None:
        for field in ("inputs", "outputs", "failures", "externals", "values"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        if self.max_threads < 1 or self.shared_bytes < 0 or self.private_bytes < 0:
            raise ValueError("max_threads must be positive and workspace sizes not negative")

    @property
    def params(self) -> tuple[ArgSpec, ...]:
        """Inputs, then outputs: the order of `args`."""
        return self.inputs + self.outputs

    def workspace_bytes(self, threads: int) -> int:
        """Size of the workspace of one call with `threads` threads."""
        return align(self.shared_bytes) + threads * align(self.private_bytes)

    def error_of(self, status: int, value: int) -> Exception:
        """What it means that a call returned this status, and left this value."""
        if 0 < status <= len(self.failures):
            return self.failures[status - 1].exception(self.entry, value)
        return KernelError(f"{self.entry}: the kernel returned status {status}, which means nothing")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values, for `json.dumps`."""
        return asdict(self) | {"target": self.target.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Kernel:
        """The kernel that `to_json` wrote."""

        def specs(entries: Any) -> tuple[ArgSpec, ...]:
            return tuple(ArgSpec(**entry) for entry in entries)

        try:
            values = dict(data) | {
                "inputs": specs(data["inputs"]),
                "outputs": specs(data["outputs"]),
                "target": Target.from_json(data["target"]),
                "failures": tuple(Failure(**entry) for entry in data.get("failures", ())),
                "values": tuple((name, Values(**entry)) for name, entry in data.get("values", ())),
            }
            return Kernel(**values)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a kernel: {error}") from error

    def __repr__(self) -> str:
        def specs(args: tuple[ArgSpec, ...]) -> str:
            return ", ".join(map(str, args))

        return f"<Kernel {self.entry}({specs(self.inputs)}) -> {specs(self.outputs)}>"
