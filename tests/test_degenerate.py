"""Programs with extents of 0 and 1, scalars, without inputs, without reductions: everywhere.

What the interpreter says is what the loops as written, the untuned default and candidates of the space
compute; every primitive works or raises `ScheduleError`; traces, scripts and costs know such programs, too.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.cost import Analytical, features
from metaschedule.ir import Program
from metaschedule.schedule import Schedule
from metaschedule.space import default
from metaschedule.target import resolve
from tests.conftest import LONG
from tests.degenerate_programs import Example, degenerate_programs
from tests.schedule.checks import as_tuple, check_round_trip
from tests.schedule.random_steps import CALLS, NothingToDo
from tests.search.runners import Synthetic

FEW = settings(max_examples=600 if LONG["long"] else 12)
TARGETS = ("x86-64-v2,cores=1", "x86-64-v3,cores=2", "x86-64-v4,cores=64", "riscv64,vector_bytes=128")


def assert_results(got: Any, wanted: Any, program: Program) -> None:
    for a, b in zip(as_tuple(got), as_tuple(wanted), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=str(program))


# --- what is computed -----------------------------------------------------------------------------


@FEW
@given(degenerate_programs(), st.integers(0, 100))
def test_every_way_computes_the_same(example: Example, seed: int) -> None:
    program, inputs = example.program, example.inputs()
    wanted = ms.interpret(program, *inputs)
    assert ms.structural_equal(ms.parse(str(program)), program)
    for built in (ms.Schedule(program), program, default().sample(program, seed)):
        assert_results(ms.build(built)(*inputs), wanted, program)


@settings(max_examples=2000 if LONG["long"] else 30)
@given(degenerate_programs(), st.sampled_from(TARGETS), st.integers(0, 100))
def test_candidates_for_any_machine(example: Example, machine: str, seed: int) -> None:
    """Nothing is refused, what is replayed means the same, and costs something finite."""
    program, inputs, space = example.program, example.inputs(), default(machine)
    sketches, refused = space.explore(program)
    assert sketches
    assert not refused, f"{refused}\n{program}"
    assert space.size(program) >= 1
    sch = random.Random(seed).choice(sketches).apply(program, rng=seed)
    ms.verify(sch.program)
    assert_results(ms.interpret(sch.program, *inputs), ms.interpret(program, *inputs), sch.program)
    for known in (program, sch):
        assert np.isfinite(features([known], space.target)).all()
        assert np.isfinite(Analytical(space.target).predict([known])).all()


@settings(max_examples=2000 if LONG["long"] else 80)
@given(degenerate_programs(), st.integers(0, 2**32))
def test_primitives_work_or_refuse(example: Example, seed: int) -> None:
    program, inputs, rng = example.program, example.inputs(), random.Random(seed)
    sch, done = Schedule(program, seed=seed), Counter[str]()
    for _ in range(30):
        name = rng.choice(sorted(CALLS))
        try:
            CALLS[name](sch, rng)
            done[name] += 1
        except (ms.ScheduleError, NothingToDo):
            continue
        if done.total() == 6:
            break
    ms.verify(sch.program)
    check_round_trip(sch, program)
    assert_results(ms.interpret(sch.program, *inputs), ms.interpret(program, *inputs), sch.program)


# --- examples -------------------------------------------------------------------------------------


def doubled(*shape: int) -> Program:
    x = te.placeholder(shape, name="x")
    return te.program([x], [te.compute(shape, lambda *i: x[i] * 2.0, name="y")])


def reduced(combine: Any, rows: int, columns: int, dtype: str = "float32") -> Program:
    x = te.placeholder((rows, columns), dtype, name="x")
    k = te.reduce_axis(columns, name="k")
    return te.program([x], [te.compute((rows,), lambda i: combine(x[i, k], axis=k), name="y")])


def total(*shape: int) -> Program:
    x = te.placeholder(shape, name="x")
    axes = [te.reduce_axis(n, name=f"k{at}") for at, n in enumerate(shape)]
    return te.program([x], [te.compute((), lambda: te.sum(x[tuple(axes)], axis=axes), name="y")])


def three() -> Program:
    return te.program([], [te.compute((3,), lambda i: te.cast(i, "float32") + 1.0, name="y")])


EXAMPLES = {
    "nothing": doubled(0),
    "rows of nothing": doubled(3, 0),
    "a scalar": doubled(),
    "one element": doubled(1, 1),
    "no inputs": three(),
    "sums of nothing": reduced(te.sum, 3, 0),
    "no sums": reduced(te.sum, 0, 3),
    "a total": total(5),
    "a total of nothing": total(0, 3),
}
NEUTRAL = {  # of a reduction over nothing
    (te.sum, "float32"): 0.0, (te.prod, "float32"): 1.0,
    (te.max, "float32"): -np.inf, (te.min, "float32"): np.inf,
    (te.max, "int32"): -(2**31), (te.min, "int32"): 2**31 - 1, (te.sum, "int64"): 0, (te.max, "uint8"): 0,
}  # fmt: skip


@pytest.mark.parametrize(("combine", "dtype"), NEUTRAL, ids=lambda v: getattr(v, "__name__", v))
def test_a_reduction_over_nothing_is_its_neutral_element(combine: Any, dtype: str) -> None:
    program = reduced(combine, 3, 0, dtype)
    empty = np.empty((3, 0), dtype)
    for run in (lambda *a: ms.interpret(program, *a), ms.build(program), ms.build(ms.Schedule(program))):
        np.testing.assert_array_equal(run(empty), np.full(3, NEUTRAL[combine, dtype], dtype))


@pytest.mark.parametrize("name", EXAMPLES)
def test_tuning_ends_well(name: str) -> None:
    program = EXAMPLES[name]
    inputs = [np.ones(b.shape, b.dtype) for b in program.inputs]
    result = ms.tune(program, trials=4, measurer=Synthetic)
    assert set(result.outcomes) == {"ok"}
    assert_results(result.build()(*inputs), ms.interpret(program, *inputs), program)
    assert str(result)


def test_tuning_nothing_at_all() -> None:
    assert ms.tune([]) == []
    assert ms.tune([], minutes=1.0) == []


def test_empty_programs_are_measured() -> None:
    """In processes of their own, with guarded memory."""
    result = ms.tune(doubled(3, 0), trials=2)
    assert set(result.outcomes) == {"ok"}
    assert result.latency is not None


@pytest.mark.parametrize("name", EXAMPLES)
def test_calls_with_empty_arrays(name: str, tmp_path: Path) -> None:
    program = EXAMPLES[name]
    inputs = [np.ones(b.shape, b.dtype) for b in program.inputs]
    wanted = ms.interpret(program, *inputs)
    exe = ms.build(program)
    outputs = [np.full(b.shape, 7, b.dtype) for b in program.outputs]
    assert_results(exe(*inputs, *outputs), wanted, program)
    assert_results(tuple(outputs), wanted, program)
    assert exe.benchmark().min >= 0
    assert exe.benchmark(*inputs).median >= 0
    assert exe.source("asm")
    exe.save(tmp_path / "kernel.msk")
    assert_results(ms.runtime.load(tmp_path / "kernel.msk")(*inputs), wanted, program)


def test_strides_of_empty_arrays_mean_nothing() -> None:
    exe = ms.build(doubled(3, 0))
    base = np.ones((6, 8), "float32")
    for empty in (base[::2, :0], base[:3, 4:4], np.empty((0, 3), "float32").T, base[:3, ::-3][:, 3:]):
        assert exe(empty).shape == (3, 0)
    with pytest.raises(ValueError, match="shape"):
        exe(np.empty((0, 3), "float32"))


def test_empty_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    exe = ms.build(doubled(3, 0))
    for empty in (torch.empty(3, 0), torch.empty(0, 3).t(), torch.ones(3, 4)[:, 2:2]):
        assert tuple(exe(empty).shape) == (3, 0)
    assert float(ms.build(doubled())(torch.tensor(2.0))) == 4.0


def test_spaces_of_one_element_have_a_candidate_for_every_machine() -> None:
    for machine in TARGETS:
        space = default(machine)
        assert space.target == resolve(machine)
        for name, program in EXAMPLES.items():
            sketches, refused = space.explore(program)
            assert sketches, f"{name} for {machine}"
            assert not refused, f"{name} for {machine}: {refused}"
