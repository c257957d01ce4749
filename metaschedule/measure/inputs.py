"""Data to verify and time a program with: legal for what is an index or an extent, telling for the rest.

`codegen.legal` says what each integer input may hold; `arrays` draws. Floats are integers where results
are then exact (see `numerics`), else normally distributed: never of one sign, with which a sum that lacks a
term looks right. Only where a program wants it (a root, an assertion) are they positive.
"""

from __future__ import annotations

import numpy as np

from .. import ir
from ..codegen.legal import SMALL, values_of


def arrays(
    program: ir.Program, magnitude: int | None, positive: bool, rng: np.random.Generator
) -> list[np.ndarray]:
    """One array per input. `magnitude` is that of exact inputs; None: floats need not be exact."""
    legal = values_of(program)

    def draw(b: ir.Buffer) -> np.ndarray:
        if b in legal:
            values = legal[b].draw(b.shape, rng)
        elif ir.is_float(b.dtype) and magnitude is None:
            values = rng.standard_normal(b.shape, np.float32)
            values = np.abs(values) + 0.5 if positive else values
        elif b.dtype == "bool":
            values = rng.integers(0, 2, b.shape)
        else:  # no zeros: a product that lacks a factor would look right
            values = rng.integers(1, largest(b, magnitude), b.shape, endpoint=True)
            if not positive and not b.dtype.startswith("uint"):
                values *= rng.choice((-1, 1), b.shape)
        return np.asarray(values).astype(ir.numpy_dtype(b.dtype))

    return [draw(b) for b in program.inputs]


def largest(b: ir.Buffer, magnitude: int | None) -> int:
    """The largest value of an input that is no index."""
    if ir.is_float(b.dtype):
        return magnitude or SMALL
    return min(magnitude or SMALL, ir.integer_limits(b.dtype)[1])
