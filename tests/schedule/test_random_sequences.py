"""Random sequences of primitives never change what a program computes.

The long run counts how often each primitive was accepted and refused; a failure prints the trace to paste.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule.schedule import Schedule, Trace
from metaschedule.schedule.primitive.base import REGISTRY
from tests.schedule.checks import assert_same_results
from tests.schedule.random_steps import CALLS, any_call, programs, step
from tests.te.random_expressions import random_expressions

PROGRAMS = programs()
COUNTS: Counter[str] = Counter()


def run_sequence(program: ms.Program, rng: random.Random, inputs: list[np.ndarray], length: int) -> None:
    sch = Schedule(program, seed=rng.getrandbits(32))
    for _ in range(length):
        sch = step(sch, rng, COUNTS)
    trace = sch.trace
    try:
        ms.verify(sch.program)
        bound = any("." in loop.kind for loop in ms.ir.walk(sch.program) if isinstance(loop, ms.ir.For))
        rounding = 1e-4 if "winograd" in str(trace) else 0.0
        assert_same_results(program, sch.program, compiled=not bound, inputs=inputs, rounding=rounding)
        assert str(Trace.from_json(trace.to_json()).apply(program).program) == str(sch.program)
    except Exception:
        print(f"the trace that failed, on\n{program}\n\n{trace}")
        raise


@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32))
def test_sequences_on_workloads_and_cases(name: str, seed: int) -> None:
    rng = random.Random(seed)
    program, inputs = PROGRAMS[name]()
    run_sequence(program, rng, inputs, rng.randint(1, 8))


@given(st.data(), st.integers(0, 2**32))
def test_sequences_on_random_expressions(data: st.DataObject, seed: int) -> None:
    example = data.draw(random_expressions())
    rng = random.Random(seed)
    run_sequence(example.program, rng, list(example.inputs), rng.randint(1, 6))


def test_every_primitive_is_drawn() -> None:
    built_in = {op for op, cls in REGISTRY.items() if cls.__module__.startswith("metaschedule.schedule.")}
    missing = sorted(op for op in built_in - set(CALLS) if not REGISTRY[op].is_query)
    assert missing == [], "random_steps.any_call cannot draw their operands: write calls for them there"


@pytest.mark.parametrize("op", ["parallel", "compute_inline", "compute_at", "set_scope", "bind"])
def test_calls_by_the_types_of_fields(op: str) -> None:
    """Handles and numbers can be drawn for any primitive, other types cannot."""
    call = any_call(REGISTRY[op])
    assert (call is None) == (op in ("set_scope", "bind"))
    if call is None:
        return
    outcomes: Counter[str] = Counter()
    for seed in range(60):
        sch = Schedule(PROGRAMS["chain"]()[0], seed=seed)
        try:
            call(sch, random.Random(seed))
        except ms.ScheduleError:
            outcomes["refused"] += 1
        else:
            outcomes["accepted"] += 1
            assert len(sch.trace.instructions) > 1
    assert outcomes["accepted"] > 0


@pytest.mark.slow
def test_long_run_accepts_most_calls_and_each_primitive_often() -> None:
    """5,000 sequences with every primitive in turn, counts printed."""
    rng = random.Random(0)
    names = sorted(PROGRAMS)
    counts: Counter[str] = Counter()
    for n in range(5000):
        program, inputs = PROGRAMS[rng.choice(names)]()
        sch = Schedule(program, seed=n)
        for _ in range(rng.randint(1, 6)):
            sch = step(sch, rng, counts)
        bound = any("." in loop.kind for loop in ms.ir.walk(sch.program) if isinstance(loop, ms.ir.For))
        try:
            assert_same_results(program, sch.program, compiled=not bound and n % 5 == 0, inputs=inputs)
        except Exception:
            print(f"the trace that failed, on\n{program}\n\n{sch.trace}")
            raise
    accepted = sum(counts[op] for op in CALLS)
    refused = sum(counts[f"{op} refused"] for op in CALLS)
    for op in CALLS:
        print(f"{op:28} accepted {counts[op]:5}  refused {counts[f'{op} refused']:5}")
    print(f"accepted {accepted} of {accepted + refused}")
    assert accepted >= 0.6 * (accepted + refused)
    assert [op for op in CALLS if counts[op] < 50] == []
