"""`explain` and `profile`: what is ours, what is not and why, and what it takes."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402

nn = torch.nn


class Sorted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return torch.mode(x, -1, True).values + 1


def test_kernels_and_eager_nodes_are_counted() -> None:
    explanation = ms.torch.explain(Sorted().eval(), (torch.randn(4, 8),))
    assert [(row.name, row.calls) for row in explanation.rows if not row.eager] == [
        ("addmm_relu", 3),
        ("add", 1),
    ]
    (row,) = explanation.eager
    assert (row.nodes, row.eager) == (["mode.default"], "aten.mode.default has no lowering")
    text = str(explanation)
    assert "4 kernel calls, 1 in eager" in text
    assert "addmm_relu" in text


def test_an_exported_model() -> None:
    exported = torch.export.export(Sorted().eval(), (torch.randn(4, 8),))
    assert [row.calls for row in ms.torch.explain(exported).rows] == [3, 1, 1]


def test_a_graph_break_gives_two_graphs() -> None:
    def model(x: Any) -> Any:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y * 2

    assert ms.torch.explain(model, (torch.randn(4),)).graphs == 2


def test_as_often_as_asked() -> None:
    for _ in range(10):  # Dynamo gives up on code that it has compiled 8 times
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        assert [row.calls for row in ms.torch.explain(model, (torch.ones(2, 4),)).rows] == [1]


def test_a_profile_has_the_time_of_every_step() -> None:
    model, x = Sorted().eval(), torch.randn(4, 8)
    profile = ms.torch.profile(model, (x,), calls=3)
    assert [(one.name, one.calls, one.tuned) for one in profile.shares] == [
        ("addmm_relu", 3, False),
        ("mode", 1, False),
        ("add", 1, False),
    ]
    layers, _, last = profile.shares
    assert (layers.operations, last.operations) == (3 * (2 * 4 * 8 * 8 + 2 * 4 * 8), 4)
    assert 0 < sum(one.seconds for one in profile.shares) < profile.whole
    assert "between kernels" in str(profile)
    assert layers.memory >= 3 * 4 * (8 * 8 + 8)  # weights and biases of three layers
    assert last.memory == 0
    assert profile.constants == layers.memory
    assert profile.memory > 0
    assert "MB of weights" in str(profile)
    assert "Dynamo" in str(profile)
    assert 0 <= profile.dynamo < profile.whole


def test_notebooks_show_tables() -> None:
    model, x = torch.nn.Linear(8, 8), torch.ones(2, 8)
    for shown in (ms.torch.explain(model, (x,)), ms.torch.profile(model, (x,), calls=2)):
        assert "<td>addmm</td>" in shown._repr_html_()
        assert shown.title() in shown._repr_html_()


def test_what_dynamo_leaves_alone_is_exported() -> None:
    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = torch.nn.LSTM(4, 4, bidirectional=True)

        def forward(self, x: Any) -> Any:
            return self.steps(x)[0]

    rows = ms.torch.explain(Tagger().eval(), (torch.randn(3, 1, 4),)).rows
    assert rows
    assert not any(row.eager for row in rows)
