"""Models in ONNX, compiled: beside eager and onnxruntime; bad models and bad arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")

import torch  # noqa: E402

import metaschedule as ms  # noqa: E402

RELU = """
    <ir_version: 8, opset_import: ["": 18]>
    agraph (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }"""


def parse(text: str) -> Any:
    return onnx.parser.parse_model(text)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 16, batch_first=True)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(x)[0])


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.whole = torch.nn.Linear(16, 48)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.whole(x).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1)
        return self.norm(torch.nn.functional.gelu(x + weights @ v))


def convolutional() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 5),
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "shape"), [(convolutional, (2, 3, 8, 8)), (Attention, (2, 5, 16)), (Recurrent, (2, 3, 8))]
)
@pytest.mark.parametrize("dynamo", [False, True], ids=["traced", "dynamo"])
def test_exported_models_agree_with_eager_and_onnxruntime(
    make: Any, shape: tuple[int, ...], dynamo: bool, tmp_path: Path
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    file = tmp_path / "model.onnx"
    torch.onnx.export(model, (x,), file, dynamo=dynamo, opset_version=18 if dynamo else 17)
    run = ms.onnx.compile(file, strict=True)
    found = run(x.numpy())
    with torch.no_grad():
        np.testing.assert_allclose(found, model(x).numpy(), rtol=1e-4, atol=1e-5)
    (theirs,) = runtime.InferenceSession(file).run(None, {run.inputs[0]: x.numpy()})
    np.testing.assert_allclose(found, theirs, rtol=1e-4, atol=1e-5)


def test_open_sizes_by_position_and_by_name(tmp_path: Path) -> None:
    onnx.save(parse(RELU), tmp_path / "relu.onnx")
    run = ms.onnx.compile(tmp_path / "relu.onnx", strict=True)
    for n in (1, 4):
        x = np.linspace(-1, 1, 3 * n, dtype="float32").reshape(n, 3)
        np.testing.assert_array_equal(run(x), np.maximum(x, 0))
        np.testing.assert_array_equal(run(x=x), np.maximum(x, 0))


def test_shapes_are_bounded_and_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ms.onnx.compile.__globals__, "MOST_SHAPES", 3)
    run = ms.onnx.compile(parse(RELU), strict=True)
    for n in (1, 2, 1, 3, 1, 4, 1, 5):
        x = np.linspace(-1, 1, 3 * n, dtype="float32").reshape(n, 3)
        np.testing.assert_array_equal(run(x), np.maximum(x, 0))
        assert len(run._known) <= 3
    assert sorted(shapes[0][0] for ((_, shapes, _),) in run._known) == [1, 4, 5]


def test_a_shape_that_is_an_input() -> None:
    run = ms.onnx.compile(
        parse("""
        <ir_version: 8, opset_import: ["": 18]>
        agraph (float[6] x, int64[2] shape) => (float[a, b] y) { z = Neg(x) y = Reshape(z, shape) }"""),
        strict=True,
    )
    x = np.arange(6, dtype="float32")
    assert run(x, np.array([2, 3])).shape == (2, 3)
    assert run(x, np.array([3, -1])).shape == (3, 2)


def test_results_are_not_the_inputs() -> None:
    run = ms.onnx.compile(parse(RELU.replace("Relu", "Identity")))
    x = np.ones((1, 3), "float32")
    run(x)[:] = 2
    assert x.max() == 1


def test_external_data(tmp_path: Path) -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["": 18]>
        agraph (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Mul(x, w) }""")
    model.graph.initializer[0].raw_data = np.array([1, 2, 3], "float32").tobytes()
    del model.graph.initializer[0].float_data[:]
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(ms.onnx.compile(tmp_path / "m.onnx")(x)[0], [1, 2, 3])
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ms.onnx.InvalidModel, match="w.bin"):
        ms.onnx.compile(tmp_path / "m.onnx")


@pytest.mark.parametrize("content", [b"", b"no model", parse(RELU).SerializeToString()[:40]])
def test_files_that_are_no_models(content: bytes) -> None:
    with pytest.raises(ms.onnx.InvalidModel, match="not an ONNX model"):
        ms.onnx.compile(content)


def test_refusals() -> None:
    with pytest.raises(ms.onnx.Unsupported, match="opset 99"):
        ms.onnx.compile(parse(RELU.replace(": 18]", ": 99]")))
    with pytest.raises(ms.onnx.UnsupportedOperator, match="no translation of Unheard"):
        ms.onnx.compile(parse(RELU.replace("Relu", "Unheard")))
    cycle = parse(RELU.replace("y = Relu(x)", "a = Add(x, b) b = Relu(a) y = Relu(b)"))
    with pytest.raises(ms.onnx.InvalidModel, match="topologically sorted"):
        ms.onnx.compile(cycle)


def test_arguments_that_do_not_fit() -> None:
    run = ms.onnx.compile(parse(RELU))
    x = np.ones((2, 3), "float32")
    for error, args, named, text in [
        (TypeError, (x, x), {}, "takes 1 inputs, got 2"),
        (TypeError, (), {"z": x}, "no input 'z'"),
        (TypeError, (), {}, "no value for the inputs x"),
        (TypeError, (x,), {"x": x}, "by position and by name"),
        (TypeError, ("x",), {}, "must be an array"),
        (ValueError, (x.astype("float64"),), {}, r"x: float32\[n, 3\]: got float64"),
        (ValueError, (x.T,), {}, r"got float32\[3, 2\]"),
    ]:
        with pytest.raises(error, match=text):
            run(*args, **named)


def test_tuning_a_model(tmp_path: Path) -> None:
    results = ms.onnx.tune(parse(RELU), database=tmp_path / "a.db", trials=1, sizes={"n": 4}, show=False)
    assert [r.program.outputs[0].shape for r in results] == [(4, 3)]


@pytest.mark.parametrize("version", [-1, 2**31, 2**62])
def test_an_opset_that_cannot_be_looked_up(version: int) -> None:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    node = onnx.helper.make_node("Mystery", ["x"], ["x_"], domain="theirs")
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.helper.make_tensor_value_info("x_", 1, [2])])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("theirs", version)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    with pytest.raises(ms.onnx.InvalidModel, match="there is no opset"):
        ms.onnx.compile(model.SerializeToString())
