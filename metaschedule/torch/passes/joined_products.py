"""Products of several matrices with the same weights become one product.

A recurrence multiplies x[0], x[1], ... by the weights of its input, one after the other, although they are
all there from the start. Joined they are one product, which reads its weights once: where the matrices are
parts of one tensor it is that of the whole tensor, otherwise, if they have few rows, of all one below the
other. So the second of two cells, one upon the other, waits for all steps of the first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch

from ..graph import Graph, Node, Value
from .common import hashable
from .views import view

aten = torch.ops.aten
ROWS_AT: dict[Any, int] = {
    aten.mm.default: 0,
    aten.addmm.default: 1,
    aten.linear.default: 0,
}  # among the arguments
FEW_ROWS = 16  # of a matrix that is copied: so many are multiplied in about the time of one
LEAST_SHARE = 0.5  # of a tensor, whose parts are multiplied; the others would be for nothing


def join_products(graph: Graph) -> None:
    """
    >>> graph = Graph()
    >>> x, w = graph.input("x", (2, 1, 3)), graph.input("w", (3, 5))
    >>> rows = [graph.call(aten.select.int, x, 0, t) for t in range(2)]
    >>> graph.outputs = [graph.call(aten.neg.default, graph.call(aten.mm.default, r, w)) for r in rows]
    >>> join_products(graph)
    >>> print(graph)
    graph(x: float32[2, 1, 3], w: float32[3, 5])
      reshape: float32[2, 3] = aten.reshape.default(x, [2, 3])
      mm_2: float32[2, 5] = aten.mm.default(reshape, w)
      reshape_1: float32[2, 1, 5] = aten.reshape.default(mm_2, [2, 1, 5])
      select_2: float32[1, 5] = aten.select.int(reshape_1, 0, 0)
      neg: float32[1, 5] = aten.neg.default(select_2)
      select_3: float32[1, 5] = aten.select.int(reshape_1, 0, 1)
      neg_1: float32[1, 5] = aten.neg.default(select_3)
      return neg, neg_1
    """
    families: defaultdict[Any, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.target in ROWS_AT and has_same_rows(node) and node.result not in graph.outputs:
            families[family_of(node)].append(node)
    for family in families.values():
        for parts in parts_of_tensors(family):
            join_parts(graph, *parts)
        left = set(graph.nodes)
        few = [node for node in family if node in left and count_rows(node) <= FEW_ROWS]
        if not any(node.has_effect for node in graph.nodes):  # those stay in their order
            for independent in levels(graph, few):
                join_rows(graph, independent)


def has_same_rows(node: Node) -> bool:
    """Whether each row of the result depends on the same row of the matrix, and the same of all else."""
    rows = node.args[ROWS_AT[node.target]]
    shared = [v for v in node.reads if v is not rows]
    added = node.args[0] if node.target is aten.addmm.default else None
    return len(shared) == len(node.reads) - 1 and (added is None or math.prod(added.shape[:-1]) == 1)


def family_of(node: Node) -> Any:
    """What products that can be joined share: everything but the rows."""
    at = ROWS_AT[node.target]
    others = (*node.args[:at], *node.args[at + 1 :])
    rows = node.args[at]
    return node.target, rows.dtype, hashable(others), hashable(sorted(node.kwargs.items()))


def rows_of(node: Node) -> Value:
    return node.args[ROWS_AT[node.target]]


def count_rows(node: Node) -> int:
    return math.prod(rows_of(node).shape[:-1])


Part = tuple[Node, int]  # a product, and which part of the tensor it is of


def parts_of_tensors(family: Iterable[Node]) -> list[tuple[Value, int, list[Part]]]:
    """The products of parts of tensors along a dimension, if there are enough of the tensor."""
    found: defaultdict[tuple[Value, int], list[Part]] = defaultdict(list)
    for node in family:
        part = part_of_tensor(rows_of(node))
        if part is not None:
            whole, dim, index = part
            found[whole, dim].append((node, index))
    return [
        (whole, dim, parts)
        for (whole, dim), parts in found.items()
        if len(parts) > 1 and len({n for _, n in parts}) >= LEAST_SHARE * whole.shape[dim]
    ]


def part_of_tensor(rows: Value) -> tuple[Value, int, int] | None:
    """The tensor that rows are `select`ed from, in which dimension, and where."""
    node = rows.node
    if node is not None and node.target is view:
        node = node.args[0].node
    if node is None:
        return None
    if node.target not in (aten.select.int, aten.slice.Tensor) or len(node.args) < 3 or node.args[2] is None:
        return None
    whole, dim, index = node.args[0], node.args[1] % len(node.args[0].shape), node.args[2]
    if node.target is aten.slice.Tensor and node.result.shape[dim] != 1:
        return None
    if dim == len(whole.shape) - 1 or node.result.shape[-1] != rows.shape[-1]:
        return None
    return whole, dim, index % whole.shape[dim]


def join_parts(graph: Graph, whole: Value, dim: int, parts: list[Part]) -> None:
    """The product of a whole tensor instead of those of its parts."""
    first = parts[0][0]
    joined = multiply(graph, first, graph.call(view, whole, row_shape(whole), before=first), first)
    width = joined.shape[-1]
    spread = graph.call(view, joined, [*whole.shape[:-1], width], before=first)
    for node, index in parts:
        part = graph.call(aten.select.int, spread, dim, index, before=node)
        if part.shape != node.result.shape:
            part = graph.call(view, part, list(node.result.shape), before=node)
        graph.replace(node.result, part)
    graph.prune()


def row_shape(value: Value) -> list[int]:
    return [math.prod(value.shape[:-1]), value.shape[-1]]


def multiply(graph: Graph, like: Node, rows: Value, before: Node) -> Value:
    """A product like another one, of other rows."""
    args = list(like.args)
    args[ROWS_AT[like.target]] = rows
    return graph.call(like.target, *args, before=before, **like.kwargs)


def levels(graph: Graph, nodes: list[Node]) -> list[list[Node]]:
    """Nodes of which none needs another, together: those behind as many others of them."""
    if len(nodes) < 2:
        return []
    chosen = set(nodes)
    behind: dict[Node, int] = {}  # the most of them one behind the other, up to here
    for node in graph.nodes:
        before = [behind[v.node] for v in node.reads if v.node is not None]
        behind[node] = max(before, default=0) + (node in chosen)
    found: defaultdict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        found[behind[node]].append(node)
    return [level for level in found.values() if len(level) > 1]


def join_rows(graph: Graph, products: list[Node]) -> None:
    """One product of all rows, one below the other."""
    last = max(products, key=graph.nodes.index)
    rows = [rows_of(node) for node in products]
    flat = [graph.call(view, v, row_shape(v), before=last) for v in rows]
    joined = multiply(graph, last, graph.call(aten.cat.default, flat, before=last), last)
    start = 0
    for node in products:
        count = count_rows(node)
        part = graph.call(aten.slice.Tensor, joined, 0, start, start + count, before=last)
        start += count
        graph.replace(node.result, graph.call(view, part, list(node.result.shape), before=last))
    graph.prune()
    sort_nodes(graph)


def sort_nodes(graph: Graph) -> None:
    """The nodes in an order in which they can run, otherwise as they stand."""
    done: dict[Node, None] = {}
    for node in graph.nodes:
        waiting = [node]
        while waiting:
            before = [v.node for v in waiting[-1].reads if v.node is not None and v.node not in done]
            if before and waiting[-1] not in done:
                waiting += before[::-1]
            else:
                done.setdefault(waiting.pop())
    graph.nodes = list(done)
