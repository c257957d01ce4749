"""What is computed twice from the same values is computed once."""

from __future__ import annotations

from typing import Any

import torch

from ..graph import Graph, Node, Value

aten = torch.ops.aten


def share_common(graph: Graph) -> None:
    """Three layers that quantise their input read it quantised once. Outputs keep nodes of their own.

    >>> graph = Graph()
    >>> x = graph.input("x", (2,))
    >>> a, b = (graph.call(aten.relu.default, graph.call(aten.neg.default, x)) for _ in range(2))
    >>> graph.outputs = [graph.call(aten.add.Tensor, a, b)]
    >>> share_common(graph)
    >>> print(graph)
    graph(x: float32[2])
      neg: float32[2] = aten.neg.default(x)
      relu: float32[2] = aten.relu.default(neg)
      add: float32[2] = aten.add.Tensor(relu, relu)
      return add
    """
    first: dict[Any, Node] = {}
    for node in list(graph.nodes):
        if node.has_effect or any(v in graph.outputs for v in node.results):
            continue
        same = first.setdefault(key_of(node), node)
        if same is not node:
            for old, new in zip(node.results, same.results, strict=True):
                graph.replace(old, new)
    graph.prune()


def key_of(node: Node) -> Any:
    """What equal calls share; numbers by their type, too: 1 is not 1.0, nor True."""
    return node.target, hashable(node.args), hashable(sorted(node.kwargs.items())), len(node.results)


def hashable(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return (type(argument), *map(hashable, argument))
    return argument if isinstance(argument, (Value, str)) else (type(argument), repr(argument))
