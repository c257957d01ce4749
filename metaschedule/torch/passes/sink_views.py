"""Views move behind element-wise nodes, so that these have the shape of what computes their input.

A linear layer is a product of matrices between two views. With the second behind what follows, an activation
or the addition of a residual, that is part of the product's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..graph import Graph, Node, Value, with_values
from ..lowering import LOWERINGS, Kind
from .views import view

aten = torch.ops.aten
Shape = tuple[int, ...]


def sink_views(graph: Graph) -> None:
    """Views are simplified already, and should be again.

    >>> graph = Graph()
    >>> x, bias = graph.input("x", (2, 3, 4)), graph.input("bias", (4,))
    >>> flat = graph.call(view, graph.call(aten.neg.default, x), [6, 4])
    >>> graph.outputs = [graph.call(aten.add.Tensor, flat, bias)]
    >>> sink_views(graph)
    >>> print(graph)
    graph(x: float32[2, 3, 4], bias: float32[4])
      neg: float32[2, 3, 4] = aten.neg.default(x)
      add_1: float32[2, 3, 4] = aten.add.Tensor(neg, bias)
      reshape_1: float32[6, 4] = aten.reshape.default(add_1, [6, 4])
      return reshape_1
    """
    for node in list(graph.nodes):
        shape = shape_before(node)
        if shape is not None:
            sink(graph, node, shape)
    graph.prune()


def shape_before(node: Node) -> Shape | None:
    """The shape in which an element-wise node could be computed: that of the source of a view it reads."""
    lowering = LOWERINGS.get(node.target)
    if lowering is None or lowering.kind != Kind.ELEMENTWISE or len(node.results) > 1:
        return None
    for value in node.reads:
        source = source_of(value)
        if source is not None and source.node is not None and value.shape == node.result.shape:
            return source.shape if all(fits(v, node.result.shape, source.shape) for v in node.reads) else None
    return None


def source_of(value: Value) -> Value | None:
    """What a view looks at."""
    return value.node.args[0] if value.node is not None and value.node.target is view else None


def fits(value: Value, shape: Shape, before: Shape) -> bool:
    """Whether a value that is broadcast to a shape can be broadcast to the shape before the view as well."""
    return value.shape == shape or math.prod(value.shape) == 1 or bool(kept(value.shape, shape, before))


def kept(own: Shape, shape: Shape, before: Shape) -> Shape:
    """The dimensions of a broadcast value that the view leaves alone, if those are all it has."""
    while own and own[0] == 1:
        own = own[1:]
    return own if shape[len(shape) - len(own) :] == before[max(0, len(before) - len(own)) :] else ()


def sink(graph: Graph, node: Node, before: Shape) -> None:
    shape = node.result.shape

    def earlier(value: Value) -> Value:
        source = source_of(value)
        if value.shape == shape:
            unviewed = source is not None and source.shape == before
            return source if unviewed and source else reshaped(graph, value, before, node)
        wanted = () if math.prod(value.shape) == 1 else kept(value.shape, shape, before)
        return value if value.shape == wanted else reshaped(graph, value, wanted, node)

    args, kwargs = with_values((node.args, node.kwargs), earlier)
    result = graph.call(node.target, *args, results=[(before, node.result.dtype)], before=node, **kwargs)
    graph.replace(node.result, reshaped(graph, result, shape, node))


def reshaped(graph: Graph, value: Value, shape: Sequence[int], node: Node) -> Value:
    return graph.call(view, value, list(shape), before=node)
