"""Whether candidates of a space compute what their program does."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import metaschedule as ms
from metaschedule.codegen import generate
from metaschedule.errors import ScheduleError
from metaschedule.ir import Program, blocks
from metaschedule.runtime import Executable
from metaschedule.space import Space
from metaschedule.space.block_predicates import volume
from metaschedule.target import resolve


@lru_cache(maxsize=4)
def random_inputs(program: Program) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(b.shape).astype(b.dtype) for b in program.inputs]


@lru_cache(maxsize=64)
def reference(program: Program) -> tuple[list[np.ndarray], np.ndarray]:
    """Inputs, and the result of the loops as written: one thread, no vectors, no fused operations."""
    inputs = random_inputs(program)
    exe = Executable(generate(program, resolve("native"), fma=False), threads=1)
    return inputs, np.asarray(exe(*inputs))


def is_buildable(space: Space, sch: ms.Schedule) -> bool:
    """Whether the checks of a space let a candidate through; on another machine others are."""
    try:
        space.check(sch)
    except ScheduleError:
        return False  # code that no cache holds, for one
    return True


def assert_candidate(
    sch: ms.Schedule, program: Program, constants: tuple[str, ...] = (), exact: np.ndarray | None = None
) -> None:
    """Build a schedule and compare, with the loops as written or with a more `exact` result for the same
    inputs; the message is a trace to paste."""
    inputs, wanted = reference(program) if exact is None else (random_inputs(program), exact)
    values: dict[str, Any] = dict(zip([b.name for b in program.inputs], inputs))
    exe = ms.build(sch, constants={name: values[name] for name in constants})
    got = np.asarray(exe(*[v for name, v in values.items() if name not in constants]))
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    # One accumulator loses this much over many terms, and a candidate may have only one.
    terms = max([volume(b, "reduce") or 1 for b in blocks(program)], default=1)
    rtol = 1e-3 + 1e-9 * terms
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-4 * scale, err_msg=str(sch.trace))
