"""`loop_carried_dependence` against all iterations: independent loops write no element twice.

Loops are fused and split by numbers that need not divide, so that a row is less than a tile, or more.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import ScheduleError
from metaschedule.ir import Block, Program, as_int
from metaschedule.schedule import Schedule
from metaschedule.schedule.primitive.kinds import loop_carried_dependence
from tests.schedule.checks import check


def storing(bindings: list[str], extents: tuple[int, ...]) -> Program:
    """Loops around one store, whose indices are expressions of them."""
    loops = "ijkl"[: len(extents)]
    points = [dict(zip(loops, point, strict=True)) for point in itertools.product(*map(range, extents))]
    shape = tuple([max(eval(e, point) for point in points) + 1 for e in bindings])
    lines = [
        f"v{n} = T.spatial({size}, {e})" for n, (e, size) in enumerate(zip(bindings, shape, strict=True))
    ]
    element = ", ".join(f"v{n}" for n in range(len(bindings)))
    return ms.parse(f"""
@ms.program
def storing(X: T.Tensor({shape}, "float32"), Y: T.Output({shape}, "float32")):
    for {", ".join(loops)} in T.grid({", ".join(map(str, extents))}):
        with T.block("store"):
            {"; ".join(lines)}
            Y[{element}] = X[{element}] + 1.0
""".replace("; ", "\n            "))  # fmt: skip


def elements(sch: Schedule) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Values of the loops around the store, with the element that is written."""
    state = sch.state
    loops = state.loops_around("store")
    block: Block = state.nodes["store"]
    tests = [str(state.resolve(test)) for test in block.predicate]
    indices = [str(state.resolve(binding)) for binding in block.bindings]
    sizes = [range(as_int(state.extents[v]) or 0) for v in loops]
    for point in itertools.product(*sizes):
        values = {v.name: n for v, n in zip(loops, point, strict=True)}
        if all(eval(test, {}, values) for test in tests):
            yield point, tuple(eval(index, {}, values) for index in indices)


def is_independent(sch: Schedule, at: int) -> bool:
    """Whether iterations of a loop, those around it being fixed, write different elements."""
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    return all(seen.setdefault((point[:at], place), point[at]) == point[at] for point, place in elements(sch))


@st.composite
def random_bindings(draw: st.DrawFn) -> tuple[list[str], tuple[int, ...]]:
    extents = draw(st.lists(st.sampled_from([1, 2, 3, 5, 6]), min_size=2, max_size=4))
    loops = "ijkl"[: len(extents)]
    terms = [f"{v} * {draw(st.sampled_from([1, 1, 1, 2, 3, 6]))}" for v in loops]
    some = draw(st.sampled_from(loops))
    terms += [f"{some} // 2 * {draw(st.integers(1, 4))}", f"{some} % 2 * {draw(st.integers(1, 4))}"]
    count = draw(st.integers(1, 3))
    bindings = [
        " + ".join(draw(st.lists(st.sampled_from(terms), min_size=1, max_size=3))) for _ in range(count)
    ]
    return bindings, tuple(extents)


@given(random_bindings(), st.integers(0, 2**32))
def test_loops_that_are_independent_write_no_element_twice(
    case: tuple[list[str], tuple[int, ...]], seed: int
) -> None:
    sch, rng = Schedule(storing(*case)), random.Random(seed)
    for _ in range(rng.randrange(1, 5)):
        loops = sch.get_loops(sch.get_block("store"))
        at = rng.randrange(len(loops))
        try:
            if rng.random() < 0.5:
                sch.split(loops[at], [None, rng.choice((1, 2, 3, 4, 7, 8))])
            else:
                sch.fuse(*loops[at : at + rng.choice((2, 2, 3))])
        except ScheduleError:
            continue
    for at, loop in enumerate(sch.state.loops_around("store")):
        if loop_carried_dependence(sch.state, loop) is None:
            assert is_independent(sch, at), f"{loop.name} in\n{sch.program}"


FUSED = {
    "a place of its own for each outer iteration": (["i // 4 * 6 + j", "i % 4 * 10 + k"], (8, 6, 10)),
    "rows that overlap those of other outer iterations": (["i // 4 * 4 + j", "i % 4 * 10 + k"], (8, 6, 10)),
    "columns first": (["k", "i % 4 + j"], (8, 6, 10)),
}


@pytest.mark.parametrize("length", [4, 7, 16, 64])
@pytest.mark.parametrize("case", FUSED)
def test_a_fused_loop_is_split_by_any_number(case: str, length: int) -> None:
    """The digits of the fused loop tell it, whatever it was split by afterwards."""
    program = storing(*FUSED[case])
    sch = Schedule(program)
    _, j, k = sch.get_loops(sch.get_block("store"))
    _, inner = sch.split(sch.fuse(j, k), [None, length])
    sch.vectorize(inner)
    check(sch, program)


@pytest.mark.parametrize("length", [4, 7, 16])
def test_a_fused_loop_with_loops_inside_is_split_by_any_number(length: int) -> None:
    """Rows are three elements each, which a loop inside fills."""
    program = storing(["i * 3 + k", "j"], (6, 5, 3))
    sch = Schedule(program)
    i, j, _ = sch.get_loops(sch.get_block("store"))
    outer, inner = sch.split(sch.fuse(i, j), [None, length])
    sch.parallel(inner)
    check(sch, program)


def test_a_fused_loop_that_does_not_tell_elements_is_refused() -> None:
    sch = Schedule(storing(["i * 2 + j", "k"], (6, 5, 3)))
    i, j, _ = sch.get_loops(sch.get_block("store"))
    _, inner = sch.split(sch.fuse(i, j), [None, 16])
    with pytest.raises(ScheduleError, match="several iterations may"):
        sch.vectorize(inner)
