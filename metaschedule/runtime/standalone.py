"""Call a model that was exported as a shared library. Needs NumPy and nothing else.

    from NAME_loader import Model
    model = Model()
    y = model(x)

A call takes NumPy arrays in the order of `model.inputs`, or by their names, and gives new arrays: one, or a
list in the order of `model.outputs`. The library is native code: load only what you would run as a program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

NAME: str | None = None
LIBRARY: str | None = None


class Tensor(NamedTuple):
    """What a model takes or gives."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Description(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("nbytes", ctypes.c_size_t),
    )


class ModelError(RuntimeError):
    """A status that the library gave, other than 0."""


class Model:
    """An instance. `threads` is how many it may use (None: as OpenMP says); `weights` is the
    path of their file, where they are in one that does not lie beside the library.
    Several threads may call one instance."""

    def __init__(
        self,
        library: str | Path | None = None,
        *,
        threads: int | None = None,
        weights: str | Path | None = None,
        name: str | None = None,
    ) -> None:
        self._handle = ctypes.c_void_p()
        if library is None:
            if LIBRARY is None:
                raise ValueError("give the path of a library")
            library = Path(__file__).resolve().parent / LIBRARY
        self._name = name or NAME or Path(library).stem.removeprefix("lib")
        self._library = ctypes.CDLL(str(Path(library).resolve()))
        self._message = self._function("message", ctypes.c_char_p, ctypes.c_int)
        self._run = self._function("run", ctypes.c_int, *[ctypes.c_void_p] * 3)
        self._destroy = self._function("destroy", None, ctypes.c_void_p)
        self.inputs = tuple(self._tensors("input"))
        self.outputs = tuple(self._tensors("output"))
        self.memory: int = self._function(
            "memory", ctypes.c_size_t
        )()  # bytes of a call's intermediate results
        create = self._function("create", ctypes.c_int, *[ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p])
        path = None if weights is None else str(weights).encode()
        self._check(create(ctypes.byref(self._handle), threads or 0, path))

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"{self._name}_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def _tensors(self, which: str) -> Iterator[Tensor]:
        describe = self._function(which, ctypes.POINTER(Description), ctypes.c_int32)
        for n in range(self._function(f"{which}_count", ctypes.c_int32)()):
            found = describe(n).contents
            yield Tensor(found.name.decode(), tuple(found.shape[: found.rank]), found.dtype.decode())

    def _check(self, status: int) -> None:
        if status:
            raise ModelError(f"{self._name}: {self._message(status).decode()}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        given = list(args) + [named.pop(spec.name) for spec in self.inputs[len(args) :] if spec.name in named]
        if len(given) != len(self.inputs) or named:
            expected = ", ".join(map(str, self.inputs))
            raise TypeError(f"{self._name} takes {len(self.inputs)} arrays: {expected}")
        arrays = [as_array(value, spec) for value, spec in zip(given, self.inputs)]
        results = [np.empty(spec.shape, dtype_of(spec.dtype)) for spec in self.outputs]
        self._check(self._run(self._handle, addresses(arrays), addresses(results)))
        return results[0] if len(results) == 1 else results

    def close(self) -> None:
        """Free the instance; no thread may be calling it."""
        if self._handle:
            self._destroy(self._handle)
            self._handle = ctypes.c_void_p()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and hasattr(self, "_destroy"):
            self.close()


def addresses(arrays: list[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])


def as_array(value: Any, spec: Tensor) -> np.ndarray:
    """A dense array of the model's shape and dtype; another is refused, not converted."""
    array, dtype = np.asarray(value), dtype_of(spec.dtype)
    if array.shape != spec.shape or array.dtype != dtype:
        raise ValueError(f"{spec} is needed, got {array.dtype}{list(array.shape)}")
    return np.ascontiguousarray(array).reshape(spec.shape)


def dtype_of(name: str) -> np.dtype[Any]:
    """NumPy's; bfloat16 is that of ml_dtypes, or its bits where that is not installed."""
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes  # pyright: ignore
    except ImportError:
        return np.dtype(np.uint16)
    return np.dtype(ml_dtypes.bfloat16)
