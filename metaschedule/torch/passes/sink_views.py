"""Views move behind element-wise nodes, and those that go along rows, so that these have the shape of what
computes their input.

A linear layer is a product of matrices between two views. With the second behind what follows, an activation
or the addition of a residual, that is part of the product's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..graph import Graph, Node, Value, map_values
from ..lowering import LOWERINGS, Kind
from .views import shape_behind, view

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
        shape, source = shape_before(node), source_along_last(node)
        if shape is not None:
            sink(graph, node, shape)
        elif source is not None:
            sink_along_last(graph, node, source)
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
    return value.shape == shape or trim_broadcast(value.shape, shape, before) is not None


def trim_broadcast(own: Shape, shape: Shape, before: Shape) -> Shape | None:
    """The shape of a broadcast value before the view, without leading ones."""
    if math.prod(own) == 1:
        return ()
    found = shape_behind(shape, before, [1] * (len(shape) - len(own)) + list(own))
    while found and found[0] == 1:
        found = found[1:]
    return None if found is None else tuple(found)


def source_along_last(node: Node) -> Value | None:
    """What a view looks at that a node reads which goes along the last dimension alone, if the view keeps
    that."""
    dims = ALONG_LAST[node.target](node) if node.target in ALONG_LAST else None
    rank = len(node.reads[0].shape) if dims is not None else 0
    if dims is None or not rank or rank - 1 not in [d % rank for d in dims]:
        return None
    source = source_of(node.reads[0])
    if len(dims) > 1 or source is None or source.node is None or not source.shape:
        return None
    return source if source.shape[-1] == node.reads[0].shape[-1] else None


# The dimensions along which an operator goes.
ALONG_LAST: dict[Any, Callable[[Node], Sequence[int]]] = {
    aten.amin.default: lambda node: node.args[1] if len(node.args) > 1 else (),
    aten.amax.default: lambda node: node.args[1] if len(node.args) > 1 else (),
    aten._softmax.default: lambda node: [node.args[1]],
    aten.native_layer_norm.default: lambda node: [-1] * len(node.args[1]),
}


def sink_along_last(graph: Graph, node: Node, source: Value) -> None:
    """Rows are rows, however they are numbered."""
    x, dims, *rest = node.args
    if node.target is aten._softmax.default:
        dims = -1
    elif node.target is not aten.native_layer_norm.default:
        dims = [-1]
    new = graph.call(node.target, source, dims, *rest, before=node, **node.kwargs).node
    assert new is not None
    for old, result in zip(node.results, new.results, strict=True):
        if graph.is_read(old):
            graph.replace(old, reshape_value(graph, result, old.shape, node))


def sink(graph: Graph, node: Node, before: Shape) -> None:
    shape = node.result.shape

    def earlier(value: Value) -> Value:
        source = source_of(value)
        if value.shape == shape:
            unviewed = source is not None and source.shape == before
            return source if unviewed and source else reshape_value(graph, value, before, node)
        wanted = trim_broadcast(value.shape, shape, before)
        assert wanted is not None
        return value if value.shape == wanted else reshape_value(graph, value, wanted, node)

    args, kwargs = map_values((node.args, node.kwargs), earlier)
    result = graph.call(node.target, *args, results=[(before, node.result.dtype)], before=node, **kwargs)
    graph.replace(node.result, reshape_value(graph, result, shape, node))


def reshape_value(graph: Graph, value: Value, shape: Sequence[int], node: Node) -> Value:
    return graph.call(view, value, list(shape), before=node)
