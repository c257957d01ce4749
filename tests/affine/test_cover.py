"""footprint, find_written, find_inverse and preimage against the enumerated truth, over random nests."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Mapping

import pytest

from metaschedule import ir
from metaschedule.affine.access import Access, accesses_of
from metaschedule.affine.footprint import find_written, footprint
from metaschedule.affine.inverse import find_inverse, preimage
from metaschedule.affine.nest import ROOT, Key
from metaschedule.affine.view import Interval, View
from metaschedule.schedule.state import State
from tests.affine.nests import compiled, compiled_region, draw_nest, elements
from tests.conftest import LONG

Element = tuple[int, ...]
Counts = Counter[tuple[str, str]]


def touched(s: State, access: Access, fixed: Mapping[ir.Var, int]) -> set[Element]:
    """All elements of an access while some of the loops around its block have given values."""
    block = access.block
    loops = s.loops_around(block.name)
    at = {v: f"p[{n}]" for n, v in enumerate(loops)}
    bindings = [compiled(s.resolve(e), at) for e in block.bindings]
    tests = [compiled(s.resolve(e), at) for e in block.predicate]
    region = compiled_region(access.region, {it.var: f"p[{n}]" for n, it in enumerate(block.iters)})
    found: set[Element] = set()
    for point in itertools.product(
        *[[fixed[v]] if v in fixed else range(s.fixed_extent(v) or 0) for v in loops]
    ):
        if all(test(point) for test in tests):
            found |= elements([region], tuple([b(point) for b in bindings]))[access.buffer]
    return found


def value_of(s: State, e: ir.Expr, fixed: Mapping[ir.Var, int]) -> int:
    names = {v: f"p[{n}]" for n, v in enumerate(fixed)}
    return compiled(s.resolve(e), names)(tuple(fixed.values()))


def is_in(s: State, x: Interval, index: int, fixed: Mapping[ir.Var, int]) -> bool:
    start = value_of(s, x.start, fixed)
    return start <= index < start + x.extent


def count_box(points: set[Element]) -> int:
    """The size of the least box around some points."""
    return math.prod([max(column) - min(column) + 1 for column in zip(*points, strict=True)]) if points else 0


def check_footprints(s: State, rng: random.Random, counts: Counts) -> None:
    """Boxes at a random place around each access, for a random iteration of the loops outside."""
    for name in ("first", "second"):
        for access in accesses_of(s.nodes[name]):
            if ir.loads(*[start for start, _ in access.region.ranges]) or access.buffer.name == "Z":
                continue
            loops = s.loops_around(name)
            depth = rng.randrange(len(loops) + 1)
            key: Key = loops[depth - 1] if depth else ROOT
            fixed = {v: rng.randrange(s.fixed_extent(v) or 1) for v in loops[:depth]}
            view, truth = View(s, key), touched(s, access, fixed)
            box, most = footprint(view, access), [count_box(truth)]
            for element in truth:
                assert all(is_in(s, x, n, fixed) for x, n in zip(box, element, strict=True)), (
                    f"{box} {s.program}"
                )
            for _ in range(6):  # a tile at the end may be smaller; the box has one size for all of them
                other = {v: rng.randrange(s.fixed_extent(v) or 1) for v in loops[:depth]}
                most.append(count_box(touched(s, access, other)))
            counts["footprint", "asked"] += 1
            counts["footprint", "true"] += 1
            size = 1
            for x, n in zip(box, access.buffer.shape, strict=True):
                size *= min(x.extent, n)
            counts["footprint", "proved"] += size <= max(most) or not max(most)
            check_written(s, view, access, truth, fixed, counts)


def check_written(
    s: State, view: View, access: Access, truth: set[Element], fixed: Mapping[ir.Var, int], counts: Counts
) -> None:
    if any(ir.as_int(n) != 1 for _, n in access.region.ranges):
        return
    box = find_written(view, access.block, [start for start, _ in access.region.ranges])
    ends = [(min(column), max(column)) for column in zip(*truth, strict=True)]
    is_box = bool(truth) and truth == set(itertools.product(*[range(a, b + 1) for a, b in ends]))
    counts["find_written", "asked"] += 1
    counts["find_written", "true"] += is_box
    counts["find_written", "proved"] += is_box and box is not None
    if box is None or not all(value_of(s, guard, fixed) for guard in box.guards):
        return
    points = []
    for x, limit in box.ranges:
        start = value_of(s, x.start, fixed)
        end = start + x.extent if limit is None else min(start + x.extent, limit)
        points.append(range(start, end))
    assert set(itertools.product(*points)) == truth, f"{box}\n{truth}\n{s.program}"


def check_inverses(block: ir.Block, rng: random.Random, counts: Counts) -> None:
    """Inverses of indices over all points of a block's iterators."""
    extents = {it.var: ir.as_int(it.extent) or 0 for it in block.iters}
    names = {v: f"p[{n}]" for n, v in enumerate(extents)}
    points = list(itertools.product(*map(range, extents.values())))
    for access in accesses_of(block):
        indices = tuple([start for start, _ in access.region.ranges])
        if ir.loads(*indices) or access.buffer.name == "Z":
            continue
        at = [compiled(e, names) for e in indices]
        images = {point: tuple([e(point) for e in at]) for point in points}
        known = find_inverse(block.iters, indices)
        one_to_one = len(set(images.values())) == len(points)
        counts["inverse", "asked"] += 1
        counts["inverse", "true"] += one_to_one
        counts["inverse", "proved"] += known is not None
        assert known is None or one_to_one, f"{indices}"
        if known is not None:
            for point, image in images.items():
                found = known.solve([ir.const(n) for n in image])
                assert tuple([compiled(found[v], {})(()) for v in extents]) == point, f"{indices} {image}"
            box = set(itertools.product(*[range(a, b + 1) for a, b in known.ranges]))
            assert set(images.values()) <= box
            assert not known.full or set(images.values()) == box
        check_preimage(block, indices, images, rng)


def check_preimage(
    block: ir.Block, indices: tuple[ir.Expr, ...], images: Mapping[Element, Element], rng: random.Random
) -> None:
    low = rng.choice(list(images.values()))
    box = [Interval({}, n, rng.randint(1, 4)) for n in low]
    found = preimage(View(EMPTY, ROOT), block.iters, indices, box)
    for point, image in images.items():
        if all(x.offset <= n < x.end for x, n in zip(box, image, strict=True)):
            for it, n in zip(block.iters, point, strict=True):
                assert it.var not in found or is_in(EMPTY, found[it.var], n, {}), f"{indices} {box} {found}"


EMPTY = draw_nest(random.Random(0)).state


def survey(count: int, seed: int) -> Counts:
    rng, counts = random.Random(seed), Counts()
    for _ in range(count):
        s = draw_nest(rng).state
        check_footprints(s, rng, counts)
        for name in ("first", "second"):
            check_inverses(s.nodes[name], rng, counts)
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_footprints_and_inverses_are_sound(seed: int) -> None:
    found = survey(2000 if LONG["long"] else 60, seed)
    assert found["inverse", "proved"] >= 0.9 * found["inverse", "true"]
    assert found["footprint", "proved"] >= 0.9 * found["footprint", "true"]


if __name__ == "__main__":
    counts = survey(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    for question in ("footprint", "find_written", "inverse"):
        asked, true, proved = [counts[question, what] for what in ("asked", "true", "proved")]
        print(f"{question:14} asked {asked:7}  true {true:7}  proved {proved:7}  {proved / max(true, 1):.2%}")
