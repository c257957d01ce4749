"""What buffers hold while a program runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metaschedule import ir

from .errors import InterpreterError


@dataclass(eq=False, slots=True)
class TensorMemory:
    """The memory of a buffer, flat: its elements, and what its layout leaves between them. `written` is None
    for what came in from outside: all of it is there, and none of it may be changed."""

    buffer: ir.Buffer
    data: np.ndarray
    written: np.ndarray | None

    def elements(self, memory: np.ndarray) -> np.ndarray:
        """`data` or `written` in the buffer's shape."""
        return ir.strided_array(memory, origin(self.buffer), self.buffer.shape, self.buffer.strides)


Memory = dict[ir.Buffer, TensorMemory]


def readonly_tensor(buffer: ir.Buffer, values: np.ndarray) -> TensorMemory:
    """A read-only tensor of the caller's (or an embedded table's) values."""
    if buffer.layout is None:
        return TensorMemory(buffer, np.ascontiguousarray(values).reshape(-1), None)
    tensor = TensorMemory(buffer, np.zeros(memory_size(buffer), values.dtype), None)
    tensor.elements(tensor.data)[...] = values
    if tensor.elements(tensor.data).tobytes() != values.tobytes():
        raise InterpreterError(
            f"{buffer.name}: elements of {buffer.layout} share memory, and the given ones differ"
        )
    return tensor


def memory_size(buffer: ir.Buffer) -> int:
    low, high = ir.reach(buffer.shape, buffer.strides)
    return high - low


def fresh(buffer: ir.Buffer) -> TensorMemory:
    """A tensor with nothing in it yet; an embedded table brings its values."""
    if buffer.data is not None:
        return readonly_tensor(buffer, buffer.data.astype(ir.numpy_dtype(buffer.dtype), copy=False))
    size = memory_size(buffer)
    return TensorMemory(buffer, np.zeros(size, ir.numpy_dtype(buffer.dtype)), np.zeros(size, bool))


def find(memory: Memory, buffer: ir.Buffer) -> TensorMemory:
    try:
        return memory[buffer]
    except KeyError:
        pass
    message = f"buffer {buffer.name} is not a parameter and is not allocated here"
    raise InterpreterError(message, label=f"no {buffer.name} here")


def origin(buffer: ir.Buffer) -> int:
    """Where the first element is in the flat tensor; not 0 if strides are negative."""
    return -ir.reach(buffer.shape, buffer.strides)[0]


def indices_at(buffer: ir.Buffer, at: int) -> tuple[int, ...]:
    """The element that is at a place in the flat tensor."""
    there = np.argwhere(ir.addresses(buffer.shape, buffer.strides) == at - origin(buffer))
    return tuple(there[0].tolist())


def element(buffer: ir.Buffer, indices: Any) -> str:
    return f"{buffer.name}[{', '.join(str(int(i)) for i in indices) or '()'}]"


def out_of_bounds(access: str, buffer: ir.Buffer, indices: Any) -> InterpreterError:
    where = element(buffer, indices)
    message = f"{access} {where} is out of bounds: the shape of {buffer.name} is {buffer.shape}"
    return InterpreterError(message, label=f"{where}: out of bounds")


def uninitialised_error(buffer: ir.Buffer, indices: Any) -> InterpreterError:
    where = element(buffer, indices)
    message = (
        f"read of {where} before it was written: {buffer.name}, of shape {buffer.shape}, holds "
        "nothing there yet"
    )
    return InterpreterError(message, label=f"{where}: uninitialised")


def not_writable(buffer: ir.Buffer, indices: Any) -> InterpreterError:
    kind = "a table" if buffer.data is not None else "an input"
    message = f"write of {element(buffer, indices)}: {buffer.name} is {kind}, which nothing may change"
    return InterpreterError(message, label=f"writes {kind}")
