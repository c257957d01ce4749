"""Random nests of loops with random accesses, and what they touch by enumeration: the oracle of these tests.

`draw_nest(rng)` gives a schedule of two blocks, `first` (which stores to X) and `second` (which reads X and
stores to Y), under some loops in common, after random splits, fuses and reorderings. Indices are sums of
iterators with factors: strided, reversed, diagonal, padded, shifted; some are gathered through a table.
Everything is small enough to list every instance.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import metaschedule as ms
from metaschedule import ir
from metaschedule.schedule import Schedule
from metaschedule.schedule.state import State

Point = Mapping[ir.Var, int]
MOST_INSTANCES = 1500

# --- programs -------------------------------------------------------------------------------------


@dataclass
class Index:
    """A sum of iterators with factors, as text, and its least and greatest value."""

    text: str
    low: int
    high: int


def draw_index(rng: random.Random, iters: Mapping[str, int]) -> Index:
    """One index over iterators of these extents."""
    names = list(iters)
    count = rng.choice((1, 1, 1, 2, 2, 3))
    parts, low, high = list[str](), 0, 0
    for name in rng.sample(names, min(count, len(names))):
        factor = rng.choice((1, 1, 1, 1, 2, 3, -1, -2, iters[rng.choice(names)]))
        if not factor:
            continue
        reach = factor * (iters[name] - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
        parts.append(f"{name} * {factor}" if factor != 1 else name)
    way = rng.randrange(12)
    text = " + ".join(parts) or "0"
    if way == 0 and parts and low >= 0:
        divisor = rng.choice((2, 3, 4))
        if rng.random() < 0.5:
            return Index(f"({text}) // {divisor}", low // divisor, high // divisor)
        return Index(f"({text}) % {divisor}", 0, divisor - 1)
    if way == 1 and parts:
        limit = rng.randint(0, max(high, 1))
        return Index(f"T.min({text}, {limit})", min(low, limit), min(high, limit))
    return Index(text, low, high)


def draw_access(rng: random.Random, iters: Mapping[str, int], rank: int) -> list[Index]:
    """An access of so many dimensions; all iterators plainly in order is as likely as any other."""
    if rng.random() < 0.3:
        names = rng.sample(list(iters), min(rank, len(iters)))
        plain = [Index(name, 0, iters[name] - 1) for name in names]
        return plain + [Index("0", 0, 0)] * (rank - len(plain))
    return [draw_index(rng, iters) for _ in range(rank)]


def placed(accesses: list[list[Index]]) -> tuple[list[list[str]], tuple[int, ...]]:
    """The texts of accesses to one buffer, moved so that none is negative; and the shape that holds them."""
    shape: list[int] = []
    columns: list[list[str]] = []
    for column in zip(*accesses, strict=True):
        low = min(0, *[index.low for index in column])
        shape.append(max([index.high for index in column]) - low + 1)
        columns.append([f"{index.text} + {-low}" if low else index.text for index in column])
    return [list(row) for row in zip(*columns, strict=True)], tuple(shape)


def draw_text(rng: random.Random) -> str:
    """A script of two blocks in loops, some of them in common."""
    common = [rng.randint(1, 6) for _ in range(rng.choice((0, 1, 1, 2)))]
    own = [[rng.randint(1, 6) for _ in range(rng.choice((0, 1, 1, 2)))] for _ in range(2)]
    if not common:
        own = [some or [rng.randint(2, 6)] for some in own]
    blocks: list[tuple[list[str], dict[str, int], list[str], dict[str, str]]] = []
    for number, extents in enumerate(own):
        loops = {f"l{n}": size for n, size in enumerate(common)}
        loops |= {f"m{number}{n}": size for n, size in enumerate(extents)}
        iters: dict[str, int] = {}
        bound: dict[str, str] = {}
        for n, (loop, size) in enumerate(loops.items()):
            if rng.random() < 0.12 and n + 1 < len(loops):
                continue  # a loop that repeats
            iters[f"i{number}{n}"] = size
            bound[f"i{number}{n}"] = loop
        if not iters:
            loop, size = next(iter(loops.items()))
            iters, bound = {f"i{number}0": size}, {f"i{number}0": loop}
        tests: list[str] = []
        if rng.random() < 0.25:
            names = rng.sample(list(bound.values()), min(len(bound), rng.choice((1, 2))))
            total = " + ".join(f"{name} * {rng.choice((1, 1, 2, 3))}" for name in names)
            tests.append(f"{total} < {rng.randint(2, 9)}")
        blocks.append(([*loops], iters, tests, bound))
    rank = rng.choice((1, 1, 2, 2, 3))
    (_, first, _, _), (_, second, _, _) = blocks
    stored, read = draw_access(rng, first, rank), draw_access(rng, second, rank)
    if rng.random() < 0.35:  # the second block reads just what the first stores, or a neighbour of it
        names = dict(zip(first, [*second, *[next(iter(second))] * len(first)]))
        if all(first[a] >= second[b] for a, b in names.items()) and len(first) <= len(second):
            shift = rng.choice((0, 0, 0, 1))
            read = [Index(renamed(index.text, names), index.low, index.high + shift) for index in stored]
            if shift and rank:
                read[0] = Index(f"{read[0].text} + 1", read[0].low + 1, read[0].high)
    (x_store, x_load), x_shape = placed([stored, read])
    (y_store,), y_shape = placed([draw_access(rng, second, rng.choice((1, 2)))])
    gathered = rng.random() < 0.08
    if gathered:
        x_load[0] = f"Table[{x_load[0]}]"
    lines = [
        f"def nest(Z: T.Tensor((1,), 'int32'), Table: T.Tensor(({x_shape[0]},), 'int64'), "
        f"X: T.Output({x_shape}, 'int32'), Y: T.Output({y_shape}, 'int32')):"
    ]
    pad = "    "
    for n, size in enumerate(common):
        lines.append(f"{pad}for l{n} in range({size}):")
        pad += "    "
    for number, ((_, iters, tests, bound), extents) in enumerate(zip(blocks, own, strict=True)):
        inner = pad
        for n, size in enumerate(extents):
            lines.append(f"{inner}for m{number}{n} in range({size}):")
            inner += "    "
        lines.append(f"{inner}with T.block('{('first', 'second')[number]}'):")
        inner += "    "
        lines += [f"{inner}{name} = T.spatial({size}, {bound[name]})" for name, size in iters.items()]
        lines += [f"{inner}T.where({test})" for test in tests]
        if number == 0:
            lines.append(f"{inner}X[{', '.join(x_store)}] = Z[0]")
        else:
            lines.append(f"{inner}Y[{', '.join(y_store)}] = X[{', '.join(x_load)}]")
    return "\n".join(lines)


def renamed(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, f"<{new}>")
    return text.replace("<", "").replace(">", "")


def draw_nest(rng: random.Random) -> Schedule:
    """A schedule whose loops have been split, fused and reordered."""
    while True:
        sch = Schedule(ms.parse(draw_text(rng)))
        for _ in range(rng.choice((0, 1, 2, 3, 4))):
            block = sch.get_block(rng.choice(("first", "second")))
            loops = sch.get_loops(block)
            at = rng.randrange(len(loops))
            try:
                match rng.choice(("split", "split", "fuse", "fuse", "reorder")):
                    case "split":
                        factor = rng.choice((2, 2, 3, 4, 5))
                        sch.split(loops[at], [None, factor] if rng.random() < 0.8 else [factor, None])
                    case "fuse":
                        sch.fuse(*loops[at : at + 2])
                    case _:
                        sch.reorder(*rng.sample(loops[at : at + 3], len(loops[at : at + 3])))
            except ms.ScheduleError:
                continue
        if all(count_instances(sch.state, name) <= MOST_INSTANCES for name in ("first", "second")):
            return sch


def count_instances(s: State, name: str) -> int:
    total = 1
    for var in s.loops_around(name):
        total *= s.fixed_extent(var) or 0
    return total


# --- by enumeration -------------------------------------------------------------------------------

Element = tuple[int, ...]


@dataclass
class Instance:
    """One run of a block: the loops around it, and what it reads and stores."""

    loops: tuple[int, ...]
    reads: dict[ir.Buffer, frozenset[Element]]
    writes: dict[ir.Buffer, frozenset[Element]]

    def touches(self, buffer: ir.Buffer, is_write: bool) -> frozenset[Element]:
        return (self.writes if is_write else self.reads).get(buffer, frozenset())


def instances(s: State, name: str) -> list[Instance]:
    """All runs of a block, in order."""
    block: ir.Block = s.nodes[name]
    loops = s.loops_around(name)
    extents = [s.fixed_extent(v) or 0 for v in loops]
    at = {v: f"p[{n}]" for n, v in enumerate(loops)}
    bindings = [compiled(s.resolve(e), at) for e in block.bindings]
    tests = [compiled(s.resolve(e), at) for e in block.predicate]
    own = {it.var: f"p[{n}]" for n, it in enumerate(block.iters)}
    reads = [compiled_region(r, own) for r in block.reads if r.buffer.name == "X"]
    writes = [compiled_region(r, own) for r in block.writes]
    found: list[Instance] = []
    for point in itertools.product(*[range(n) for n in extents]):
        if all(test(point) for test in tests):
            values = tuple([b(point) for b in bindings])
            found.append(Instance(point, elements(reads, values), elements(writes, values)))
    return found


def points_of(block: ir.Block, region: ir.Region) -> list[list[int]]:
    """The first indices of a region at every point of a block's iterators."""
    own = {it.var: f"p[{n}]" for n, it in enumerate(block.iters)}
    _, ranges = compiled_region(region, own)
    points = itertools.product(*[range(ir.as_int(it.extent) or 0) for it in block.iters])
    return [[start(point) for start, _ in ranges] for point in points]


def elements(regions: list[Any], values: tuple[int, ...]) -> dict[ir.Buffer, frozenset[Element]]:
    found: dict[ir.Buffer, frozenset[Element]] = {}
    for buffer, ranges in regions:
        spans = [range(start(values), start(values) + count(values)) for start, count in ranges]
        found[buffer] = found.get(buffer, frozenset()) | frozenset(itertools.product(*spans))
    return found


def compiled_region(region: ir.Region, own: Mapping[ir.Var, str]) -> tuple[ir.Buffer, list[tuple[Any, Any]]]:
    return region.buffer, [(compiled(a, own), compiled(b, own)) for a, b in region.ranges]


def compiled(e: ir.Expr, names: Mapping[ir.Var, str]) -> Any:
    return made_of(python_text(e, names))


@lru_cache(maxsize=65536)
def made_of(text: str) -> Any:
    return eval(f"lambda p: {text}")


def python_text(e: ir.Expr, names: Mapping[ir.Var, str]) -> str:
    if isinstance(e, ir.Var):
        return names[e]
    if isinstance(e, ir.Const):
        return repr(e.value)
    if isinstance(e, ir.Binary):
        a, b = python_text(e.a, names), python_text(e.b, names)
        return f"{e.op}({a}, {b})" if e.op in ("min", "max") else f"({a} {e.op} {b})"
    if isinstance(e, ir.Unary):
        return f"({e.op} {python_text(e.a, names)})"
    raise TypeError(f"no index that is enumerated has {type(e).__name__}: {e}")
