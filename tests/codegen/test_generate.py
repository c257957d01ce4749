"""Whole workloads, compiled as they are written: like the interpreter, like NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metaschedule import ir, workloads
from metaschedule.codegen import generate
from metaschedule.interpreter import interpret
from metaschedule.runtime import Executable
from metaschedule.target import resolve
from tests.codegen.compiled import EPS, build, run
from tests.workloads.references import EXACT, REFERENCES, stand_in

ALL = [(name, n) for name in workloads.names() for n in range(len(workloads.configurations(name)))]
FEW = 3_000_000  # multiply-adds of a full configuration that the default run computes


def inputs_of(program: ir.Program, seed: int) -> list[np.ndarray]:
    """Small integers: sums of products of them are exact in float32."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, b.shape).astype(ir.numpy_dtype(b.dtype)) for b in program.inputs]


def check_like_numpy(name: str, config: dict[str, Any], program: ir.Program, got: np.ndarray,
                     inputs: list[np.ndarray]) -> None:  # fmt: skip
    want = REFERENCES[name](config, *[x.astype(np.float64) for x in inputs])
    if name in EXACT:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "n"), ALL)
def test_like_the_interpreter_and_numpy(name: str, n: int) -> None:
    """Every configuration, with extents small enough to be interpreted."""
    config = stand_in(name, workloads.configurations(name)[n])
    program = workloads.create(name, n, **config)
    inputs = inputs_of(program, n)
    (got,) = run(build(program), *inputs)
    expected = interpret(program, *inputs)
    if name in EXACT:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)  # pyright: ignore
    check_like_numpy(name, config, program, got, inputs)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        pytest.param(name, n, marks=() if workloads.flops(name, n) <= FEW else pytest.mark.slow)
        for name, n in ALL
    ],
)
def test_full_size_like_numpy(name: str, n: int) -> None:
    """Every configuration as it is."""
    program = workloads.create(name, n)
    inputs = inputs_of(program, n)
    (got,) = run(build(program), *inputs)
    check_like_numpy(name, workloads.configurations(name)[n], program, got, inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", workloads.names())
def test_other_dtypes(name: str, dtype: str) -> None:
    config = stand_in(name, workloads.configurations(name)[-1])
    program = workloads.create(name, **config, dtype=dtype)
    inputs = inputs_of(program, 1)
    (got,) = run(build(program, fma=False), *inputs)
    expected = np.asarray(interpret(program, *inputs)).astype(np.float64)
    atol = 8 * EPS[dtype] * np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=0, atol=atol)


class Kinds(ir.Rewriter):
    """The outermost loops parallel, the innermost vectorised."""

    def __init__(self) -> None:
        self.depth = 0

    def stmt(self, s: ir.Stmt) -> Any:
        self.depth += 1
        new = super().stmt(s)
        self.depth -= 1
        if not isinstance(new, ir.For):
            return new
        if self.depth == 0 and new.var.name != "k":
            return ir.For(new.var, new.extent, new.body, "parallel")
        innermost = not isinstance(new.body[0], ir.For)
        return ir.For(new.var, new.extent, new.body, "vectorized" if innermost else "serial")


@pytest.mark.parametrize("name", workloads.names())
def test_parallel_and_vectorised(name: str) -> None:
    """The first axis of every stage is the batch, rows or the like; the last may be a reduction."""
    config = stand_in(name, workloads.configurations(name)[0])
    program = Kinds().program(workloads.create(name, **config))
    inputs = inputs_of(program, 2)
    if name in ("NRM", "SFM"):  # where an outermost loop may be a reduction's
        config |= {"b": 3} if name == "NRM" else {"shape": (5, 7)}
        program = Kinds().program(workloads.create(name, **config))
        inputs = inputs_of(program, 2)
    (got,) = run(build(program), *inputs)
    check_like_numpy(name, config, program, got, inputs)


def test_same_text_every_time() -> None:
    """A kernel's text is a function of the program and the target, so that it can be a key."""
    target = resolve("x86-64-v3,cores=2")
    texts = [generate(workloads.create("CBR"), target).llvm for _ in range(2)]
    assert texts[0] == texts[1]


def test_kernel_describes_its_arguments() -> None:
    program = workloads.create("FDENSE", m=3, n=5, k=7)
    kernel = generate(program, resolve("native"))
    assert [str(s) for s in kernel.inputs] == ["X: float32[3, 7]", "W: float32[7, 5]", "bias: float32[5]"]
    assert kernel.outputs[0].shape == (3, 5)
    assert kernel.max_threads == 1
    assert kernel.shared_bytes == 0
    assert Executable(kernel).name == kernel.entry == "ms_FDENSE"
