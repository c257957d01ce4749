"""Writes into the memory of an input: the rows that are new, not a copy of all.

A key-value cache is an input that a model changes: `cache.index_copy_(2, position, keys)`. Functional ATen
says that as a whole new tensor, to which the input is set at the end. Where nothing else reads the input, the
new tensor *is* the input's memory, and a kernel writes the rows into it:

    y = index_put(x, [None, None, position], keys);  x := y   -->   y = put_in_place(position, keys)  in x

Such a write may be made twice, with the same result. So a call that fails in a later kernel can still run
again in eager, and whatever cannot be done so is copied to the input after everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..ir import DTYPES
from .graph import Graph, Node, Value, values_in
from .outputs import Output
from .own_programs import Names, has_own_program, indent, lanes_of

aten = torch.ops.aten
PUTS = {aten.index_put.default, aten._unsafe_index_put.default}
ROWS = aten.index_copy.default  # indices that do not count from the end


def write_in_place(graph: Graph, outputs: Sequence[Output]) -> None:
    """Let puts into inputs that are changed by nothing else be in place. `outputs` are those of the graph.

    >>> graph = Graph()
    >>> x, at, row = graph.input("x", (8, 4)), graph.input("at", (1,), "int64"), graph.input("row", (1, 4))
    >>> y = graph.call(aten.index_put.default, x, [at], row)
    >>> graph.outputs, graph.written = [graph.call(aten.neg.default, y), y], [x]
    >>> write_in_place(graph, [Output(v, v) for v in graph.outputs])
    >>> print(graph)
    graph(x: float32[8, 4], at: int64[1], row: float32[1, 4])
      put_in_place: float32[8, 4] = put_in_place([at], row, True)
      neg: float32[8, 4] = aten.neg.default(put_in_place)
      return neg, put_in_place
    """
    if not graph.written:
        return
    forward_copies(graph)
    first = len(graph.outputs) - len(graph.written)
    changes = graph.outputs[first:]
    for number, (x, y) in enumerate(zip(graph.written, changes), first):
        if outputs[number].views or not isinstance(y, Value) or not is_put_into(graph, x, y, changes):
            continue
        if sum(v is y for v in graph.outputs) > 1:
            continue
        new = replace_put(graph, y.node)
        graph.in_place[new] = x
    graph.prune()


def forward_copies(graph: Graph) -> None:
    """Let who reads a copy over a piece of a tensor read what is copied: the piece itself is not needed."""
    for node in list(graph.nodes):
        is_copy = node.target is aten.copy.default and node.args[0].spec == node.args[1].spec
        if is_copy and node.result not in graph.outputs:
            graph.replace(node.result, node.args[1])
    graph.prune()


def is_put_into(graph: Graph, x: Value, y: Value, changes: Sequence[Any]) -> bool:
    """Whether `y` is `x` with some elements replaced, and no node and none of the `changes` of inputs reads
    `x`. Who returns it, or a view of it, returns its memory."""
    node = y.node
    if node is None or not node.args or node.args[0] is not x or y.spec != x.spec or x.dtype not in DTYPES:
        return False
    alone = graph.readers(x) == [node] and x not in values_in([node.args[1:], changes])
    if not alone or not math.prod(x.shape):
        return False
    if node.target in PUTS:
        given, values = node.args[1:3]
        indices = [v for v in given if v is not None]
        integers = all(v.dtype in ("int32", "int64") for v in indices)
        return bool(indices) and integers and not accumulates(node) and math.prod(values.shape) > 0
    if node.target is ROWS:
        _, dim, index, values = node.args
        rows = replace_extent(x.shape, dim, index.shape)
        return len(index.shape) == 1 and values.shape == rows and math.prod(rows) > 0
    return node.target in (aten.slice_scatter.default, aten.select_scatter.default)


def accumulates(node: Node) -> bool:
    return bool(node.kwargs.get("accumulate", node.args[3] if len(node.args) > 3 else False))


def replace_put(graph: Graph, node: Node | None) -> Value:
    assert node is not None
    old = node.result
    if node.target in PUTS:
        new = graph.call("put_in_place", *node.args[1:3], True, results=[old.spec], before=node)
    elif node.target is ROWS:
        _, dim, index, values = node.args
        indices = [None] * (dim % len(old.shape)) + [index]
        new = graph.call("put_in_place", indices, values, False, results=[old.spec], before=node)
    else:
        new = graph.call("copy_in_place", node.args[1], region_of(node), results=[old.spec], before=node)
    graph.replace(old, new)
    return new


def replace_extent(shape: Sequence[int], dim: int, extents: Sequence[int]) -> tuple[int, ...]:
    """
    >>> replace_extent((8, 4, 2), 1, (3,))
    (8, 3, 2)
    """
    at = dim % len(shape)
    return (*shape[:at], *extents, *shape[at + 1 :])


def region_of(node: Node) -> list[tuple[int, int] | None]:
    """Where each dimension of a scattered piece begins and how far apart its elements are; the extent of a
    dimension that it does not have is None, behind where it is."""
    x, piece, *rest = node.args
    names = ["dim", "start", "end", "step"] if node.target is aten.slice_scatter.default else ["dim", "index"]
    given = dict(zip(names, rest)) | node.kwargs
    dim = given.get("dim", 0) % len(x.shape)
    region: list[Any] = [(0, 1)] * len(x.shape)
    if node.target is aten.select_scatter.default:
        region[dim] = (given["index"] % x.shape[dim], None)
    else:
        start = slice(given.get("start"), None).indices(x.shape[dim])[0]
        region[dim] = (start, given.get("step", 1))
    return region


@has_own_program("put_in_place")
def put_rows(node: Node, names: Names) -> str:
    """Elements in row-major order of the index tensors: of two that go to the same place the later stays.
    Indices may count from the end if the last argument says so."""
    indices, values, from_end = node.args
    shape = node.result.shape
    given = {d: at for d, at in enumerate(indices) if at is not None}
    places = tuple(torch.broadcast_shapes(*[at.shape for at in given.values()]))
    kept = [d for d in range(len(shape)) if d not in given]
    adjacent = list(given) == list(range(min(given), max(given) + 1))
    first = min(given) if adjacent else 0
    loops = [(f"p{n}", extent, "reduce") for n, extent in enumerate(places)]
    loops += [(f"k{d}", shape[d], "spatial") for d in kept]
    place = [f"p{n}" for n in range(len(places))]
    rest = [f"k{d}" for d in kept]
    target = [f"k{d}" for d in range(len(shape))]
    for d, at in given.items():
        number = element(names[at], at.shape, place)
        target[d] = f"T.select({number} < 0, {number} + {shape[d]}, {number})" if from_end else number
    source = element(names[values], values.shape, [*rest[:first], *place, *rest[first:]])
    return write_loops(loops, f"y0[{', '.join(target)}] = {source}")


@has_own_program("copy_in_place")
def copy_piece(node: Node, names: Names) -> str:
    piece, region = node.args
    loops = [(f"k{n}", extent, "spatial") for n, extent in enumerate(piece.shape)]
    own = iter([name for name, _, _ in loops])
    target = [str(start) if step is None else f"{next(own)} * {step} + {start}" for start, step in region]
    source = element(names[piece], piece.shape, [name for name, _, _ in loops])
    return write_loops(loops, f"y0[{', '.join(target)}] = {source}")


def element(name: str, shape: Sequence[int], index: Sequence[str]) -> str:
    """An element of a tensor that is broadcast to the place `index`."""
    own = index[len(index) - len(shape) :]
    return f"{name}[{', '.join('0' if n == 1 else i for i, n in zip(own, shape)) or '()'}]"


def write_loops(loops: Sequence[tuple[str, int, str]], store: str) -> str:
    """The store in loops; the last dimension is a vector as far as it goes."""
    lines: list[str] = []
    last = loops[-1] if loops and loops[-1][2] == "spatial" else None
    lanes = lanes_of(last[1]) if last else 1
    bindings: dict[str, str] = {}
    depth = 0
    for name, extent, _ in loops:
        inner = lanes if last and name == last[0] else 1
        lines.append(f"{'    ' * depth}for {name}_o in range({extent // inner}):")
        bindings[name] = f"{name}_o"
        depth += 1
    if last:
        lines.append(f"{'    ' * depth}for z in T.vectorized({lanes}):")
        bindings[last[0]] += f" * {lanes} + z"
        depth += 1
    block = ['with T.block("put"):']
    block += indent(
        [f"{name} = T.{kind}({extent}, {bindings[name]})" for name, extent, kind in loops] + [store]
    )
    return "\n".join([*lines, *[f"{'    ' * depth}{line}" for line in block]])
