"""What depends on constants alone is computed now, by torch."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..graph import Graph, Node, Value, map_values

aten = torch.ops.aten


def fold_constants(graph: Graph) -> None:
    """Nodes of ATen that read only constants become constants, unless they are outputs: who gets one may
    write to it. (An output that is made of tensors without elements is copied when it is returned.)

    Those that read nothing (`full`, `arange`) or repeat elements (`expand`) are cheaper computed where they
    are used than read from memory: they are folded only together with their readers.

    >>> graph = Graph()
    >>> x, w = graph.input("x", (2,)), graph.constant("w", torch.ones(2))
    >>> w_plus_1 = graph.call(aten.add.Tensor, w, 1)
    >>> graph.outputs = [graph.call(aten.mul.Tensor, x, w_plus_1)]
    >>> fold_constants(graph)
    >>> print(graph)
    graph(x: float32[2])
      add_1: float32[2] = constant
      mul: float32[2] = aten.mul.Tensor(x, add_1)
      return mul
    """
    known: dict[Value, torch.Tensor] = dict(graph.constants)
    folded: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node.target, str) and not node.has_effect and all(v in known for v in node.reads):
            known.update(zip(node.results, compute_node(node, known)))
            returned = any(v in graph.outputs for v in node.results)
            of_nothing = any(math.prod(v.shape) == 0 for v in node.reads)
            if node.reads and node.target is not aten.expand.default and (not returned or of_nothing):
                folded.add(node)

    constants: dict[Value, Value] = {}

    def constant(value: Value) -> Value:
        if value.node not in folded:
            return value
        if value not in constants:
            constants[value] = graph.constant(value.name, known[value].contiguous())
        return constants[value]

    for node in graph.nodes:
        if node not in folded:
            node.change_reads(constant)
    graph.outputs = map_values(graph.outputs, constant)
    graph.prune()


def compute_node(node: Node, known: dict[Value, torch.Tensor]) -> list[Any]:
    args, kwargs = map_values((node.args, node.kwargs), known.__getitem__)
    assert not isinstance(node.target, str)
    with torch.no_grad():
        found = node.target(*args, **kwargs)
    return list(found) if isinstance(found, (tuple, list)) else [found]
