"""Every primitive with operands that it should not get: it refuses them by name, or does what it says.

The calls come from the registry and the annotations, so a new primitive is tried as soon as it is there.
"""

from __future__ import annotations

import inspect
import json
import random
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule.ir import GPU_AXES, For, Program, walk
from metaschedule.schedule import BlockRV, ExprRV, LoopRV, Schedule, Trace
from metaschedule.schedule.distribution import Distribution, distribution
from metaschedule.schedule.primitive.base import REGISTRY
from metaschedule.validation import HIGH, evaluate_hint
from tests.conftest import LONG
from tests.hostile import Whim, hostile, refused
from tests.schedule.checks import assert_same_results
from tests.schedule.refusals import refusal

OPS = sorted(op for op, cls in REGISTRY.items() if cls.__module__.startswith("metaschedule.schedule."))
CALLS = (5, 50)  # of an example: at a glance, in the long run
PROGRAMS = [
    ms.workloads.create("GMM", b=1, n=6, m=4, k=8),
    ms.workloads.create("C1D", n=1, l=6, ci=2, co=3, k=3, s=1, p=1),
    ms.workloads.create("SFM", shape=(3, 5)),
    ms.workloads.create("NRM", b=1, m=3, n=4),
]


class Bench:
    """A schedule on which things have happened, and handles of every sort."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.program = rng.choice(PROGRAMS)
        self.sch = Schedule(self.program, seed=rng.randrange(10**6))
        names = [k for k in self.sch.state.nodes if isinstance(k, str) and k]
        blocks = [self.sch.get_block(name) for name in names]
        loops = [loop for block in blocks for loop in self.sch.get_loops(block)]
        gone = rng.choice(loops)
        numbers = self.sch.sample_tile(gone, 2)
        loops += self.sch.split(gone, numbers) if rng.random() < 0.7 else []
        other = Schedule(self.program)
        foreign = other.get_block(names[0])
        self.handles: dict[type, list[Any]] = {
            BlockRV: [*blocks, foreign],
            LoopRV: [*loops, *other.get_loops(foreign)],
            ExprRV: [*numbers, ExprRV(0)],
            str: [*names, "local", "read", "write", "threadIdx.x", "lambda i, j: (j, i)"],
            int: [0, 1, 2, 3, 4, 2**31, 2**62],
        }
        self.all = [handle for some in self.handles.values() for handle in some]

    def operand(self, hint: Any) -> Any:
        """Often of the declared type, or nearly."""
        if self.rng.random() < 0.3:
            return hostile(self.rng, self.all)
        kinds = [k for k in self.handles if k is hint or k in leaves(hint)]
        fit: Any = (
            self.rng.choice(self.handles[self.rng.choice(kinds)]) if kinds else hostile(self.rng, self.all)
        )
        listed = "tuple" in str(hint) or "Sequence" in str(hint)
        if not listed:
            return fit
        count = self.rng.randrange(4)
        return [fit, *[self.operand(self.rng.choice(leaves(hint) or [int])) for _ in range(count)]]


def leaves(hint: Any) -> list[Any]:
    inner = get_args(hint)
    return [leaf for option in inner for leaf in leaves(option)] if inner else [hint]


def try_one(rng: random.Random) -> None:
    bench = Bench(rng)
    sch, op = bench.sch, rng.choice(OPS)
    cls = REGISTRY[op]
    method = getattr(sch, op)
    parameters = list(inspect.signature(method).parameters.values())
    names = [op, "index map", "handle", "object", *cls.names, *[p.name for p in parameters]]
    if rng.random() < 0.5:
        operands = [
            bench.operand(evaluate_hint(inspect.get_annotations(cls).get(n, "int"), cls)) for n in cls.names
        ]
        call: Any = lambda: sch.run(cls(*operands))  # noqa: E731
    else:
        owner = inspect.unwrap(method)
        given = {p.name: bench.operand(evaluate_hint(p.annotation, owner)) for p in parameters}
        several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        kept = {k: v for k, v in given.items() if k != several and rng.random() < 0.9}
        extra = [bench.operand(LoopRV) for _ in range(rng.randrange(4))] if several else []
        call = lambda: method(*extra, **kept)  # noqa: E731
    try:
        if refused(call, names, (TypeError, ValueError)):
            check_sound(sch)
            return
    except Whim:
        return
    check_sound(sch)
    check_means_the_same(bench.program, sch)


def check_sound(sch: Schedule) -> None:
    """Sizes fit, and the trace is plain data that replays to the same program."""
    for s in walk(sch.program):
        if isinstance(s, For) and s.fixed_extent is not None:
            assert s.fixed_extent <= HIGH
    again = Trace.from_json(sch.trace.to_json()).apply(sch.state.original)
    assert str(again.program) == str(sch.program)


def check_means_the_same(program: Program, sch: Schedule) -> None:
    count = 1
    for s in walk(sch.program):
        count *= max(1, s.fixed_extent or 1) if isinstance(s, For) else 1
    bound = any(isinstance(s, For) and s.kind in GPU_AXES for s in walk(sch.program))
    if count < 10**6 and not bound:
        assert_same_results(program, sch.program)


@given(st.integers(0, 2**32))
def test_hostile_operands_are_refused_by_name_or_right(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(CALLS[LONG["long"]]):
        try_one(rng)


# --- what was found ---------------------------------------------------------------------------------


def loops(n: int = 128) -> tuple[Schedule, list[LoopRV]]:
    sch = Schedule(ms.workloads.create("GMM", b=1, n=n, m=8, k=8))
    return sch, sch.get_loops(sch.get_block("matmul"))


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([None, 2.0], r"split: factors\[1\] must be an integer, ExprRV or None, got 2.0"),
        ([None, True], r"factors\[1\] must be an integer"),
        ([None, np.float64(2)], r"factors\[1\] must be an integer"),
        ("ab", "factors must be a sequence"),
        (3, "factors must be a sequence"),
        ([None, "2"], r"factors\[1\] must be an integer"),
    ],
)
def test_split_takes_integers_only(factors: Any, message: str) -> None:
    sch, (_, i, *_) = loops()
    with pytest.raises(TypeError, match=message):
        sch.split(i, factors)


def test_split_of_a_factor_beyond_64_bits() -> None:
    sch, (_, i, *_) = loops()
    with pytest.raises(ValueError, match=r"factors\[1\] must be an integer from -2\*\*63"):
        sch.split(i, [None, 2**63])


def test_numbers_of_numpy_are_integers() -> None:
    sch, (_, i, *_) = loops()
    sch.split(i, np.array([4, 32]))  # pyright: ignore[reportArgumentType]
    assert "factors=[4, 32]" in str(sch.trace)


def test_split_refuses_products_beyond_63_bits() -> None:
    sch, (_, i, *_) = loops()
    assert "index arithmetic has 63 bits" in refusal(sch.split, i, [None, 2**62, 4])
    outer, _ = sch.split(i, [None, 4])
    assert "index arithmetic has 63 bits" in refusal(sch.split, outer, [None, 2**62])  # * 4 + i_1 wraps


def test_fuse_refuses_products_beyond_63_bits() -> None:
    x = ms.te.placeholder((2**40,), name="X")
    k = ms.te.reduce_axis(2**40)
    sch = Schedule(
        ms.te.program([x], [ms.te.compute((2**40,), lambda i: ms.te.sum(x[i] + x[k], axis=k), "Y")])
    )
    assert "index arithmetic has 63 bits" in refusal(sch.fuse, *sch.get_loops(sch.get_block("Y")))


def test_storage_align_refuses_rows_beyond_63_bits_at_once() -> None:
    sch = Schedule(ms.workloads.create("SFM", shape=(3, 5)))
    block = sch.get_block(next(k for k in sch.state.nodes if isinstance(k, str) and "exp" in k))
    assert "63 bits" in refusal(sch.storage_align, block, 0, 0, 2**62)


def test_refuses_handles_of_another_schedule() -> None:
    (sch, (_, i, *_)), (_, (_, j, *_)) = loops(), loops()
    assert refusal(sch.parallel, j) == f"{j} is no handle of this schedule"
    assert refusal(sch.compute_at, sch.get_block("matmul"), j) == f"{j} is no handle of this schedule"
    fork = sch.fork()
    inner = fork.split(i, [None, 4])[1]
    assert refusal(sch.unroll, inner) == f"{inner} is no handle of this schedule"
    fork.unroll(inner)


@distribution("sample_half")
class Half(Distribution):
    """Draws what is no integer."""

    def support(self) -> list[float]:
        return [0.5]


def test_split_refuses_drawn_numbers_that_are_no_integers() -> None:
    sch, (_, i, *_) = loops()
    assert "stands for 0.5, which is no integer" in refusal(sch.split, i, [None, *sch.sample(Half())])


def test_replay_refuses_handles_of_another_kind() -> None:
    program = ms.workloads.create("GMM", b=1, n=4, m=4, k=4)
    matmul = ["get_block", {"name": "matmul", "index": 0}]
    loops_of_it = ["get_loops", {"block": {"rv": "b0"}}, ["b1", "b2", "b3", "b4"]]
    for steps in (
        [[*matmul, ["l0"]], ["unroll", {"loop": {"rv": "l0"}}, []]],
        [[*matmul, ["b0"]], loops_of_it, ["get_loops", {"block": {"rv": "b1"}}, []]],
    ):
        trace = Trace.from_json(json.dumps({"version": 1, "workload": None, "instructions": steps}))
        assert "of another kind" in refusal(trace.apply, program)


@pytest.mark.parametrize("decision", [[2.0, 64], [True, 128], "ab", [128], object(), {}, [[128, 1]]])
def test_decisions_are_integers(decision: Any) -> None:
    sch, (_, i, *_) = loops()
    for sample in (sch.sample_perfect_tile, sch.sample_tile):
        with pytest.raises((TypeError, ms.ScheduleError), match="decision"):
            sample(i, 2, decision=decision)


def test_tilings_that_cannot_be_listed_are_refused_at_once() -> None:
    sch, (_, i, *_) = loops(2**31)
    for refused_call in (
        lambda: sch.sample_perfect_tile(i, 10**9),
        lambda: sch.sample_tile(i, 10**9),
        lambda: sch.sample_partitioned_tile(i, 10),
    ):
        with pytest.raises(ms.ScheduleError, match="at most|more than"):
            refused_call()


def test_an_index_map_that_takes_no_indices() -> None:
    sch, _ = loops()
    wrong: Any = int  # has no signature to look at
    with pytest.raises(TypeError, match="the index map, called with 4 indices: int"):
        sch.transform_block_layout(sch.get_block("matmul"), wrong)


def test_an_annotation_is_plain_and_finite() -> None:
    sch, (_, i, *_) = loops()
    endless: list[Any] = []
    endless.append(endless)
    for value in ({"a": 1}, int, 1j, [[{}]], endless, object()):
        with pytest.raises(TypeError, match="annotate: value must be"):
            sch.annotate(i, "key", value)
    sch.annotate(i, "key", [np.int64(3), [None, "x"]])
    assert sch.get(i).annotations == {"key": (3, (None, "x"))}


def test_any_source_of_random_numbers() -> None:
    program = ms.workloads.create("GMM", b=1, n=24, m=8, k=8)
    sources: list[Any] = [7, np.int64(7), random.Random(7), np.random.default_rng(7)]
    for rng in sources:
        sch = Schedule(program, seed=rng)
        (_, i, *_) = sch.get_loops(sch.get_block("matmul"))
        sch.split(i, sch.sample_tile(i, 2))
        sch.trace.apply(program, rng=rng)
    for odd in (True, "7", 7.0, None):
        with pytest.raises(TypeError, match="seed"):
            Schedule(program, seed=odd)  # pyright: ignore[reportArgumentType]
