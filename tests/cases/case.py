"""What a case is: a program that broke another tuner, its inputs and what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metaschedule.ir import Program, numpy_dtype

Arrays = list[np.ndarray]


def integers(program: Program, rng: np.random.Generator) -> Arrays:
    """Small integers, with which sums and products are exact in any order."""
    low = {"uint8": 0, "bool": 0}
    return [
        rng.integers(low.get(b.dtype, -4), 5, b.shape).astype(numpy_dtype(b.dtype)) for b in program.inputs
    ]


@dataclass(frozen=True)
class Case:
    """`make()` is the program with the shapes of CASES.md, `make(**small)` one to interpret.

    `reference(*inputs)` gives the outputs, in order. `tolerance` is relative, 0 for bit for bit.
    `build_only`: too large to be run.
    """

    make: Callable[..., Program]
    reference: Callable[..., Any]
    inputs: Callable[[Program, np.random.Generator], Arrays] = integers
    small: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 0
    build_only: bool = False

    def small_program(self) -> Program:
        return self.make(**self.small)

    def check(self, program: Program, results: Any, inputs: Arrays) -> None:
        """Fails unless `results` (an array or a tuple) are the reference's."""
        got = results if isinstance(results, tuple) else (results,)
        want = self.reference(*inputs)
        want = want if isinstance(want, tuple) else (want,)
        assert len(got) == len(want) == len(program.outputs)
        for g, w, b in zip(got, want, program.outputs, strict=True):
            assert g.shape == np.shape(w) == b.shape
            assert g.dtype == numpy_dtype(b.dtype)
            if self.tolerance:
                np.testing.assert_allclose(g, w, rtol=self.tolerance, atol=self.tolerance)
            else:
                np.testing.assert_array_equal(g, w)
