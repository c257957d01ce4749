"""The relation's answers against the enumerated truth, over random nests (`nests.py`).

Never *independent*, *covered* or *injective* where enumeration finds a counter-example; and the share of what
is true that is proved, printed by `python -m tests.affine.test_relation 2000`."""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from operator import mul

import pytest

from metaschedule import ir
from metaschedule.affine.access import Access, accesses_of
from metaschedule.affine.alias import may_alias, may_meet_later
from metaschedule.affine.cover import covers
from metaschedule.affine.injective import is_injective
from metaschedule.affine.stride import stride
from metaschedule.affine.view import View
from metaschedule.schedule import Schedule
from metaschedule.schedule.state import State
from tests.affine.nests import Instance, draw_nest, instances, points_of
from tests.conftest import LONG

Answer = tuple[str, bool | None, bool, str]  # question, the relation's answer, the truth, of what
BLOCKS = ("first", "second")


def accesses(block: ir.Block, buffer: ir.Buffer) -> list[Access]:
    return [a for a in accesses_of(block) if a.buffer is buffer]


def answers(sch: Schedule) -> Iterator[Answer]:
    s = sch.state
    runs = {name: instances(s, name) for name in BLOCKS}
    yield from independence(s, runs, sch.program.outputs)
    yield from order(s, runs, sch.program.outputs[0])
    yield from coverage(s, runs, sch.program.outputs[0])
    yield from injectivity(s)
    yield from strides(s)


def independence(
    s: State, runs: dict[str, list[Instance]], buffers: tuple[ir.Buffer, ...]
) -> Iterator[Answer]:
    loops = dict.fromkeys([v for name in BLOCKS for v in s.loops_around(name)])
    for loop in loops:
        below = [name for name in BLOCKS if s.is_below(name, loop)]
        for buffer in buffers:
            group = [a for name in below for a in accesses(s.nodes[name], buffer)]
            pairs = [(a, b) for n, a in enumerate(group) for b in group[: n + 1] if a.is_write or b.is_write]
            if pairs:
                view = View(s, s.parent[loop], moving=loop)
                found = [may_alias(view, a, b) for a, b in pairs]
                answer = True if True in found else None if None in found else False
                yield "may_alias", answer, meets(s, runs, below, loop, buffer), f"{loop.name} {buffer.name}"


def meets(
    s: State, runs: dict[str, list[Instance]], below: list[str], loop: ir.Var, buffer: ir.Buffer
) -> bool:
    """Whether an element that one iteration of a loop stores is touched in another."""
    touched: dict[tuple[object, ...], set[int]] = {}
    stored: set[tuple[object, ...]] = set()
    for name in below:
        at = len(s.loops_around(loop))
        for run in runs[name]:
            for is_write in (False, True):
                for element in run.touches(buffer, is_write):
                    key = (*run.loops[:at], None, *element)
                    touched.setdefault(key, set()).add(run.loops[at])
                    if is_write:
                        stored.add(key)
    return any(len(touched[key]) > 1 for key in stored)


def order(s: State, runs: dict[str, list[Instance]], buffer: ir.Buffer) -> Iterator[Answer]:
    """Loops that follow one another: does the second touch what the first touches in a later iteration?"""
    common = [v for v in s.loops_around("first") if s.is_below("second", v)]
    at = len(common)
    loops = [next(iter(s.loops_around(name)[at:]), None) for name in BLOCKS]
    first, second = loops
    if first is None or second is None or s.fixed_extent(first) != s.fixed_extent(second):
        return
    (write,), (read,) = [accesses(s.nodes[name], buffer) for name in BLOCKS]
    stored: dict[tuple[object, ...], int] = {}  # the last iteration of the first loop that stores an element
    for run in runs["first"]:
        for element in run.touches(buffer, True):
            key = (*run.loops[:at], None, *element)
            stored[key] = max(stored.get(key, 0), run.loops[at])
    truth = any(
        stored.get((*run.loops[:at], None, *element), -1) > run.loops[at]
        for run in runs["second"]
        for element in run.touches(buffer, False)
    )
    yield "may_meet_later", may_meet_later(s, (second, read), (first, write)), truth, buffer.name


def coverage(s: State, runs: dict[str, list[Instance]], buffer: ir.Buffer) -> Iterator[Answer]:
    first, second = [s.nodes[name] for name in BLOCKS]
    around = [v for v in s.loops_around("first") if s.is_below("second", v)]
    (write,), (read,) = accesses(first, buffer), accesses(second, buffer)
    stored: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for run in runs["first"]:
        stored.setdefault(run.loops[: len(around)], set()).update(run.touches(buffer, True))
    truth = all(
        run.touches(buffer, False) <= stored.get(run.loops[: len(around)], set()) for run in runs["second"]
    )
    yield (
        "covers",
        covers(View(s, s.lowest_common_ancestor("first", "second")), write, read),
        truth,
        buffer.name,
    )


def injectivity(s: State) -> Iterator[Answer]:
    for name in BLOCKS:
        block: ir.Block = s.nodes[name]
        extents = {it.var: ir.as_int(it.extent) or 0 for it in block.iters}
        for region in block.writes:
            if any(ir.as_int(count) != 1 for _, count in region.ranges):
                continue
            yield "is_injective", is_injective(region.ranges, extents), one_to_one(block, region), name


def one_to_one(block: ir.Block, region: ir.Region) -> bool:
    images = [tuple(values) for values in points_of(block, region)]
    return len(set(images)) == len(images)


def strides(s: State) -> Iterator[Answer]:
    for name in BLOCKS:
        block: ir.Block = s.nodes[name]
        store = block.body[0]
        assert isinstance(store, ir.Store)
        extents = {it.var: ir.as_int(it.extent) or 0 for it in block.iters}
        for it in block.iters:
            if ir.as_int(it.extent) != 1:
                found, moves = stride(store, it.var, extents), moved(block, it.var)
                # A constant is an answer, None is "it varies": both are right, or wrong.
                yield "stride", found is None, len(moves) > 1, f"{name} {it.var.name}"
                assert found is None or moves <= {found}, f"{store} moves by {moves}, not by {found}"


def moved(block: ir.Block, var: ir.Var) -> set[int]:
    """By how many elements the first write of a block moves as an iterator goes on by one."""
    region = block.writes[0]
    at = next(n for n, it in enumerate(block.iters) if it.var is var)
    points = itertools.product(*[range(ir.as_int(it.extent) or 0) for it in block.iters])
    steps = region.buffer.strides
    places = {
        point: sum(map(mul, element, steps))
        for point, element in zip(points, points_of(block, region), strict=True)
    }
    after = [(*p[:at], p[at] + 1, *p[at + 1 :]) for p in places]
    return {places[b] - places[a] for a, b in zip(places, after) if b in places}


WRONG: dict[str, Callable[[bool | None, bool], bool]] = {
    "may_alias": lambda answer, truth: answer is not None and answer is not truth,
    "may_meet_later": lambda answer, truth: answer is not None and answer is not truth,
    "covers": lambda answer, truth: answer is True and not truth,
    "is_injective": lambda answer, truth: answer is not None and answer is not truth,
    "stride": lambda answer, truth: truth and not answer,
}
PROVED: dict[str, bool] = {
    "may_alias": False,
    "may_meet_later": False,
    "covers": True,
    "is_injective": True,
    "stride": False,
}
SHARE = {"may_alias": 0.95, "may_meet_later": 0.95, "covers": 0.95, "is_injective": 0.95, "stride": 0.97}


def survey(count: int, seed: int) -> Counter[tuple[str, str]]:
    """Ask about so many programs; raises where an answer is wrong."""
    rng, found = random.Random(seed), Counter[tuple[str, str]]()
    for _ in range(count):
        sch = draw_nest(rng)
        loads = "Table[" in str(sch.program)
        for question, answer, truth, what in answers(sch):
            assert not WRONG[question](answer, truth), (
                f"{question} {what}: {answer}, but {truth}\n{sch.program}"
            )
            wanted = PROVED[question]
            if truth is wanted and not loads:
                found[question, "true"] += 1
                found[question, "proved"] += answer is wanted
            found[question, "asked"] += 1
    return found


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_sound_and_nearly_complete(seed: int) -> None:
    found = survey(2000 if LONG["long"] else 60, seed)
    for question, share in SHARE.items():
        assert found[question, "proved"] >= share * found[question, "true"], question


if __name__ == "__main__":
    counts = survey(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for question in PROVED:
        asked, true, proved = [counts[question, what] for what in ("asked", "true", "proved")]
        print(f"{question:14} asked {asked:7}  true {true:7}  proved {proved:7}  {proved / max(true, 1):.2%}")
