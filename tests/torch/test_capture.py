"""Capture: FX to our graph, with shapes and weights as they are."""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from metaschedule.torch.capture import NotCaptured, capture, capture_exported  # noqa: E402
from metaschedule.torch.lowering import LOWERINGS  # noqa: E402


def targets(graph: Any) -> list[str]:
    return [str(node.target) for node in graph.nodes]


def test_several_results_are_told_apart() -> None:
    def model(x: Any) -> Any:
        left, _, right = torch.split(x, [2, 1, 3], dim=1)
        return right, left, None

    x = torch.ones(4, 6)
    graph = capture(make_fx(model)(x), [x])
    assert [v and v.shape for v in graph.outputs] == [(4, 3), (4, 2), None]


def test_symbolic_shapes_become_numbers() -> None:
    def model(x: Any) -> Any:
        return x.reshape(x.shape[0] * x.shape[1]) + 1

    symbolic = make_fx(model, tracing_mode="symbolic")(torch.ones(2, 3))
    graph = capture(symbolic, [torch.ones(5, 7)])
    assert graph.outputs[0].shape == (35,)
    assert targets(graph) == ["aten.view.default", "aten.add.Tensor"]


def test_weights_are_constants_and_share_memory() -> None:
    x, w = torch.ones(2, 3), torch.nn.Parameter(torch.ones(3))
    graph = capture(make_fx(lambda x, w: x * w)(x, w), [x, w], constants=[1])
    ((value, tensor),) = graph.constants.items()
    assert value.shape == (3,)
    assert tensor.data_ptr() == w.data_ptr()
    assert not tensor.requires_grad


def test_other_devices_are_refused() -> None:
    x = torch.ones(2, device="meta")
    with pytest.raises(NotCaptured, match="dense tensors on cpu"):
        capture(make_fx(lambda x: x + 1)(torch.ones(2)), [x])


def test_recurrent_layers_and_attention_are_opened_when_exported() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.gru = torch.nn.LSTM(4, 4, dropout=0.1, num_layers=2), torch.nn.GRU(4, 4)

        def forward(self, x: Any) -> Any:
            y = self.gru(self.lstm(x)[0])[0]
            return torch.nn.functional.scaled_dot_product_attention(y, y, y)

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        exported = torch.export.export(Model().eval(), (torch.ones(3, 2, 4),), strict=False)
        graph = capture_exported(exported)
    kept = {str(node.target) for node in graph.nodes if node.target not in LOWERINGS}
    assert not kept


def write_and(then: Callable[[Any, Any], Any]) -> torch.fx.GraphModule:
    """A graph that writes to its input and goes on: `then` gets the input and what the write gives."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    view = graph.call_function(torch.ops.aten.select.int, (x, 0, 0))
    new = graph.call_function(torch.ops.aten.neg.default, (x,))
    written = graph.call_function(torch.ops.aten.copy_.default, (x, new))
    read = {"x": x, "written": written, "view": view}
    graph.output((written, graph.call_function(torch.ops.aten.mul.Tensor, then(read, 2.0))))
    return torch.fx.GraphModule({}, graph)


@pytest.mark.parametrize("name", ["x", "written"])
def test_who_reads_an_input_after_a_write_reads_what_was_written(name: str) -> None:
    graph = capture(write_and(lambda read, by: (read[name], by)), [torch.ones(2, 3)])
    assert str(graph) == (
        "graph(x: float32[2, 3])\n"
        "  neg_default: float32[2, 3] = aten.neg.default(x)\n"
        "  mul_tensor: float32[2, 3] = aten.mul.Tensor(neg_default, 2.0)\n"
        "  return x, mul_tensor, neg_default"
    )


def test_a_view_from_before_a_write_is_not_read_after_it() -> None:
    with pytest.raises(NotCaptured, match="reads select_int, whose memory has been written to"):
        capture(write_and(lambda read, by: (read["view"], by)), [torch.ones(2, 3)])


def test_what_torch_warns_of_itself_is_not_passed_on() -> None:
    exported = torch.export.export(torch.nn.Linear(4, 2).eval(), (torch.ones(3, 4),))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        capture_exported(exported)
    assert [str(w.message) for w in told] == []
