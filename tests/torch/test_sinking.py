"""Views behind element-wise nodes; pieces as slices."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from metaschedule.torch.fuse import fuse  # noqa: E402
from metaschedule.torch.graph import Graph, Value  # noqa: E402
from metaschedule.torch.passes.sink_views import sink_views  # noqa: E402
from metaschedule.torch.passes.slices import slice_pieces  # noqa: E402
from metaschedule.torch.passes.views import simplify_views, view  # noqa: E402

aten = torch.ops.aten


def linear(graph: Graph, x: Value) -> Value:
    """A linear layer on (2, 4, 8), as torch traces it."""
    weight = graph.constant("w", torch.randn(8, 8))
    return graph.call(view, graph.call(aten.mm.default, graph.call(view, x, [8, 8]), weight), [2, 4, 8])


def names(graph: Graph) -> list[str]:
    sink_views(graph)
    simplify_views(graph)
    return [group.name for group in fuse(graph) if group.kind]


def test_an_activation_of_several_nodes_and_a_residual_join_the_product() -> None:
    graph = Graph()
    x = graph.input("x", (2, 4, 8))
    y = linear(graph, x)
    y = graph.call(aten.mul.Tensor, y, graph.call(aten.sigmoid.default, y))
    y = graph.call(aten.add.Tensor, y, graph.constant("b", torch.randn(1, 1, 8)))
    graph.outputs = [linear(graph, graph.call(aten.add.Tensor, x, y))]
    assert names(graph) == ["mm_sigmoid_mul_add_add", "mm"]


def test_a_value_broadcast_over_what_the_view_divides_stays() -> None:
    graph = Graph()
    y = linear(graph, graph.input("x", (2, 4, 8)))
    graph.outputs = [graph.call(aten.add.Tensor, y, graph.input("per_row", (2, 1, 8)))]
    assert names(graph) == ["mm", "add"]


def test_pieces_are_read_where_they_are() -> None:
    graph = Graph()
    x = graph.input("x", (4, 12))
    first = graph.call(aten.split_with_sizes.default, x, [4, 2, 6], 1)
    assert first.node is not None
    rows = graph.call(aten.unbind.int, first.node.results[2], 0)
    assert rows.node is not None
    graph.outputs = [graph.call(aten.neg.default, first.node.results[1]), rows.node.results[3]]
    slice_pieces(graph)
    calls = [(str(node.target), node.args[1:]) for node in graph.nodes]
    assert calls == [
        ("aten.slice.Tensor", (1, 4, 6)),
        ("aten.slice.Tensor", (1, 6, 12)),
        ("aten.select.int", (0, 3)),
        ("aten.neg.default", ()),
    ]
