"""Operators that cut a tensor into several become one slice for each piece that is read.

A slice can be part of the kernel that reads it; a node with several results is always a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch

from ..graph import Graph, Node, Value

aten = torch.ops.aten


def slice_pieces(graph: Graph) -> None:
    """
    >>> graph = Graph()
    >>> x = graph.input("x", (2, 6))
    >>> graph.outputs = [graph.call(aten.split.Tensor, x, 4, 1).node.results[1]]
    >>> slice_pieces(graph)
    >>> print(graph)
    graph(x: float32[2, 6])
      slice: float32[2, 2] = aten.slice.Tensor(x, 1, 4, 6)
      return slice
    """
    for node in list(graph.nodes):
        if node.target in CUTS:
            place, cut = CUTS[node.target]
            dim = node.args[place] if len(node.args) > place else node.kwargs.get("dim", 0)
            for result in filter(graph.is_read, node.results):
                graph.replace(result, cut(graph, node, result, dim))
    graph.prune()


def piece(graph: Graph, node: Node, result: Value, dim: int) -> Value:
    ends = list(accumulate(v.shape[dim] for v in node.results))
    end = ends[result.index]
    return graph.call(aten.slice.Tensor, node.args[0], dim, end - result.shape[dim], end, before=node)


def select_index(graph: Graph, node: Node, result: Value, dim: int) -> Value:
    return graph.call(aten.select.int, node.args[0], dim, result.index, before=node)


# With the place of `dim` among the arguments.
CUTS: dict[object, tuple[int, Callable[[Graph, Node, Value, int], Value]]] = {
    aten.split.Tensor: (2, piece),
    aten.split_with_sizes.default: (2, piece),
    aten.unbind.int: (1, select_index),
}
