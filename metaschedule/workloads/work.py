"""How much floating-point work there is in a program or workload."""

from __future__ import annotations

from typing import Any

from .. import ir
from ..ir import numpy_dtype
from ..validation import check_arguments
from .catalogue import create, resolve

MEMORY_BOUND = 4.0  # operations per byte moved, below which the bandwidth says more than the GFLOPS


@check_arguments
def flops(what: ir.Program | str, config: int = 0, **overrides: Any) -> int:
    """Floating-point operations: of a program as written, or of a workload.

    Every operator and function call on floats counts as one, so a multiply-add counts as two.
    The two ways of asking differ for T2D only, whose program multiplies by zeros that a kernel
    need not.

    >>> flops("GMM") == 2 * 128**3
    True
    """
    if isinstance(what, ir.Program):
        return _in_body(what.body, 1)
    if what == "T2D":
        return _transposed_work(**resolve(what, config, overrides))
    return _in_body(create(what, config, **overrides).body, 1)


@check_arguments
def operations(what: ir.Program | str, config: int = 0) -> int:
    """The same, by which people judge a latency; 0 if they cannot be counted."""
    try:
        return flops(what, config)
    except ValueError:
        return 0


def bytes_moved(program: ir.Program) -> int:
    """Of inputs and outputs: what must be moved once at least."""
    return sum(b.size * numpy_dtype(b.dtype).itemsize for b in program.params)


def _in_body(body: ir.Body, times: int) -> int:
    total = 0
    for s in body:
        inner = times
        if isinstance(s, ir.For):
            if s.fixed_extent is None:
                raise ValueError(f"the extent of loop {s.var.name} is not a constant: {s.extent}")
            inner *= s.fixed_extent
        elif isinstance(s, ir.While):
            raise ValueError("the number of iterations of a `while` is not known")
        if isinstance(s, ir.Store):
            total += times * sum(_in_expr(e) for e in ir.own_expressions(s))
        inside = (s.body,) if isinstance(s, ir.Block) else ir.bodies(s)  # `init` costs nothing
        total += sum(_in_body(part, inner) for part in inside)
    return total


def _in_expr(e: ir.Expr) -> int:
    counted = (ir.Binary, ir.Call, ir.Unary)
    return sum(isinstance(x, counted) and ir.is_float(x.dtype) for x in ir.subexpressions(e))


def _transposed_work(n: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, dtype: str) -> int:
    """Two per product of an input element and a weight that lands inside the output."""

    def landing(extent: int) -> int:
        out = (extent - 1) * s - 2 * p + k
        return sum(0 <= i * s - p + r < out for i in range(extent) for r in range(k))

    return 2 * n * landing(h) * landing(w) * ci * co
