"""What buffers hold while a program runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metaschedule.ir import Buffer, numpy_dtype

from .errors import InterpreterError


@dataclass(eq=False, slots=True)
class Tensor:
    """The elements of a buffer, flat. `written` is None for what came in from outside: all of it is
    there, and none of it may be changed."""

    buffer: Buffer
    data: np.ndarray
    written: np.ndarray | None


Memory = dict[Buffer, Tensor]


def given(buffer: Buffer, values: np.ndarray) -> Tensor:
    """A read-only tensor of the caller's (or an embedded table's) values."""
    data = np.ascontiguousarray(values).reshape(-1)
    return Tensor(buffer, data, None)


def fresh(buffer: Buffer) -> Tensor:
    """A tensor with nothing in it yet; an embedded table brings its values."""
    if buffer.data is not None:
        return given(buffer, buffer.data.astype(numpy_dtype(buffer.dtype), copy=False))
    data = np.zeros(buffer.size, numpy_dtype(buffer.dtype))
    return Tensor(buffer, data, np.zeros(buffer.size, bool))


def find(memory: Memory, buffer: Buffer) -> Tensor:
    try:
        return memory[buffer]
    except KeyError:
        pass
    message = f"buffer {buffer.name} is not a parameter and is not allocated here"
    raise InterpreterError(message, label=f"no {buffer.name} here")


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements between neighbours of each dimension, row-major."""
    result: list[int] = []
    step = 1
    for extent in reversed(shape):
        result.append(step)
        step *= extent
    return tuple(reversed(result))


def element(buffer: Buffer, indices: Any) -> str:
    return f"{buffer.name}[{', '.join(str(int(i)) for i in indices) or '()'}]"


def out_of_bounds(access: str, buffer: Buffer, indices: Any) -> InterpreterError:
    where = element(buffer, indices)
    message = f"{access} {where} is out of bounds: the shape of {buffer.name} is {buffer.shape}"
    return InterpreterError(message, label=f"{where}: out of bounds")


def uninitialised(buffer: Buffer, indices: Any) -> InterpreterError:
    where = element(buffer, indices)
    message = (
        f"read of {where} before it was written: {buffer.name}, of shape {buffer.shape}, holds "
        "nothing there yet"
    )
    return InterpreterError(message, label=f"{where}: uninitialised")


def not_writable(buffer: Buffer, indices: Any) -> InterpreterError:
    kind = "a table" if buffer.data is not None else "an input"
    message = f"write of {element(buffer, indices)}: {buffer.name} is {kind}, which nothing may change"
    return InterpreterError(message, label=f"writes {kind}")
