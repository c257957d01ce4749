"""Passes keep what a graph computes; what they leave of it is written out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from metaschedule.torch.capture import capture, decompositions  # noqa: E402
from metaschedule.torch.graph import Graph, map_values  # noqa: E402
from metaschedule.torch.passes import (  # noqa: E402
    fold_batch_norms,
    fold_constants,
    join_products,
    rewrite,
    simplify_views,
    slice_pieces,
    use_channels_last,
)

aten = torch.ops.aten


def channels_first(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args: function(x.permute(0, 3, 1, 2), *args).permute(0, 2, 3, 1)


OURS = {  # what operators of ours mean, in terms of torch's
    "conv2d_channels_last": channels_first(
        lambda x, w, b, *window: F.conv2d(x, w.permute(3, 2, 0, 1), b, *window)
    ),
    "conv_transpose2d_channels_last": channels_first(
        lambda x, w, b, *window: F.conv_transpose2d(x, w.permute(2, 3, 0, 1), b, *window)
    ),
    "max_pool2d_channels_last": channels_first(lambda x, *window: F.max_pool2d(x, *window)),
    "avg_pool2d_channels_last": channels_first(lambda x, *window: F.avg_pool2d(x, *window)),
    "adaptive_avg_pool2d_channels_last": channels_first(F.adaptive_avg_pool2d),
    "upsample_nearest2d_channels_last": channels_first(aten.upsample_nearest2d.default),
    "upsample_bilinear2d_channels_last": channels_first(aten.upsample_bilinear2d.default),
}


def run(graph: Graph, *inputs: Any) -> list[Any]:
    """What the graph computes, and a check of the shapes that it tells."""
    known = dict(graph.constants) | dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        args, kwargs = map_values((node.args, node.kwargs), known.__getitem__)
        results = OURS.get(node.target, node.target)(*args, **kwargs)  # pyright: ignore
        results = results if isinstance(results, (tuple, list)) else [results]
        for value, result in zip(node.results, results):
            assert value.shape == tuple(result.shape), node
            known[value] = result
    return [known[v] for v in graph.outputs if v is not None]


def traced(model: Callable[..., Any], *inputs: Any) -> Graph:
    """The graph, with parameters and buffers as constants."""
    with torch.no_grad():
        module = make_fx(model, decomposition_table=decompositions())(*inputs)
    return capture(module, inputs)


def rewritten(model: Callable[..., Any], *inputs: Any, passes: Any = (rewrite,)) -> Graph:
    """The graph after the passes, when it has been seen to compute what it did before."""
    graph = traced(model, *inputs)
    want = run(graph, *inputs)
    for change in passes:
        change(graph)
    for got, expected in zip(run(graph, *inputs), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    return graph


def operators(graph: Graph) -> list[str]:
    names = [str(node.target).removeprefix("aten.").partition(".")[0] for node in graph.nodes]
    return [name.removesuffix("_channels_last") for name in names]


class BatchNorm(nn.Module):
    """As AOTAutograd leaves it of torch's."""

    def __init__(self, channels: int, affine: bool = True) -> None:
        super().__init__()
        self.weight, self.bias = torch.rand(2, channels) + 0.5 if affine else (None, None)
        self.mean, self.variance = torch.rand(2, channels) + 0.5

    def forward(self, x: Any) -> Any:
        statistics = self.weight, self.bias, self.mean, self.variance
        return aten._native_batch_norm_legit_no_training(x, *statistics, 0.1, 1e-3)[0]


X = torch.randn(1, 4, 7, 6, generator=torch.Generator().manual_seed(0))
W = torch.arange(6.0).view(2, 3)


# Constants


def test_what_reads_constants_alone_is_a_constant() -> None:
    graph = rewritten(lambda x: x @ torch.exp(W.t() + 1), torch.ones(4, 3), passes=[fold_constants])
    assert operators(graph) == ["mm"]
    assert [tuple(t.shape) for t in graph.constants.values()] == [(3, 2)]


def test_creation_is_folded_only_with_its_readers() -> None:
    def model(x: Any) -> Any:
        mask = torch.arange(8).view(8, 1) >= torch.arange(8)
        return torch.where(mask, x, torch.full((8, 8), -1.0))

    assert operators(rewritten(model, torch.ones(8, 8), passes=[fold_constants])) == ["full", "where"]


def test_repeated_elements_are_not_stored() -> None:
    graph = rewritten(lambda x: x + (W * 2).expand(5, 2, 3), torch.ones(5, 2, 3), passes=[fold_constants])
    assert operators(graph) == ["expand", "add"]
    assert [tuple(t.shape) for t in graph.constants.values()] == [(2, 3)]


def test_random_numbers_are_no_constants() -> None:
    graph = traced(lambda x: x + torch.rand(3), torch.ones(3))
    fold_constants(graph)
    assert operators(graph) == ["rand", "add"]


def test_outputs_are_made_anew() -> None:
    graph = rewritten(lambda x: (x + 1, (W + 1) * 2), torch.ones(3), passes=[fold_constants])
    assert operators(graph) == ["add", "mul"]
    graph = rewritten(lambda x: (x.clone(), x + 1), torch.ones(3), passes=[simplify_views])
    assert operators(graph) == ["clone", "add"]


# Views


def test_views_of_views_and_copies() -> None:
    graph = rewritten(
        lambda x: x.clone().view(28, 6).unsqueeze(0).view(7, 24).clone().expand(7, 24) + 1, X,
        passes=[simplify_views],
    )  # fmt: skip
    assert operators(graph) == ["reshape", "add"]


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (lambda x: x.transpose(1, 2).transpose(-1, 1).permute(0, 1, 3, 2).relu(), ["permute", "relu"]),
        (lambda x: x.permute(0, 2, 3, 1).permute(0, 3, 1, 2).relu(), ["relu"]),
        (lambda x: x.transpose(0, 1).relu(), ["reshape", "relu"]),
        (lambda x: x[0, 0].t().relu(), ["select", "select", "permute", "relu"]),
    ],
)
def test_permutations(model: Callable[..., Any], left: list[str]) -> None:
    assert operators(rewritten(model, X, passes=[simplify_views])) == left


# Batch norm


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_convolution_takes_over_the_norm(kind: Any, groups: int, affine: bool, bias: bool) -> None:
    model = nn.Sequential(kind(4, 6, 3, groups=groups, bias=bias), BatchNorm(6, affine))
    assert operators(rewritten(model, X, passes=[fold_batch_norms])) == ["convolution"]


def test_a_convolution_read_elsewhere_stays() -> None:
    conv, norm = nn.Conv2d(4, 4, 1), BatchNorm(4)

    def model(x: Any) -> Any:
        y = conv(x)
        return norm(y) + y

    graph = rewritten(model, X, passes=[fold_batch_norms])
    assert operators(graph) == ["convolution", "mul", "add", "add"]
    graph = rewritten(lambda x: (y := conv(x), norm(y)), X, passes=[fold_batch_norms])
    assert operators(graph) == ["convolution", "mul", "add"]


def test_a_norm_after_something_else_is_a_product_and_a_sum() -> None:
    assert operators(rewritten(BatchNorm(4), X, passes=[fold_batch_norms])) == ["mul", "add"]


# Channels last


def conv(co: int = 4, kernel: int = 3, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(4, co, kernel, padding=kernel // 2, **options)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm = conv(), conv(groups=4), BatchNorm(4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.a(x)) * 2 + self.b(x))


def test_a_network_of_convolutions_has_one_permutation() -> None:
    model = nn.Sequential(
        Residual(), nn.MaxPool2d(2, padding=1, ceil_mode=True), Residual(), nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    count = Counter(operators(rewritten(model, X)))
    assert (count["conv2d"], count["max_pool2d"], count["avg_pool2d"], count["permute"]) == (4, 1, 1, 1)
    assert count["convolution"] == 0


@pytest.mark.parametrize(
    ("between", "left"),
    [
        (lambda x: torch.cat([x, x + 1], 1)[:, 2:6], ["add", "cat", "slice"]),
        (lambda x: F.adaptive_avg_pool2d(x, 3), ["adaptive_avg_pool2d"]),
        (lambda x: F.interpolate(x, scale_factor=1.5), ["upsample_nearest2d"]),
        (lambda x: F.interpolate(x, (9, 5), mode="bilinear", align_corners=True), ["upsample_bilinear2d"]),
        (lambda x: F.pad(x, (1, 2, 0, 1)), ["constant_pad_nd"]),
        (lambda x: x * x.mean((2, 3), keepdim=True), ["mean", "mul"]),
        (lambda x: x.softmax(1), ["_softmax"]),
        (lambda x: x * torch.arange(4.0).view(4, 1, 1), ["mul"]),
        (lambda x: x * torch.arange(6.0), ["mul"]),
        (lambda x: x.permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2), ["_softmax"]),
    ],
)
def test_between_convolutions(between: Callable[..., Any], left: list[str]) -> None:
    first, second = conv(), conv()
    graph = rewritten(lambda x: second(between(first(x))), X)
    # the channels of an output are second
    assert operators(graph) == ["permute", "conv2d", *left, "conv2d", "permute"]


@pytest.mark.parametrize(
    ("after", "left"),
    [
        (lambda x: x.mean((2, 3)), ["mean"]),
        (lambda x: x.sum(1), ["sum"]),
        (lambda x: x.amax(2), ["permute", "amax"]),
        (lambda x: x.flatten(2).transpose(1, 2), ["reshape"]),
        (lambda x: x.flatten(1), ["permute", "reshape"]),
        (lambda x: F.max_pool2d(x, 2, return_indices=True)[1], ["permute", "max_pool2d_with_indices"]),
    ],
)
def test_after_a_convolution(after: Callable[..., Any], left: list[str]) -> None:
    first = conv()
    found = operators(rewritten(lambda x: after(first(x)) + 1, X))  # views may stand behind the addition
    assert sorted(found) == sorted(["permute", "conv2d", *left, "add"])


def test_transposed_convolutions() -> None:
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.ReLU(),
        nn.Conv2d(6, 2, 1),
    )
    assert operators(rewritten(model, X)) == ["permute", "conv_transpose2d", "relu", "conv2d", "permute"]


def test_a_weight_that_is_no_constant_keeps_its_layout() -> None:
    weight = torch.randn(2, 4, 3, 3)
    assert operators(rewritten(F.conv2d, X, weight, passes=[use_channels_last])) == ["convolution"]


def test_without_convolutions_nothing_moves() -> None:
    graph = traced(lambda x: x.permute(0, 3, 1, 2).relu(), X)
    before = str(graph)
    use_channels_last(graph)
    assert str(graph) == before


def shuffle(x: Any, groups: int) -> Any:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def test_shuffled_channels_stay_last() -> None:
    w = torch.randn(6, 4, 3, 3)
    v = torch.randn(5, 3, 1, 1)

    def model(x: Any) -> Any:
        kept, taken = shuffle(F.conv2d(x, w), 3).chunk(2, 1)
        return F.conv2d(taken, v) + F.conv2d(kept, v)

    graph = rewritten(model, X)
    names = Counter(operators(graph))
    assert names["conv2d"] == 3
    assert all(
        node.result.shape[1:3] in ((5, 4), (7, 6)) for node in graph.nodes if "conv" in str(node.target)
    )
    orders = [node.args[1] for node in graph.nodes if node.target is aten.permute.default]
    assert sorted(map(len, orders)) == [4, 4, 5]  # of the input, of the output, of the shuffle


def test_channels_taken_apart_and_read_by_others() -> None:
    w = torch.randn(6, 4, 3, 3)

    def model(x: Any) -> Any:
        y = F.conv2d(x, w).view(1, 2, 3, 5, 4)
        return y.sum(2), y.permute(0, 3, 4, 1, 2) + 1, torch.relu(y).view(1, 6, 5, 4)

    rewritten(model, X)


# Products


def linears(graph: Graph) -> list[tuple[int, ...]]:
    return [node.result.shape for node in graph.nodes if node.target in (aten.mm.default, aten.addmm.default)]


def recurrence(parts: Any, w: Any, u: Any, b: Any) -> list[Any]:
    """The states of a plain recurrent cell."""
    h = torch.zeros(len(parts[0]), len(u))
    found = []
    for part in parts:
        h = torch.tanh(torch.addmm(b, part, w) + h @ u)
        found.append(h)
    return found


CELLS = torch.randn(6, 5), torch.randn(5, 5), torch.randn(5)
UPON = torch.randn(5, 7), torch.randn(7, 7), torch.randn(7)


@pytest.mark.parametrize("dim", [0, 1])
def test_products_of_steps_are_one(dim: int) -> None:
    x = torch.randn(4, 3, 6)
    graph = rewritten(
        lambda x, *cell: recurrence(x.unbind(dim), *cell)[-1], x, *CELLS, passes=[slice_pieces, join_products]
    )
    assert linears(graph) == [(12, 5), *[(x.shape[1 - dim], 5)] * x.shape[dim]]


def test_products_of_one_cell_upon_another() -> None:
    def model(x: Any, *cells: Any) -> Any:
        h, g = torch.zeros(2, 5), torch.zeros(2, 7)
        (w, u, b), (w2, u2, b2) = cells[:3], cells[3:]
        for part in x.unbind(0):
            h = torch.tanh(torch.addmm(b, part, w) + h @ u)
            g = torch.tanh(torch.addmm(b2, h, w2) + g @ u2)
        return g

    graph = rewritten(model, torch.randn(4, 2, 6), *CELLS, *UPON)
    assert Counter(linears(graph)) == {(8, 5): 1, (8, 7): 1, (2, 5): 4, (2, 7): 4}


def test_products_that_are_not_joined() -> None:
    w, b = torch.randn(6, 6), torch.randn(2, 6)
    x = torch.randn(9, 2, 6)

    def joined(model: Callable[..., Any], *inputs: Any) -> list[tuple[int, ...]]:
        return linears(rewritten(model, *inputs, passes=[join_products]))

    assert joined(lambda x, w: x @ w @ w @ w + 1, x[0], w) == [(2, 6)] * 3  # one needs the other
    assert joined(lambda x, w, b: torch.addmm(b, x[0], w) + torch.addmm(b, x[1], w), x, w, b) == [(2, 6)] * 2
    assert joined(lambda x, w: (x[0] @ w, x[1] @ w), x, w) == [(2, 6)] * 2  # outputs
    many = torch.randn(2, 40, 6)
    assert joined(lambda x, y, w: torch.relu(x @ w) + (y @ w), *many, w) == [(40, 6)] * 2
    assert joined(lambda x, w: torch.relu(x[1] @ w) + (x[3] @ w), x, w) == [(4, 6)]  # few of all: only these
    assert joined(lambda x, w: torch.relu(x[0] @ w) + (x[1] @ w), x[:3], w) == [(6, 6)]


def test_crossed_products_keep_their_order() -> None:
    def model(x: Any, y: Any, a: Any, b: Any) -> Any:
        return torch.relu(torch.relu(x @ a) @ b) + torch.relu(torch.relu(y @ b) @ a)

    graph = rewritten(model, *torch.randn(2, 2, 6), *torch.randn(2, 6, 6), passes=[join_products])
    assert Counter(linears(graph)) == {(4, 6): 1, (2, 6): 2}
