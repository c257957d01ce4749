"""Samples of calls of operators, and the check that a lowering gives what torch gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch

import metaschedule as ms
from metaschedule import te
from metaschedule.torch.graph import Target, spec_of
from metaschedule.torch.lowering import lower

GENERATOR = torch.Generator().manual_seed(0)
TOLERANCE = {  # relative and absolute
    torch.float64: (1e-10, 1e-10),
    torch.float32: (2e-5, 1e-5),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (2e-2, 1e-2),
}


@dataclass
class Sample:
    """A call. `reference` computes it if `target` is an operator of ours; `reads` are the results to compare,
    all if None."""

    target: Target
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    reads: Sequence[int] | None = None


def call(target: Target, *args: Any, **kwargs: Any) -> Sample:
    return Sample(target, args, kwargs)


def t(*shape: int, dtype: torch.dtype = torch.float32, low: float = -3, high: float = 3) -> torch.Tensor:
    """Random numbers, spread evenly from `low` to `high`."""
    if dtype == torch.bool:
        return torch.rand(shape, generator=GENERATOR) < 0.5
    numbers = torch.rand(shape, generator=GENERATOR, dtype=torch.float64) * (high - low) + low
    return (numbers if dtype.is_floating_point else numbers.round()).to(dtype)


def ints(*shape: int, low: int = -5, high: int = 5, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return t(*shape, dtype=dtype, low=low, high=high)


def special(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    inf, nan = float("inf"), float("nan")
    return torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 100.0], dtype=dtype)


def interpreted(program: ms.Program, *inputs: np.ndarray) -> Any:
    return ms.interpret(program, *inputs)


def compiled(program: ms.Program, *inputs: np.ndarray) -> Any:
    return ms.build(ms.Schedule(program))(*inputs)


def check(sample: Sample, run: Callable[..., Any]) -> None:
    """Lowers the call, runs the program and compares its results with torch's."""
    inputs: dict[te.Tensor, np.ndarray] = {}

    def placeholder(tensor: torch.Tensor) -> te.Tensor:
        found = te.placeholder(*spec_of(tensor), name=f"x{len(inputs)}")
        inputs[found] = to_numpy(tensor)
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of samples that are at the edge on purpose
        expected = (sample.reference or sample.target)(*sample.args, **sample.kwargs)  # pyright: ignore
    expected = (expected,) if isinstance(expected, torch.Tensor) else expected
    reads = range(len(expected)) if sample.reads is None else sample.reads
    specs = [spec_of(e) if at in reads else None for at, e in enumerate(expected)]
    args, kwargs = replaced((list(sample.args), sample.kwargs), placeholder)
    results = lower(sample.target, args, kwargs, specs)
    program = te.program(list(inputs), [results[at] for at in reads])  # pyright: ignore
    found = run(program, *inputs.values())
    for array, at in zip(found if isinstance(found, tuple) else (found,), reads, strict=True):
        want, got = expected[at], to_torch(np.asarray(array))
        rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
        torch.testing.assert_close(
            *(got, want.contiguous()),
            rtol=rtol,
            atol=atol,
            equal_nan=True,
            msg=lambda message: f"{sample}\n{message}",
        )


def replaced(argument: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(argument, torch.Tensor):
        return change(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)([replaced(item, change) for item in argument])
    if isinstance(argument, dict):
        return {key: replaced(item, change) for key, item in argument.items()}
    return argument


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())
