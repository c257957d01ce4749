"""Views and permutations one after the other become one, or none."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..graph import Graph, Node, Value
from ..lowering import LOWERINGS, Kind

aten = torch.ops.aten
permute, view = aten.permute.default, aten.reshape.default  # unlike `view` for any strides
PERMUTING = {permute, aten.transpose.int, aten.t.default}


def simplify_views(graph: Graph) -> None:
    """A view reads what the view before it reads, a permutation what the permutation before it reads; one
    that changes nothing goes away, unless it is an output, which shares no memory. A permutation that moves
    only dimensions of extent 1 is a view. There is one operator for each left, `reshape` and `permute`.

    >>> graph = Graph()
    >>> x = graph.input("x", (2, 3, 4))
    >>> y = graph.call(permute, x, [2, 0, 1])
    >>> z = graph.call(aten.transpose.int, graph.call(permute, y, [1, 2, 0]), 0, 1)
    >>> graph.outputs = [graph.call(aten.relu.default, graph.call(aten.clone.default, z))]
    >>> simplify_views(graph)
    >>> print(graph)
    graph(x: float32[2, 3, 4])
      permute_2: float32[3, 2, 4] = aten.permute.default(x, [1, 0, 2])
      relu: float32[3, 2, 4] = aten.relu.default(permute_2)
      return relu
    """
    for node in list(graph.nodes):
        if not node.results or node.result in graph.outputs:
            continue
        if is_view(node):
            new = collapse_views(graph, node, node.reads[0])
        elif node.target in PERMUTING:
            new = collapse_permutes(graph, node)
        elif node.target is aten.expand.default and node.reads[0].spec == node.result.spec:
            new = node.reads[0]
        else:
            continue
        if new is not node.result:
            graph.replace(node.result, new)
    graph.prune()


def is_view(node: Node) -> bool:
    return node.target in LOWERINGS and LOWERINGS[node.target].kind is Kind.VIEW


def collapse_views(graph: Graph, node: Node, source: Value) -> Value:
    if source.node is not None and source.node.target is view:
        source = source.node.args[0]
    if source.spec == node.result.spec:
        return source
    if source is node.reads[0] and node.target is view:
        return node.result
    return graph.call(view, source, list(node.result.shape), before=node)


def collapse_permutes(graph: Graph, node: Node) -> Value:
    source, order = node.args[0], order_of(node)
    if source.node is not None and source.node.target is permute:
        first = order_of(source.node)
        source, order = source.node.args[0], [first[d] for d in order]
    if keeps_order_in_memory(source.shape, order):
        return collapse_views(graph, node, source)
    if source is node.reads[0] and node.target is permute:
        return node.result
    return graph.call(permute, source, order, before=node)


def order_of(node: Node) -> list[int]:
    """Which dimension of its input each dimension of a permutation is."""
    rank = len(node.result.shape)
    if node.target is permute:
        return [d % rank for d in node.args[1]]
    order = list(range(rank))
    if rank > 1:  # `t` has no dimensions among its arguments: it takes matrices, and vectors as they are
        a, b = node.args[1:] or (0, 1)
        order[a], order[b] = order[b], order[a]
    return order


def keeps_order_in_memory(shape: Sequence[int], order: Sequence[int]) -> bool:
    moved = [d for d in order if shape[d] != 1]
    return moved == sorted(moved)


def shape_behind(before: Sequence[int], after: Sequence[int], own: Sequence[int]) -> list[int] | None:
    """The shape of a parameter of shape `own` behind a view of what it is broadcast to.

    >>> shape_behind((2, 3, 4), (6, 4), (1, 1, 4)), shape_behind((2, 3, 4), (6, 4), (2, 1, 1))
    ([1, 4], None)
    """
    if not math.prod(before):
        return None
    found: list[int] = []
    i = j = 0
    while i < len(before) or j < len(after):
        a, b = i, j
        i, j = i + 1, j + 1
        while math.prod(before[a:i]) != math.prod(after[b:j]):
            if math.prod(before[a:i]) < math.prod(after[b:j]):
                i += 1
            else:
                j += 1
        part, whole = own[a:i], before[a:i]
        if math.prod(part) == 1:
            found += [1] * len(after[b:j])
        elif list(part) == list(whole):
            found += after[b:j]
        else:
            return None
    return found
