"""Memory: what lives at the same time does not overlap, what does not shares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch")

from metaschedule.runtime.pages import LARGE  # noqa: E402
from metaschedule.target import resolve  # noqa: E402
from metaschedule.torch.graph import Graph  # noqa: E402
from metaschedule.torch.kernels import Compiler  # noqa: E402
from metaschedule.torch.memory import Need, assign_offsets  # noqa: E402
from metaschedule.torch.pipeline import fuse_graph  # noqa: E402
from metaschedule.torch.plan import KernelStep, plan_calls  # noqa: E402
from metaschedule.torch.runner import Runner  # noqa: E402

aten = torch.ops.aten


def need(size: int, first: int, length: int) -> Need:
    return Need(size, first, first + length)


@given(st.lists(st.builds(need, st.integers(0, 300), st.integers(0, 9), st.integers(0, 5)), max_size=12))
def test_needs_that_meet_in_time_do_not_meet_in_memory(needs: list[Need]) -> None:
    offsets, size = assign_offsets(needs)
    for i, (a, at) in enumerate(zip(needs, offsets)):
        assert at % 64 == 0
        assert at + a.nbytes <= size
        for b, other in zip(needs[:i], offsets):
            apart = at + a.nbytes <= other or other + b.nbytes <= at
            assert apart or a.last < b.first or b.last < a.first


def made(graph: Graph) -> Runner:
    compiler = Compiler(resolve("native").with_cores(2))
    return Runner(plan_calls(fuse_graph(graph), compiler, threads=2))


def test_a_chain_of_kernels_reuses_memory_and_code() -> None:
    graph = Graph()
    y = graph.input("x", (16, 16))
    weights = [graph.constant("w", torch.randn(16, 16) / 4) for _ in range(6)]
    for w in weights:
        y = graph.call(aten.mm.default, y, w)
    graph.outputs = [y]
    runner = made(graph)
    assert len(runner.plan.kernels) == 1  # equal layers share their code
    assert runner.plan.memory <= 4 * 16 * 16 * 4  # two results at a time, and a workspace
    given = torch.randn(16, 16)
    want = given
    for w in weights:
        want = want @ graph.constants[w]
    torch.testing.assert_close(runner([given])[0], want)


def test_memory_on_large_pages() -> None:
    graph = Graph()
    x = graph.input("x", (1 << 20,))
    y = graph.call(aten.neg.default, x)
    graph.outputs = [graph.call(aten.cat.default, [y, y]), graph.call(aten.sum.default, y)]
    runner, given = made(graph), torch.ones(1 << 20)
    for _ in range(2):  # the memory of the first call is that of the second
        twice, total = runner([given])
        assert twice.sum() == -(2 << 20)
        assert total == -(1 << 20)
    assert [m.data_ptr() % LARGE for m in runner._idle] == [0]


def test_views_of_outputs_are_torchs_own() -> None:
    graph = Graph()
    x = graph.input("x", (4, 6))
    y = graph.call(aten.relu.default, x)
    turned = graph.call(aten.permute.default, y, [1, 0])
    graph.outputs = [turned, y, graph.call(aten.permute.default, x, [1, 0]), 7]
    runner = made(graph)
    assert sum(isinstance(step, KernelStep) for step in runner.plan.steps) == 1
    given = torch.randn(4, 6)
    a, b, c, seven = runner([given])
    torch.testing.assert_close(b, torch.relu(given))
    assert a.data_ptr() == b.data_ptr()
    assert a.stride() == b.t().stride()
    assert c.data_ptr() == given.data_ptr()
    assert seven == 7


def test_a_copy_of_an_input_is_not_the_input() -> None:
    graph = Graph()
    x = graph.input("x", (4,))
    y = graph.call(aten.neg.default, x)
    graph.outputs = [graph.call(aten.clone.default, x), y, graph.call(aten.clone.default, y)]
    given = torch.randn(4)
    found = made(graph)([given])
    assert len({t.data_ptr() for t in [given, *found]}) == 4
    torch.testing.assert_close(found, [given, -given, -given])


def test_eager_steps_stand_between_kernels() -> None:
    graph = Graph()
    x = graph.input("x", (8, 3))
    y = graph.call(aten.relu.default, graph.call(aten.neg.default, x))
    values = graph.call(aten.sort.default, y, 0)
    assert values.node is not None
    graph.outputs = [graph.call(aten.mul.Tensor, values, 2.0), values.node.results[1]]
    given = torch.randn(8, 3)
    found = made(graph)([given.t().contiguous().t()])
    want = torch.sort(torch.relu(-given), 0)
    torch.testing.assert_close(found[0], want.values * 2)
    assert found[1].dtype == torch.int64
