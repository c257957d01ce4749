"""Operators that go over their elements in order: sums to places that a tensor tells, running sums.

A tensor expression computes each element by itself. An element of `index_add` would ask every source whether
it goes there, one of `cumsum` would add up all before it: quadratic work, which `lowerings/scatter.py` and
`lowerings/running.py` do where it is little and may then be part of a larger kernel. Where it is much, a
program of our own goes over the sources once. Dimensions without an index are independent of each other:
their rows are vectors, and run in parallel.

1,500 rows of 64 floats added to 300 places take 8 us on two cores of Zen 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..ir import DTYPES, highest, lowest
from .dtypes import accumulator
from .graph import Graph, Node, Value
from .in_place import element, replace_extent
from .lowerings.running import LONGEST_CUMULATED
from .lowerings.scatter import MOST_QUESTIONS, SYNONYMS
from .own_programs import Names, has_own_program, indent, lanes_of

aten = torch.ops.aten

SUMMED = ("float32", "float64", "int32", "int64")  # others torch rounds at each step
WORTH_THREADS = 1 << 13  # elements: fewer are faster on one thread
CHUNKS = 8  # of a row, at most, that run in parallel
Arguments = Mapping[str, Any]


def go_in_order(graph: Graph) -> None:
    """Let operators with quadratic lowerings go over their elements in order, where these are many.

    >>> graph = Graph()
    >>> x, at, y = graph.input("x", (300, 4)), graph.input("at", (999,), "int64"), graph.input("y", (999, 4))
    >>> graph.outputs = [graph.call(aten.index_put.default, x, [at], y, True)]
    >>> go_in_order(graph)
    >>> print(graph)
    graph(x: float32[300, 4], at: int64[999], y: float32[999, 4])
      put_in_order: float32[300, 4] = put_in_order(x, [at], y, 'add', True)
      return put_in_order
    """
    for node in list(graph.nodes):
        rewriting = REWRITINGS.get(node.target)
        if rewriting is None or isinstance(node.target, str):
            continue
        if math.prod(node.result.shape) and len(node.result.shape):
            schema = node.target._schema.arguments
            given = {a.name: a.default_value for a in schema} | dict(zip([a.name for a in schema], node.args))
            call = rewriting(graph, node, given | node.kwargs)
            if call is not None:
                target, *args = call
                new = graph.call(target, *args, results=[node.result.spec], before=node)
                graph.replace(node.result, new)
    graph.prune()


def rewrite_put(graph: Graph, node: Node, given: Arguments) -> tuple[Any, ...] | None:
    x, indices, values = given["self"], given["indices"], given["values"]
    at = {d: v for d, v in enumerate(indices) if v is not None}
    how = "add" if given["accumulate"] else "replace"
    if any(v.dtype not in ("int32", "int64") for v in at.values()) or not is_computed(x, how):
        return None
    sources = math.prod(torch.broadcast_shapes(*[v.shape for v in at.values()]))
    asked = x.shape if how == "add" else [x.shape[d] for d in at]
    if not sources or math.prod(asked) * sources <= MOST_QUESTIONS:
        return None
    return "put_in_order", filled(x), list(indices), values, how, True


def rewrite_rows(graph: Graph, node: Node, given: Arguments) -> tuple[Any, ...] | None:
    x, index, source = given["self"], given["index"], given["source"]
    dim, alpha = given["dim"] % len(x.shape), given.get("alpha", 1)
    how = "add" if node.target is aten.index_add.default else "replace"
    rows = replace_extent(x.shape, dim, index.shape)
    if len(index.shape) != 1 or source.shape != rows or not math.prod(rows) or not is_computed(x, how):
        return None
    asked = math.prod(x.shape) if how == "add" else x.shape[dim]
    if asked * index.shape[0] <= MOST_QUESTIONS:
        return None
    if alpha != 1:
        source = graph.call(aten.mul.Tensor, source, alpha, results=[source.spec], before=node)
    return "put_in_order", filled(x), [None] * dim + [index], source, how, False


def rewrite_scatter(graph: Graph, node: Node, given: Arguments) -> tuple[Any, ...] | None:
    x, index = given["self"], given["index"]
    source = given.get("src", given.get("value"))
    how = given.get("reduce") or ("add" if node.target is aten.scatter_add.default else "replace")
    how = SYNONYMS.get(how, how)
    how = "add" if how == "sum" else how
    dim = given["dim"] % len(x.shape)
    if how not in COMBINE or not is_computed(x, how) or len(index.shape) != len(x.shape):
        return None
    if not math.prod(index.shape) or math.prod(x.shape) * index.shape[dim] <= MOST_QUESTIONS:
        return None
    if not given.get("include_self", True):
        return "scatter_in_order", filled(x), dim, index, source, how, True
    row = row_of(index, dim)
    rows = (*x.shape[:dim], index.shape[dim], *x.shape[dim + 1 :])
    if row is not None and isinstance(source, Value) and source.shape == index.shape == rows:
        at = graph.call(aten.reshape.default, row, [index.shape[dim]], before=node)
        return "put_in_order", filled(x), [None] * dim + [at], source, how, False
    return "scatter_in_order", filled(x), dim, index, source, how, False


def rewrite_running(graph: Graph, node: Node, given: Arguments) -> tuple[Any, ...] | None:
    x, dim = given["self"], given["dim"] % len(node.result.shape)
    known = x.dtype in DTYPES and node.result.dtype in DTYPES
    if not known or x.shape[dim] <= LONGEST_CUMULATED:
        return None
    return "run_in_order", x, dim, "add" if node.target is aten.cumsum.default else "prod"


Rewriting = Callable[[Graph, Node, Arguments], tuple[Any, ...] | None]
REWRITINGS: dict[Any, Rewriting] = {
    **dict.fromkeys((aten.index_put.default, aten._unsafe_index_put.default), rewrite_put),
    **dict.fromkeys((aten.index_add.default, aten.index_copy.default), rewrite_rows),
    **dict.fromkeys((aten.scatter.src, aten.scatter.value, aten.scatter_add.default), rewrite_scatter),
    **dict.fromkeys(
        (aten.scatter.reduce, aten.scatter.value_reduce, aten.scatter_reduce.two), rewrite_scatter
    ),
    **dict.fromkeys((aten.cumsum.default, aten.cumprod.default), rewrite_running),
}
# What becomes of an element by one more source, and what it is before the first if it does not count itself.
COMBINE: dict[str, Callable[[str, str], str]] = {
    "replace": lambda own, new: new,
    "add": lambda own, new: f"{own} + {new}",
    "prod": lambda own, new: f"{own} * {new}",
    "amax": lambda own, new: f"T.max({own}, {new})",
    "amin": lambda own, new: f"T.min({own}, {new})",
}


def nothing(how: str, dtype: str) -> float:
    if how in ("add", "prod"):
        return 0 if how == "add" else 1
    return lowest(dtype) if how == "amax" else highest(dtype)


def is_computed(x: Value, how: str) -> bool:
    return x.dtype in (DTYPES if how == "replace" else SUMMED)


def filled(x: Value) -> Value | float:
    """The number that all elements are, where that is known."""
    known = x.node is not None and x.node.target is aten.full.default
    return x.node.args[1] if known and x.node is not None else x


def row_of(index: Value, dim: int) -> Value | None:
    """What the index of a scatter repeats, if it is the same in all other dimensions."""
    node = index.node
    if node is None or node.target is not aten.expand.default:
        return None
    row = node.args[0]
    own = [n for d, n in enumerate(row.shape, len(index.shape) - len(row.shape)) if d != dim]
    return row if math.prod(own) == 1 and math.prod(row.shape) == index.shape[dim] else None


@has_own_program("put_in_order")
def put(node: Node, names: Names) -> str:
    """Sources in row-major order of the index tensors, a row of the dimensions that have none at a time.
    Indices may count from the end if the last argument says so."""
    x, indices, values, how, from_end = node.args
    shape, dtype = node.result.shape, node.result.dtype
    given = {d: at for d, at in enumerate(indices) if at is not None}
    places = tuple(torch.broadcast_shapes(*[at.shape for at in given.values()]))
    kept = [d for d in range(len(shape)) if d not in given]
    adjacent = list(given) == list(range(min(given), max(given) + 1))
    first = min(given) if adjacent else 0
    place, rest = [f"p{n}" for n in range(len(places))], [f"i{d}" for d in kept]
    target = [f"i{d}" for d in range(len(shape))]
    for d, at in given.items():
        number = element(names[at], at.shape, place)
        target[d] = f"T.select({number} < 0, {number} + {shape[d]}, {number})" if from_end else number
    source = element(names[values], values.shape, [*rest[:first], *place, *rest[first:]])
    own = f"y0[{', '.join(target)}]"
    loops = [Loop(f"i{d}", shape[d], "spatial") for d in kept]
    loops += [Loop(name, extent, "reduce") for name, extent in zip(place, places)]
    return "\n".join([
        copy(x, shape, dtype, names), nest(loops, f"{own} = {COMBINE[how](own, source)}", "put")
    ])  # fmt: skip


@has_own_program("scatter_in_order")
def scatter(node: Node, names: Names) -> str:
    """An element of the index at a time; along `dim` in order."""
    x, dim, index, source, how, anew = node.args
    shape, dtype = node.result.shape, node.result.dtype
    place = [f"i{d}" for d in range(len(shape))]
    value = f"{names[source]}[{', '.join(place)}]" if isinstance(source, Value) else literal(source, dtype)
    target = [*place[:dim], f"{names[index]}[{', '.join(place)}]", *place[dim + 1 :]]
    own = f"y0[{', '.join(target)}]"
    loops = [Loop(p, n, "spatial") for d, (p, n) in enumerate(zip(place, index.shape)) if d != dim]
    loops.append(Loop(place[dim], index.shape[dim], "reduce"))
    steps = [copy(x, shape, dtype, names)]
    if anew and how != "replace":
        steps.append(nest(loops, f"{own} = {literal(nothing(how, dtype), dtype)}", "clear", vectors=False))
    steps.append(nest(loops, f"{own} = {COMBINE[how](own, value)}", "scatter", vectors=False))
    return "\n".join(steps)


@has_own_program("run_in_order")
def run(node: Node, names: Names) -> str:
    """Sums of floats in doubles, as torch does."""
    x, dim, how = node.args
    shape, dtype = node.result.shape, node.result.dtype
    wide = "float64" if dtype == "float32" else accumulator(dtype)
    place = [f"i{d}" for d in range(len(shape))]
    rows = [p for d, p in enumerate(place) if d != dim]
    total = f"total[{', '.join(rows) or '0'}]"
    loops = [Loop(p, n, "spatial") for d, (p, n) in enumerate(zip(place, shape)) if d != dim]
    extents = ", ".join(str(loop.extent) for loop in loops) or "1"
    at = ", ".join(place)
    term = cast(f"{names[x]}[{at}]", x.dtype, wide)
    body = f"{total} = {COMBINE[how](total, term)}\ny0[{at}] = {cast(total, wide, dtype)}"
    clear = nest(
        loops or [Loop("i", 1, "spatial")], f"{total} = {literal(nothing(how, wide), wide)}", "clear"
    )
    allocated = f'total = T.alloc(({extents},), "{wide}")'
    return "\n".join([allocated, clear, nest([*loops, Loop(place[dim], shape[dim], "reduce")], body, "run")])


def copy(x: Value | float, shape: Sequence[int], dtype: str, names: Names) -> str:
    """The elements as they are before the first source."""
    place = [f"i{d}" for d in range(len(shape))]
    at = ", ".join(place)
    value = f"{names[x]}[{at}]" if isinstance(x, Value) else literal(x, dtype)
    return nest([Loop(p, n, "spatial") for p, n in zip(place, shape)], f"y0[{at}] = {value}", "copy")


def literal(number: float, dtype: str) -> str:
    """
    >>> literal(2, "float32"), literal(-math.inf, "float64"), literal(True, "bool")
    ('T.float32(2)', 'T.float64("-inf")', 'T.bool(1)')
    """
    special = isinstance(number, float) and not math.isfinite(number)
    return f'T.{dtype}("{number}")' if special else f"T.{dtype}({number + 0!r})"


def cast(value: str, source: str, dtype: str) -> str:
    return value if source == dtype else f'T.cast({value}, "{dtype}")'


class Loop:
    """`kind` is that of the block's variable: what is spatial may run in any order."""

    def __init__(self, name: str, extent: int, kind: str) -> None:
        self.name, self.extent, self.kind = name, extent, kind


def nest(loops: Sequence[Loop], body: str, name: str, vectors: bool = True) -> str:
    """The body, in order along what is reduced, in loops: the outermost spatial one in parallel if there is
    enough to do, the innermost a vector. A row of vectors is divided where it is all there is."""
    spatial = [loop for loop in loops if loop.kind == "spatial"]
    reduced = [loop for loop in loops if loop.kind == "reduce"]
    bindings = {loop.name: loop.name + "_0" for loop in loops}
    lines: list[tuple[str, int, str]] = []  # loop variable, extent, how it runs
    parallel = math.prod(loop.extent for loop in loops) >= WORTH_THREADS
    tail: list[tuple[str, int, str]] = []
    last = spatial.pop() if spatial else None
    if last is not None:
        lanes = lanes_of(last.extent) if vectors else 1
        chunks = last.extent // lanes
        outer = largest_divisor(chunks, CHUNKS) if parallel and not any(s.extent > 1 for s in spatial) else 1
        inner = chunks // outer
        lines += [(f"{last.name}_0", outer, "parallel")] if outer > 1 else []
        tail = [(f"{last.name}_1", inner, "range"), (f"{last.name}_2", lanes, "vectorized")]
        begin = f"{last.name}_0 * {inner} + " if outer > 1 else ""
        bindings[last.name] = f"({begin}{last.name}_1) * {lanes} + {last.name}_2"
    for loop in spatial:
        first = parallel and loop.extent > 1 and all(how == "range" for _, _, how in lines)
        lines.append((f"{loop.name}_0", loop.extent, "parallel" if first else "range"))
    lines += [(f"{loop.name}_0", loop.extent, "range") for loop in reduced] + tail
    ways = {"range": "range", "parallel": "T.parallel", "vectorized": "T.vectorized"}
    text = [
        f"{'    ' * n}for {variable} in {ways[how]}({extent}):"
        for n, (variable, extent, how) in enumerate(lines)
    ]
    block = [f'with T.block("{name}"):']
    block += indent([f"{loop.name} = T.{loop.kind}({loop.extent}, {bindings[loop.name]})" for loop in loops])
    block += indent(body.split("\n"))
    return "\n".join([*text, *[f"{'    ' * len(lines)}{line}" for line in block]])


def largest_divisor(number: int, most: int) -> int:
    """
    >>> largest_divisor(12, 8), largest_divisor(13, 8)
    (6, 1)
    """
    return max(n for n in range(1, most + 1) if number % n == 0)
