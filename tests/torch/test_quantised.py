"""Quantised models: torch's operators in ATen's, products of integers, and whole models against eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import metaschedule as ms  # noqa: E402
from metaschedule.torch.capture import capture, decompositions  # noqa: E402
from metaschedule.torch.graph import Graph, Value, map_values  # noqa: E402
from metaschedule.torch.lowering import Kind  # noqa: E402
from metaschedule.torch.passes import integer_products, simplify_views  # noqa: E402
from metaschedule.torch.quantised import QUANTISED  # noqa: E402
from tests.torch.samples_heavy import integer_convolution  # noqa: E402

nn = torch.nn
ops = torch.ops.quantized_decomposed
INT8, UINT8 = (-128, 127, torch.int8), (0, 255, torch.uint8)


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def numbers(*shape: int, dtype: Any = torch.int8) -> Any:
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, shape, dtype=dtype)


def scales(*shape: int) -> Any:
    return torch.rand(shape) * 0.05 + 0.001


def calls() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    x = torch.randn(3, 5, 12) * 2
    one, zero = torch.tensor([0.021], dtype=torch.float64), torch.tensor([3])
    rows, row_zeros = scales(3, 5, 1), torch.randint(-9, 9, (3, 5, 1))
    channels, channel_zeros = scales(5), torch.randint(-9, 9, (5,))
    matrix, groups, group_zeros = torch.randn(7, 12), scales(7, 3), torch.randint(-9, 9, (7, 3))
    limits = tuple(torch.tensor(n) for n in (-128, 127))
    return {
        "per tensor": (ops.quantize_per_tensor.default, (x, 0.0173, 5, *INT8)),
        "per tensor, unsigned": (ops.quantize_per_tensor.default, (x, 0.0173, 128, *UINT8)),
        "16 bits": (ops.quantize_per_tensor.default, (x, 1e-4, 0, -32768, 32767, torch.int16)),
        "by tensors": (ops.quantize_per_tensor.tensor, (x, one, zero, *INT8)),
        "limits by tensors": (ops.quantize_per_tensor.tensor2, (x, one, zero, *limits, torch.int8)),
        "bfloat16": (ops.quantize_per_tensor.default, (x.bfloat16(), 0.0173, 5, *INT8)),
        "back": (ops.dequantize_per_tensor.default, (numbers(3, 5), 0.0173, 5, *INT8)),
        "back, by tensors": (ops.dequantize_per_tensor.tensor, (numbers(3, 5), one, zero, *INT8)),
        "per channel": (ops.quantize_per_channel.default, (x, channels, channel_zeros, 1, *INT8)),
        "back, per channel": (
            ops.dequantize_per_channel.default, (numbers(3, 5), channels, channel_zeros, 1, *INT8)
        ),
        "back, per channel, symmetric": (
            ops.dequantize_per_channel.default, (numbers(5, 3), channels, None, 0, *INT8)
        ),
        "per row": (ops.quantize_per_token.default, (x, rows, row_zeros, *INT8)),
        "back, per row": (
            ops.dequantize_per_token.default, (numbers(3, 5, 12), rows, row_zeros, *INT8, torch.float32)
        ),
        "in groups": (ops.quantize_per_channel_group.default, (matrix, groups, group_zeros, *INT8, 4)),
        "back, in groups": (
            ops.dequantize_per_channel_group.default,
            (numbers(7, 12), groups, group_zeros, *INT8, 4, torch.float32),
        ),
        "choose": (ops.choose_qparams.tensor, (x, 0, 255, 1e-6, torch.uint8)),
        "choose of positive": (ops.choose_qparams.tensor, (x.abs() + 1, -128, 127, 1e-6, torch.int8)),
        "choose, symmetric": (ops.choose_qparams_symmetric.tensor, (x, -127, 127, 1e-6, torch.int8)),
        "choose per row": (ops.choose_qparams_per_token.default, (x, torch.int8)),
        "choose per row, affine": (ops.choose_qparams_per_token_asymmetric.default, (x, torch.int8)),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(calls()))
def test_torch_says_the_same_bit_for_bit(name: str) -> None:
    target, args = calls()[name]
    torch.testing.assert_close(QUANTISED[target](*args), target(*args), rtol=0, atol=0)


def test_kernels_quantise_bit_for_bit() -> None:
    """Integers are equal; so are scales."""
    chosen = list(calls().values())

    def model(*args: Any) -> Any:
        given = iter(args)
        return [
            target(*[next(given) if isinstance(a, torch.Tensor) else a for a in own])
            for target, own in chosen
        ]

    tensors = [a for _, own in chosen for a in own if isinstance(a, torch.Tensor)]
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    torch.testing.assert_close(run(*tensors), model(*tensors), rtol=0, atol=0)


# Products of integers.


def captured(model: Callable[..., Any], *args: Any, constants: tuple[int, ...] = ()) -> Graph:
    """The graph of a function, with integer products."""
    graph = capture(make_fx(model, decompositions())(*args), args, constants)
    simplify_views(graph)
    integer_products(graph)
    return graph


OURS = {
    "integer_matmul": lambda x, y: (x.long() @ y.long()).int(),
    "integer_convolution": integer_convolution,
}


def evaluated(graph: Graph, *inputs: Any) -> list[Any]:
    known: dict[Value, Any] = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    for node in graph.nodes:
        args, kwargs = map_values((node.args, node.kwargs), known.__getitem__)
        call: Any = OURS[node.target] if isinstance(node.target, str) else node.target
        found = call(*args, **kwargs)
        known.update(zip(node.results, found if isinstance(found, (tuple, list)) else (found,)))
    return map_values(list(graph.outputs), known.__getitem__)


def targets(graph: Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes]


def dequantised(q: Any, scale: Any, zero: Any) -> Any:
    return (q.to(torch.int32) - zero) * scale


PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": lambda a, b: a @ b.t(),
    "linear": lambda a, b: nn.functional.linear(a, b, torch.arange(float(b.shape[0]))),
    "addmm": lambda a, b: torch.addmm(torch.ones(b.shape[0]), a, b.t(), beta=2, alpha=0.5),
    "bmm": lambda a, b: torch.bmm(a[None], b.t()[None]),
}


@pytest.mark.parametrize(
    "dtypes", [(torch.uint8, torch.int8), (torch.int8, torch.int8), (torch.uint8, torch.uint8)]
)
@pytest.mark.parametrize("name", list(PRODUCTS))
def test_products_are_of_integers(name: str, dtypes: Any) -> None:
    """Scales and zero points of rows on the left, of columns on the right."""
    product = PRODUCTS[name]
    q, w = numbers(5, 19, dtype=dtypes[0]), numbers(7, 19, dtype=dtypes[1])
    s, z, t, y = scales(5, 1), torch.randint(-9, 9, (5, 1)), scales(7, 1), torch.randint(1, 9, (7, 1))

    def model(q: Any, s: Any, z: Any, w: Any, t: Any, y: Any) -> Any:
        return product(dequantised(q, s, z), dequantised(w, t, y))

    args = (q, s, z, w, t, y)
    graph = captured(model, *args, constants=(3, 4, 5))
    assert "integer_matmul" in targets(graph)
    assert not {"aten.mm.default", "aten.addmm.default", "aten.bmm.default"} & set(targets(graph))
    torch.testing.assert_close(evaluated(graph, q, s, z)[0], model(*args), rtol=1e-5, atol=1e-4)


def test_integers_are_exact() -> None:
    """With scales that are powers of two and sums below 2**24 float32 rounds nothing: bit for bit."""
    q, w = numbers(9, 31, dtype=torch.uint8), numbers(5, 31)

    def model(q: Any, w: Any) -> Any:
        return dequantised(q, 0.5, 117) @ dequantised(w, torch.tensor([[0.25], [1], [2], [4], [8]]), 0).t()

    graph = captured(model, q, w, constants=(1,))
    torch.testing.assert_close(evaluated(graph, q)[0], model(q, w), rtol=0, atol=0)


def test_what_varies_along_the_sum_is_left_alone() -> None:
    graph = captured(
        lambda q, s, w: dequantised(q, s, 0) @ (w * 0.5), numbers(5, 8), scales(1, 8), numbers(8, 3)
    )
    assert "integer_matmul" not in targets(graph)
    graph = captured(lambda x, w: x @ (w * 0.5), torch.randn(5, 8), numbers(8, 3))
    assert "integer_matmul" not in targets(graph)


def test_scales_of_many_steps() -> None:
    """Each of which reads the one before twice: what is known of a value is asked once."""
    q, w, s = numbers(3, 8), numbers(4, 8), torch.tensor(0.5)

    def model(q: Any, w: Any, s: Any) -> Any:
        for _ in range(60):
            s = s * s + s * 0.5
        return dequantised(q, s, 0) @ dequantised(w, 0.5, 0).t()

    assert "integer_matmul" in targets(captured(model, q, w, s, constants=(1,)))


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((2, 6, 9, 7), (5, 6, 3, 3), {"padding": 1}),
    "strided": ((1, 6, 9, 7), (4, 6, 3, 2), {"stride": 2, "padding": (1, 0)}),
    "dilated, grouped": ((1, 6, 9, 7), (4, 3, 3, 3), {"groups": 2, "dilation": 2, "padding": 2}),
    "depthwise": ((1, 6, 9, 7), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    "one dimension": ((2, 6, 9), (5, 6, 3), {"padding": 1}),
}


@pytest.mark.parametrize("name", list(CONVOLUTIONS))
@pytest.mark.parametrize("zero", [0, 131])
def test_convolutions_are_of_integers(name: str, zero: int) -> None:
    shape, kernel, options = CONVOLUTIONS[name]
    q, w, t, bias = (
        numbers(*shape, dtype=torch.uint8),
        numbers(*kernel),
        scales(kernel[0]),
        torch.randn(kernel[0]),
    )
    function = nn.functional.conv1d if len(shape) == 3 else nn.functional.conv2d

    def model(q: Any, w: Any, t: Any, bias: Any) -> Any:
        x = dequantised(q, 0.02, zero)
        return function(x, dequantised(w, t.reshape(-1, *[1] * (len(kernel) - 1)), 0), bias, **options)

    graph = captured(model, q, w, t, bias, constants=(1, 2, 3))
    assert "integer_convolution" in targets(graph)
    torch.testing.assert_close(evaluated(graph, q)[0], model(q, w, t, bias), rtol=1e-5, atol=1e-4)


def test_integers_stay_integers_between_products() -> None:
    """Views, pooling and relu of dequantised values are those of the integers."""
    q, w = numbers(2, 3, 8, 8, dtype=torch.uint8), numbers(4, 48)

    def model(q: Any, w: Any) -> Any:
        x = nn.functional.max_pool2d(torch.relu(dequantised(q, 0.02, 120)), 2)
        return x.flatten(1) @ dequantised(w, 0.1, 0).t()

    graph = captured(model, q, w, constants=(1,))
    assert [v.dtype for v in (node.result for node in graph.nodes) if len(v.shape) == 4] == ["uint8", "uint8"]
    torch.testing.assert_close(evaluated(graph, q)[0], model(q, w), rtol=1e-5, atol=1e-4)


def test_rows_of_an_embedding() -> None:
    w, s, index = numbers(11, 6), scales(11, 1), torch.tensor([[3, 0], [10, 3]])
    graph = captured(
        lambda w, s, i: nn.functional.embedding(i, dequantised(w, s, 3)), w, s, index, constants=(0, 1)
    )
    want = nn.functional.embedding(index, dequantised(w, s, 3))
    torch.testing.assert_close(evaluated(graph, index)[0], want, rtol=0, atol=0)
    assert any(c.dtype == torch.int8 for c in graph.constants.values())


# Whole models.


def in_kernels(model: Any, *args: Any) -> Any:
    """What a compiled model returns; nothing of it runs in eager."""
    found = ms.torch.explain(model, args)
    assert not found.eager
    return torch.compile(model, backend="metaschedule", options={"strict": True})(*args)


def test_dynamic_layers_of_torch() -> None:
    model = nn.Sequential(nn.Linear(33, 65), nn.ReLU(), nn.Linear(65, 7, bias=False)).eval()
    packed = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    x = torch.randn(5, 33)
    open_ = ms.torch.unpack(packed)
    torch.testing.assert_close(in_kernels(open_, x), packed(x), rtol=1e-5, atol=1e-6)
    assert type(packed.get_submodule("0")) is not type(open_.get_submodule("0")), "the model is left alone"
    rows = ms.torch.explain(open_, (x,)).rows
    assert sum(row.calls for row in rows if "integer_matmul" in row.name) == 2
    single = ms.torch.unpack(packed[0])
    torch.testing.assert_close(single(x), packed[0](x), rtol=1e-5, atol=1e-6)
    for far in (x * 1e-5, x * 0, x + 100, -x.abs()):
        torch.testing.assert_close(single(far), packed[0](far), rtol=1e-5, atol=1e-6)


def test_dynamic_layers_of_other_types_are_refused() -> None:
    packed = torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(4, 4)), {nn.Linear}, torch.float16
    )
    with pytest.raises(ValueError, match="qint8"):
        ms.torch.unpack(packed)


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        x = self.first(x + self.out(attended))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


def assert_close_but_for_steps(found: Any, want: Any) -> None:
    """Where rounding in front of a quantisation differs, a number is one more or less now and then."""
    difference = (found - want).abs()
    assert difference.max() < 0.01 * want.abs().max()
    assert difference.mean() < 1e-4 * want.abs().max()


def test_torchao_dynamic() -> None:
    """Products in integers; norms, extremes and quantisation of rows in one kernel."""
    torchao: Any = pytest.importorskip("torchao.quantization", reason="pip install torchao")
    model, x = Block().eval(), torch.randn(2, 9, 32)
    torchao.quantize_(model, torchao.Int8DynamicActivationInt8WeightConfig())
    assert_close_but_for_steps(in_kernels(model, x), model(x))
    rows = ms.torch.explain(model, (x,)).rows
    assert sum(row.calls for row in rows if row.name.startswith("int_mm")) == 4
    assert sum(row.calls for row in rows if "amin" in row.name) == 4
    assert any(row.name.startswith("native_layer_norm_amin") for row in rows)
    exported = torch.export.export(model, (x,))
    assert_close_but_for_steps(ms.torch.compile(exported, strict=True)(x), model(x))


def test_torchao_weights() -> None:
    torchao: Any = pytest.importorskip("torchao.quantization", reason="pip install torchao")
    model, x = nn.Sequential(nn.Linear(33, 17), nn.ReLU(), nn.Linear(17, 5)).eval(), torch.randn(7, 33)
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    torch.testing.assert_close(in_kernels(model, x), model(x), rtol=1e-4, atol=1e-5)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.third = nn.Conv2d(8, 8, 3, stride=2), nn.Conv2d(8, 8, 1)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        y = self.second(torch.max_pool2d(torch.relu(self.norm(self.first(x))), 2))
        return self.last(torch.relu(y + self.third(y)).mean((2, 3)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_and_quantised(dynamic: bool) -> None:
    """PT2E: integers between the layers, one kernel for each."""
    pytest.importorskip("torchao", reason="pip install torchao")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # pyright: ignore
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86  # pyright: ignore

    x = torch.randn(2, 3, 17, 17)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
    prepared = prepare_pt2e(torch.export.export(Convolutions().eval(), (x,)).module(), quantizer)
    prepared(x)
    model = convert_pt2e(prepared)
    torch.testing.assert_close(in_kernels(model, x), model(x), rtol=1e-4, atol=1e-5)
    rows = ms.torch.explain(model, (x,)).rows
    assert sum(row.calls for row in rows if "integer_" in row.name) == 4
    assert dynamic or sum(row.calls for row in rows) == 7


# bfloat16.


@pytest.mark.parametrize("way", ["to", "autocast"])
def test_bfloat16(way: str) -> None:
    """Within the rounding of a step of bfloat16 of what float32 gives, as eager is; nothing in eager."""
    model, x = Block().eval(), torch.randn(2, 9, 32)
    exact = model(x)
    if way == "to":
        found = in_kernels(model.to(torch.bfloat16), x.bfloat16())
    else:
        with torch.autocast("cpu", torch.bfloat16):
            found = in_kernels(model, x)
    assert (found.float() - exact).abs().max() < 0.03 * exact.abs().max()


def test_products_of_models_take_instructions() -> None:
    """Untuned, where the target has them: bytes and bfloat16."""
    from metaschedule.space.untuned import schedule_untuned
    from metaschedule.target import resolve
    from metaschedule.torch.explain import models

    target = resolve("x86-64-v4,+avx512vnni,+avx512bf16,cores=2")
    layer, x = nn.Sequential(nn.Linear(64, 48), nn.ReLU()).eval(), torch.randn(32, 64)
    packed = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear})
    for model, arg, name in (
        (ms.torch.unpack(packed), x, "vpdpbusd"),
        (layer.to(torch.bfloat16), x.bfloat16(), "vdpbf16ps"),
    ):
        (pieces,) = models(model, (arg,))
        products = [p for g, p in pieces.programs.items() if g.kind == Kind.HEAVY]
        assert len(products) == 1
        assert name in str(schedule_untuned(products[0], target).trace)
