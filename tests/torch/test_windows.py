"""Slices are arguments at an address: equal cells are one kernel; parts of parts are what eager gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.torch.graph import Graph, Value  # noqa: E402
from metaschedule.torch.pipeline import fuse_graph  # noqa: E402
from tests.torch.test_plan import made  # noqa: E402

aten = torch.ops.aten


class Unrolled(torch.nn.Module):
    def __init__(self, cell: Any, batch_first: bool) -> None:
        super().__init__()
        self.cell, self.batch_first = cell, batch_first

    def forward(self, x: Any, h: Any) -> Any:
        for t in range(8):
            h = self.cell(x[:, t] if self.batch_first else x[t], h)
        return h


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(("cell", "kernels"), [(torch.nn.RNNCell, 2), (torch.nn.GRUCell, 3)])
def test_equal_cells_of_a_recurrence_are_the_same_kernels(cell: Any, kernels: int, batch_first: bool) -> None:
    model = Unrolled(cell(12, 16), batch_first).eval()
    x = torch.randn((3, 8, 12) if batch_first else (8, 3, 12))
    explanation = ms.torch.explain(model, (x, torch.zeros(3, 16)))
    # The products of the input are one, before the first step.
    assert sorted(row.calls for row in explanation.rows) == [1, *[8] * (kernels - 1)]
    with torch.no_grad():
        run = torch.compile(model, backend="metaschedule", options={"strict": True})
        h = torch.randn(3, 16)
        torch.testing.assert_close(run(x, h), model(x, h))


def test_a_group_that_reads_all_of_a_value_takes_the_value() -> None:
    graph = Graph()
    x = graph.call(aten.neg.default, graph.input("x", (4, 6)))
    first, second = graph.call(aten.slice.Tensor, x, 1, 0, 3), graph.call(aten.slice.Tensor, x, 1, 3, 6)
    graph.outputs = [graph.call(aten.mul.Tensor, first, second), x]
    *_, program = fuse_graph(graph).programs.values()
    assert [(b.shape, b.layout) for b in program.inputs] == [((4, 6), None)]


def test_parts_that_no_view_shows_are_copied() -> None:
    graph = Graph()
    x = graph.input("x", (4, 6))
    part = graph.call(aten.slice.Tensor, x, 1, 1, 4)
    flat = graph.call(aten.reshape.default, part, [12])
    graph.outputs = list(
        graph.add(aten.topk.default, (flat, 3), {}, [((3,), "float32"), ((3,), "int64")]).results
    )
    given = torch.randn(4, 6)
    values, places = made(graph)([given])
    assert values.tolist() == given[:, 1:4].reshape(12).topk(3).values.tolist()
    assert places.tolist() == given[:, 1:4].reshape(12).topk(3).indices.tolist()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_parts_of_parts(data: Any) -> None:
    """Of an input or of a kernel's result, read by a kernel, in eager, or both."""
    graph = Graph()
    value = graph.input("x", (4, 6, 5))
    if data.draw(st.booleans()):
        value = graph.call(aten.neg.default, value)
    parts: list[Value] = []
    for _ in range(data.draw(st.integers(1, 3))):
        part = value
        for _ in range(data.draw(st.integers(1, 4))):
            part = data.draw(cuts(graph, part))
        parts.append(part)
    graph.outputs = []
    for part in parts:
        graph.outputs.append(graph.call(aten.exp.default, part))
        if part.shape and data.draw(st.booleans()):
            graph.outputs.append(graph.call(aten.sort.default, part))  # in eager
    given = torch.randn(4, 6, 5)
    want = evaluated(graph, given)
    for got, expected in zip(made(graph)([given]), want, strict=True):
        torch.testing.assert_close(got, expected)


@st.composite
def cuts(draw: st.DrawFn, graph: Graph, value: Value) -> Value:
    if not value.shape or draw(st.integers(0, 3)) == 0:
        count = 1
        for n in value.shape:
            count *= n
        first = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        return graph.call(aten.reshape.default, value, [first, count // first])
    dim = draw(st.integers(-len(value.shape), len(value.shape) - 1))
    size = value.shape[dim]
    if draw(st.booleans()):
        return graph.call(aten.select.int, value, dim, draw(st.integers(-size, size - 1)))
    start = draw(st.integers(0, size - 1))
    end = draw(st.integers(start + 1, size + 2))
    return graph.call(aten.slice.Tensor, value, dim, start, end, draw(st.integers(1, 3)))


def evaluated(graph: Graph, x: Any) -> list[Any]:
    """What torch gives."""
    known = {graph.inputs[0]: x}
    for node in graph.nodes:
        args = [known[a] if isinstance(a, Value) else a for a in node.args]
        results: Any = node.target(*args)  # pyright: ignore[reportCallIssue]
        known |= zip(node.results, results if isinstance(results, tuple) else (results,))
    return [known[v] for v in graph.outputs]


def test_artefacts_keep_windows(tmp_path: Path) -> None:
    class Parts(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            doubled = x * 2
            return torch.sort(doubled[:, 1:4], dim=0, stable=True)[0] + doubled[:, ::2]

    x = torch.randn(5, 6)
    model = Parts()
    ms.torch.compile(torch.export.export(model, (x,))).save(tmp_path / "model.ms")
    torch.testing.assert_close(ms.torch.load(tmp_path / "model.ms")(x), model(x))
