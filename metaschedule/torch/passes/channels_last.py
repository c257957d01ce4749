"""Images with the channels last: convolutions and what stands between them.

Convolutions with constant weights become operators of ours; whatever reads a value that is there with
the channels last, and can be said for that layout, is said for it. At the borders stand permutations, which
`simplify_views` then takes together: a network of convolutions has one, at its input.

Channels that a model regards as several dimensions, as to shuffle them, are last too: (n, a, b, h, w) is
there as (n, h, w, a, b).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..graph import Graph, Node, Value, map_values
from ..lowering import LOWERINGS, Kind
from .batch_norm import are_constant, arguments
from .views import order_of, permute, view

aten = torch.ops.aten
TO_LAST, TO_SECOND = [0, 2, 3, 1], [0, 3, 1, 2]  # orders of dimensions, for permute
PLACE = {0: 0, 1: 3, 2: 1, 3: 2}  # of a dimension, with channels last

WITH_SAME_ARGUMENTS: dict[Any, str] = {
    aten.max_pool2d.default: "max_pool2d",
    aten.avg_pool2d.default: "avg_pool2d",
    aten.adaptive_avg_pool2d.default: "adaptive_avg_pool2d",
    aten._adaptive_avg_pool2d.default: "adaptive_avg_pool2d",
    aten.upsample_nearest2d.default: "upsample_nearest2d",
    aten.upsample_bilinear2d.default: "upsample_bilinear2d",
}
RESAMPLING: dict[Any, str] = {
    aten.upsample_nearest2d.vec: "upsample_nearest2d",
    aten.upsample_bilinear2d.vec: "upsample_bilinear2d",
}

Rule = Callable[["ChannelsLast", Node], Value | None]
RULES: dict[Any, Rule] = {}


def use_channels_last(graph: Graph) -> None:
    """See the module; views are simplified already. Weights are laid out anew as constants: (height, width,
    ci, co), one of the last two per group."""
    if any(node.target in (aten.convolution.default, "integer_convolution") for node in graph.nodes):
        layout = ChannelsLast(graph)
        for node in list(graph.nodes):
            layout.visit(node)
        layout.finish()


class ChannelsLast:
    """`last` has the values that are there with the channels last; `natural` are those of them that are
    computed so, and not permuted because one reader wants it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.last: dict[Value, Value] = {}
        self.natural: set[Value] = set()

    def visit(self, node: Node) -> None:
        rule = RULES.get(node.target)
        if rule is None and is_elementwise(node):
            rule = elementwise
        read = self.natural.intersection(node.reads)
        if rule is None or not (rule in (convolution, integer_convolution, permutation) or read):
            return
        if rule not in (permutation, reshaping) and any(len(v.shape) != 4 for v in read):
            return
        new = rule(self, node)
        if new is not None:
            self.last[node.result] = new
            self.natural.add(node.result)

    def finish(self) -> None:
        """What could not be said for the new layout reads a permutation of it."""
        old = {v.node for v in self.natural}
        needed = {v for node in self.graph.nodes if node not in old for v in node.reads}
        needed.update(v for v in self.graph.outputs if v is not None)
        for value, last in self.last.items():
            if value in self.natural and value in needed:
                order = [0, *range(3, len(last.shape)), 1, 2]
                self.graph.replace(value, self.graph.call(permute, last, order, before=value.node))
        self.graph.prune()

    def of(self, value: Value, node: Node) -> Value:
        """The value with its channels last, for a new node before `node`."""
        if value not in self.last:
            self.last[value] = self.permute(value, node)
        return self.last[value]

    def permute(self, value: Value, node: Node) -> Value:
        shape = [1] * (4 - len(value.shape)) + list(value.shape)
        if value in self.graph.constants:
            tensor = self.graph.constants[value].reshape(shape).permute(TO_LAST)
            return self.graph.constant(value.name, tensor.contiguous())
        if len(value.shape) < 4:
            value = self.graph.call(view, value, shape, before=node)
        return self.graph.call(permute, value, TO_LAST, before=node)

    def operator(self, name: str, node: Node, x: Value, *args: Any) -> Value:
        """A call of an operator of ours in the place of `node`."""
        n, c, h, w = node.result.shape
        results = [((n, h, w, c), node.result.dtype)]
        return self.graph.call(name, self.of(x, node), *args, results=results, before=node)


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Registers how a node is said with the channels last: the new result, or None if it cannot be."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(targets, function))
        return function

    return register


@rule(aten.convolution.default)
def convolution(layout: ChannelsLast, node: Node) -> Value | None:
    x, w, b, stride, padding, dilation, transposed, output_padding, groups = arguments(node)
    stride, padding, dilation, output_padding = map(pair, (stride, padding, dilation, output_padding))
    if len(x.shape) != 4 or not are_constant(layout.graph, [w]):
        return None
    weight = last_weight(layout.graph, w, transposed)
    if transposed:
        window = (stride, padding, output_padding, groups, dilation)
        return layout.operator("conv_transpose2d_channels_last", node, x, weight, b, *window)
    return layout.operator("conv2d_channels_last", node, x, weight, b, stride, padding, dilation, groups)


def last_weight(graph: Graph, weight: Value, transposed: bool) -> Value:
    order = (2, 3, 0, 1) if transposed else (2, 3, 1, 0)
    return graph.constant(weight.name, graph.constants[weight].permute(order).contiguous())


@rule("integer_convolution")
def integer_convolution(layout: ChannelsLast, node: Node) -> Value | None:
    x, w, zero, stride, padding, dilation, transposed, output_padding, groups = node.args
    stride, padding, dilation, output_padding = map(pair, (stride, padding, dilation, output_padding))
    if len(x.shape) != 4 or not are_constant(layout.graph, [w]):
        return None
    weight = last_weight(layout.graph, w, transposed)
    window = (stride, padding, dilation, transposed, output_padding, groups)
    return layout.operator("integer_convolution_channels_last", node, x, weight, zero, *window)


@rule(aten.max_pool2d_with_indices.default)
def max_pool(layout: ChannelsLast, node: Node) -> Value | None:
    if layout.graph.is_read(node.results[1]):
        return None
    return layout.operator("max_pool2d_channels_last", node, *arguments(node))


@rule(*WITH_SAME_ARGUMENTS)
def with_same_arguments(layout: ChannelsLast, node: Node) -> Value:
    return layout.operator(f"{WITH_SAME_ARGUMENTS[node.target]}_channels_last", node, *arguments(node))


@rule(*RESAMPLING)
def resampling(layout: ChannelsLast, node: Node) -> Value:
    """Either the size or the factors are given; ours take both."""
    x, _, *corners, factors = arguments(node)
    sizes = list(node.result.shape[2:])
    name = f"{RESAMPLING[node.target]}_channels_last"
    return layout.operator(name, node, x, sizes, *corners, *(factors or [None, None]))


@rule(aten.cat.default)
def cat(layout: ChannelsLast, node: Node) -> Value | None:
    tensors, dim = arguments(node)
    if any(len(t.shape) != 4 for t in tensors):
        return None
    return layout.graph.call(node.target, [layout.of(t, node) for t in tensors], PLACE[dim % 4], before=node)


@rule(aten.slice.Tensor, aten._softmax.default, aten._log_softmax.default)
def along_a_dimension(layout: ChannelsLast, node: Node) -> Value:
    x, dim, *rest = arguments(node)
    return layout.graph.call(node.target, layout.of(x, node), PLACE[dim % 4], *rest, before=node)


@rule(aten.constant_pad_nd.default)
def pad(layout: ChannelsLast, node: Node) -> Value:
    x, pairs, fill = arguments(node)
    by_dimension = {3 - i // 2: pairs[i : i + 2] for i in range(0, len(pairs), 2)}
    new = [n for d in reversed(TO_LAST) for n in by_dimension.get(d, [0, 0])]
    return layout.graph.call(node.target, layout.of(x, node), new, fill, before=node)


@rule(aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default)
def reduction(layout: ChannelsLast, node: Node) -> Value | None:
    x, dims, keepdim = arguments(node)
    keywords = {key: value for key, value in node.kwargs.items() if key == "dtype"}
    dims = [d % 4 for d in dims] if dims else list(range(4))
    if not keepdim and [d for d in TO_LAST if d not in dims] != [d for d in range(4) if d not in dims]:
        return None
    new = layout.graph.call(
        node.target, layout.of(x, node), [PLACE[d] for d in dims], keepdim, before=node, **keywords
    )
    if keepdim:
        return new
    layout.graph.replace(node.result, new)  # what is left has no channels after height and width
    return None


@rule(permute)
def permutation(layout: ChannelsLast, node: Node) -> Value | None:
    """One that puts channels second, written so in the model; or one of dimensions that are channels."""
    x, order = node.args[0], order_of(node)
    rank = len(order)
    if rank > 4 and x in layout.natural and [order[0], *order[-2:]] == [0, rank - 2, rank - 1]:
        channels = [d + 2 for d in order[1:-2]]
        return layout.graph.call(permute, layout.last[x], [0, 1, 2, *channels], before=node)
    return x if order == TO_SECOND else None


@rule(view)
def reshaping(layout: ChannelsLast, node: Node) -> Value | None:
    """Channels as several dimensions, or these as channels again. Also (n, c, h, w) as (n, c, h * w), which
    transformers of images then transpose."""
    x, shape = node.args[0], node.result.shape
    if x not in layout.natural:
        return None
    n, *channels, h, w = x.shape
    if len(shape) > 3 and (shape[0], *shape[-2:]) == (n, h, w):
        return layout.graph.call(view, layout.last[x], [n, h, w, *shape[1:-2]], before=node)
    if len(channels) == 1 and shape == (n, *channels, h * w):
        rows = layout.graph.call(view, layout.last[x], [n, h * w, *channels], before=node)
        layout.graph.replace(node.result, layout.graph.call(permute, rows, [0, 2, 1], before=node))
    return None


def elementwise(layout: ChannelsLast, node: Node) -> Value | None:
    if any(len(v.shape) > 4 for v in node.reads):
        return None

    def operand(value: Value) -> Value:
        return layout.of(value, node) if value.shape else value

    args, kwargs = map_values((node.args, node.kwargs), operand)
    return layout.graph.call(node.target, *args, before=node, **kwargs)


def is_elementwise(node: Node) -> bool:
    lowering = LOWERINGS.get(node.target)
    return lowering is not None and lowering.kind is Kind.ELEMENTWISE


def pair(sizes: Sequence[int]) -> list[int]:
    """For height and width; torch takes one number for both."""
    return [*sizes, *sizes] if len(sizes) == 1 else list(sizes)
