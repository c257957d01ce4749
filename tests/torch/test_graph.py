"""`Graph`: building, rewriting, pruning."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from metaschedule.torch.graph import Graph  # noqa: E402

aten = torch.ops.aten


def test_results_are_those_torch_says() -> None:
    graph = Graph()
    x = graph.input("x", (1, 4, 6, 6))
    pooled = graph.call(aten.max_pool2d_with_indices.default, x, [2, 2])
    assert pooled.node is not None
    assert [v.spec for v in pooled.node.results] == [((1, 4, 3, 3), "float32"), ((1, 4, 3, 3), "int64")]


def test_an_operator_of_ours_tells_its_results() -> None:
    graph = Graph()
    x = graph.input("x", (2, 3))
    assert graph.call("ours", x, results=[((3, 2), "float32")]).shape == (3, 2)
    with pytest.raises(ValueError, match="give the `results`"):
        graph.call("ours", x)


def test_values_within_lists_are_read_and_replaced() -> None:
    graph = Graph()
    x, y = graph.input("x", (2, 3)), graph.input("y", (2, 3))
    joined = graph.call(aten.cat.default, [x, y, x], 1)
    graph.outputs = [joined, x, None]
    assert joined.node is not None
    assert joined.node.reads == [x, y]
    graph.replace(x, y)
    assert joined.node.args == ([y, y, y], 1)
    assert graph.outputs == [joined, y, None]
    assert graph.readers(x) == []


def test_prune_keeps_what_outputs_need() -> None:
    graph = Graph()
    x = graph.input("x", (4,))
    weight, unused = graph.constant("weight", torch.ones(4)), graph.constant("unused", torch.ones(4))
    kept = graph.call(aten.mul.Tensor, x, weight)
    graph.call(aten.mul.Tensor, x, unused)
    graph.outputs = [kept]
    graph.prune()
    assert graph.nodes == [kept.node]
    assert list(graph.constants) == [weight]
    assert graph.inputs == [x]


def test_names_differ() -> None:
    graph = Graph()
    x = graph.input("x", (4,))
    names = [graph.call(aten.neg.default, x).name for _ in range(3)]
    names += [graph.input("neg_1", (4,)).name]
    assert len(set(names)) == 4
