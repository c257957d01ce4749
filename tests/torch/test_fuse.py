"""Fusion: which nodes become one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.torch import fuse as fusion  # noqa: E402
from metaschedule.torch.fuse import fuse, program_of  # noqa: E402
from metaschedule.torch.graph import Graph  # noqa: E402
from metaschedule.torch.lowering import LOWERINGS, Kind, Lowering, lower  # noqa: E402

aten = torch.ops.aten


def names(graph: Graph) -> list[str]:
    return [group.name for group in fuse(graph)]


def product(graph: Graph, n: int = 8) -> Any:
    return graph.call(aten.mm.default, graph.input("x", (n, n)), graph.input("y", (n, n)))


def test_a_diamond_of_element_wise_nodes_is_one_epilogue() -> None:
    graph = Graph()
    y = product(graph)
    graph.outputs = [graph.call(aten.mul.Tensor, y, graph.call(aten.sigmoid.default, y))]
    assert names(graph) == ["mm_sigmoid_mul"]


def test_an_epilogue_goes_to_one_of_two_products() -> None:
    graph = Graph()
    graph.outputs = [graph.call(aten.add.Tensor, product(graph), product(graph))]
    assert names(graph) == ["mm", "mm_add"]


def test_a_value_that_is_returned_or_read_twice_is_materialised() -> None:
    graph = Graph()
    y = product(graph)
    graph.outputs = [y, graph.call(aten.relu.default, y)]
    assert names(graph) == ["mm", "relu"]
    graph = Graph()
    y = graph.call(aten.relu.default, product(graph))
    w = graph.input("w", (8, 8))
    graph.outputs = [graph.call(aten.mm.default, y, w), graph.call(aten.mm.default, w, y)]
    assert names(graph) == ["mm_relu", "mm", "mm"]


def test_element_wise_nodes_prefer_the_producer() -> None:
    graph = Graph()
    y = graph.call(aten.relu.default, product(graph))
    graph.outputs = [graph.call(aten.mm.default, y, graph.input("w", (8, 8)))]
    assert names(graph) == ["mm_relu", "mm"]


def test_arithmetic_stays_out_of_the_inner_product_but_copies_go_in() -> None:
    graph = Graph()
    x, w = graph.input("x", (8, 8)), graph.input("w", (8, 8))
    graph.outputs = [graph.call(aten.mm.default, graph.call(aten.add.Tensor, x, w), w)]
    assert names(graph) == ["add", "mm"]
    graph = Graph()
    x, w = graph.input("x", (8, 8)), graph.input("w", (8, 8))
    graph.outputs = [graph.call(aten.mm.default, graph.call(aten.permute.default, x, [1, 0]), w)]
    assert names(graph) == ["mm"]


def test_a_costly_function_is_not_repeated_by_broadcasting() -> None:
    def model(function: Any) -> Graph:
        graph = Graph()
        row, x = graph.input("row", (1, 8)), graph.input("x", (8, 8))
        graph.outputs = [graph.call(aten.add.Tensor, x, graph.call(function, row))]
        return graph

    assert names(model(aten.exp.default)) == ["exp", "add"]
    assert names(model(aten.relu.default)) == ["relu_add"]


def test_views_at_the_border_stay_outside_and_within_are_indices() -> None:
    graph = Graph()
    x, w = graph.input("x", (4, 2, 8)), graph.input("w", (8, 8))
    flat = graph.call(aten.view.default, x, [8, 8])
    graph.outputs = [graph.call(aten.mm.default, flat, w)]
    assert [(g.name, g.kind) for g in fuse(graph)] == [("view", Kind.VIEW), ("mm", Kind.HEAVY)]
    graph = Graph()
    x, w = graph.input("x", (2, 4, 8)), graph.input("w", (8, 8))
    flat = graph.call(aten.view.default, graph.call(aten.permute.default, x, [1, 0, 2]), [8, 8])
    graph.outputs = [graph.call(aten.mm.default, flat, w)]
    assert names(graph) == ["mm"]


def test_what_has_no_lowering_is_a_group_with_the_reason() -> None:
    graph = Graph()
    x = graph.input("x", (8,))
    graph.outputs = [graph.call(aten.relu.default, graph.call(aten.bernoulli.p, x, 0.5))]
    eager, ours = fuse(graph)
    assert "bernoulli" in eager.eager
    assert not ours.eager
    graph = Graph()
    graph.outputs = [graph.call(aten.relu.default, graph.input("x", (0, 3)))]
    assert fuse(graph)[0].eager == "it has no elements"


def test_the_program_of_a_group_computes_it() -> None:
    graph = Graph()
    x, w = graph.input("x", (3, 4)), graph.constant("w", torch.randn(4, 5))
    y = graph.call(aten.mm.default, x, w)
    graph.outputs = [graph.call(aten.relu.default, graph.call(aten.add.Tensor, y, 0.5))]
    (group,) = fuse(graph)
    program = program_of(group, graph)
    assert [(b.name, b.constant) for b in program.inputs] == [("x0", False), ("w1", True)]
    given, weight = torch.randn(3, 4), graph.constants[w]
    found = ms.interpret(program, given.numpy(), weight.numpy())
    torch.testing.assert_close(torch.from_numpy(found), torch.relu(given @ weight + 0.5))


def test_a_node_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def counted(target: Any, *rest: Any) -> Any:
        calls.append(target)
        return lower(target, *rest)

    monkeypatch.setattr(fusion, "lower", counted)
    graph = Graph()
    x, w = graph.input("x", (3, 4)), graph.constant("w", torch.randn(4, 5))
    y = graph.call(aten.relu.default, graph.call(aten.mm.default, x, w))
    graph.outputs = [graph.call(aten.mm.default, y, graph.constant("v", torch.randn(5, 2))), y]
    programs = [program_of(group, graph) for group in fuse(graph)]
    assert [[b.name for b in p.inputs] for p in programs] == [["x0", "w1"], ["x0", "w1"]]
    assert sorted(map(str, calls)) == ["aten.mm.default", "aten.mm.default", "aten.relu.default"]


def test_two_names_of_one_value_are_two_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOWERINGS, "same", Lowering(lambda x: x, Kind.INJECTIVE))
    graph = Graph()
    x = graph.input("x", (8,))
    same = graph.call("same", x, results=[x.spec])
    graph.outputs = [same, graph.call(aten.add.Tensor, x, same)]
    first, add = fuse(graph)
    assert first.tensors[same] is first.tensors[x]
    values = torch.arange(8.0).numpy()
    np.testing.assert_array_equal(ms.interpret(program_of(first, graph), values), values)
    np.testing.assert_array_equal(ms.interpret(program_of(add, graph), values, values), 2 * values)
