"""`interpret`: the caller's arrays in, the program's results out."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaschedule.ir import Buffer, Program, numpy_dtype

from ..validation import check_arguments
from ..verifier import check_depth
from .errors import InterpreterError
from .memory import Memory, TensorMemory, element, fresh, readonly_tensor
from .walk import Interpreter


@check_arguments
def interpret(
    program: Program, *inputs: Any, lanes: bool | None = None
) -> np.ndarray | tuple[np.ndarray, ...]:
    """The outputs of `program`: one array, or a tuple in the order of `program.outputs`.

    >>> from metaschedule.script import parse
    >>> double = parse('''
    ... @ms.program
    ... def double(A: T.Tensor((3,)), B: T.Output((3,))):
    ...     for i in range(3):
    ...         B[i] = A[i] * 2.0
    ... ''')
    >>> interpret(double, np.array([1, 2, 3], np.float32)).tolist()
    [2.0, 4.0, 6.0]

    `lanes` is for tests of the interpreter itself: False never uses the fast path, True uses it
    wherever it applies, None where it also pays.
    """
    check_depth(program)
    memory: Memory = {
        b: readonly_tensor(b, array) for b, array in zip(program.inputs, check_inputs(program, inputs))
    }
    memory |= {b: fresh(b) for b in program.outputs + program.allocs}
    try:
        with np.errstate(all="ignore"):
            Interpreter(memory, lanes).body(program.body)()
        results = tuple(result(memory[b]) for b in program.outputs)
    except InterpreterError as error:
        error.program = program
        raise
    return results[0] if len(results) == 1 else results


def check_inputs(program: Program, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    expected = program.inputs
    if len(inputs) != len(expected):
        names = ", ".join(b.name for b in expected) or "none"
        raise InterpreterError(f"{program.name} takes {len(expected)} input(s) ({names}), got {len(inputs)}")
    return [check_input(b, at, value) for at, (b, value) in enumerate(zip(expected, inputs))]


def check_input(buffer: Buffer, at: int, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InterpreterError(f"input {at} ({buffer.name}): not an array: {error}") from None
    if array.shape != buffer.shape or array.dtype != numpy_dtype(buffer.dtype):
        raise InterpreterError(
            f"input {at} ({buffer.name}): expected {buffer.dtype} of shape {buffer.shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array


def result(tensor: TensorMemory) -> np.ndarray:
    buffer = tensor.buffer
    if tensor.written is not None and not (written := tensor.elements(tensor.written)).all():
        first = np.unravel_index(int(np.argmin(written)), buffer.shape)
        raise InterpreterError(f"output {element(buffer, first)} was never written")
    return np.ascontiguousarray(tensor.elements(tensor.data)).reshape(buffer.shape)
