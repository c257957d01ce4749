"""Tensors without elements: nothing has to compute them."""

from __future__ import annotations

import math

import torch

from ..graph import Graph, Node, Value

aten = torch.ops.aten


def fold_empty(graph: Graph) -> None:
    """What has no elements becomes a constant, and is left out where it is joined to others. What is made of
    such tensors alone (the sum of nothing) is then known, too: `fold_constants` computes it.

    >>> graph = Graph()
    >>> x, y = graph.input("x", (0, 3)), graph.input("y", (2, 3))
    >>> more = graph.call(aten.mul.Tensor, x, 2)
    >>> graph.outputs = [graph.call(aten.cat.default, [more, y])]
    >>> fold_empty(graph)
    >>> print(graph)
    graph(x: float32[0, 3], y: float32[2, 3])
      cat_1: float32[2, 3] = aten.cat.default([y])
      return cat_1
    """
    constants: dict[Value, Value] = {}

    def constant(value: Value) -> Value:
        if math.prod(value.shape) or value in graph.constants:
            return value
        if value not in constants:
            empty = torch.empty(value.shape, dtype=getattr(torch, value.dtype))
            constants[value] = graph.constant(value.name, empty)
        return constants[value]

    for node in list(graph.nodes):
        node.change_reads(constant)
        if node.target is aten.cat.default and math.prod(node.result.shape):
            drop_empty(graph, node)
    # An input that is returned stays what it is; a result is a tensor of its own.
    graph.outputs = [constant(v) if isinstance(v, Value) and v.node else v for v in graph.outputs]
    graph.prune()


def drop_empty(graph: Graph, node: Node) -> None:
    """Of the tensors that `cat` joins, where they do not decide the dtype of the result."""
    parts, *rest = node.args
    kept = [part for part in parts if math.prod(part.shape)]
    if len(kept) < len(parts) and any(part.dtype == node.result.dtype for part in kept):
        graph.replace(node.result, graph.call(aten.cat.default, kept, *rest, before=node, **node.kwargs))
