"""Batch norm with known statistics scales and shifts channels; a convolution before it takes that over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..graph import Graph, Node, Value
from ..lowering import fill_defaults

aten = torch.ops.aten


def fold_batch_norms(graph: Graph) -> None:
    """conv -> batch norm becomes conv with other weights, unless something else reads the convolution; other
    batch norms become a product and a sum. Statistics and weights must be constants."""
    for node in list(graph.nodes):
        if node.target is not aten._native_batch_norm_legit_no_training.default:
            continue
        x, *statistics, _, eps = arguments(node)
        if x.dtype not in ("float32", "float64") or not are_constant(graph, statistics):
            continue  # half: the statistics have more digits than what is computed here
        weight, bias, mean, variance = (None if v is None else graph.constants[v] for v in statistics)
        norm = Scaling.of(weight, bias, mean, variance, eps)
        conv = x.node
        if conv is not None and is_only_read_by(graph, x, node) and has_constant_weights(graph, conv):
            normalised = fold_into_convolution(graph, conv, norm)
        else:
            normalised = scale_and_shift(graph, node, x, norm)
        graph.replace(node.result, normalised)
    graph.prune()


@dataclass(frozen=True)
class Scaling:
    """x * scale + shift, both of one element per channel, in double precision."""

    scale: Tensor
    shift: Tensor

    @staticmethod
    def of(
        weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None, eps: float
    ) -> Scaling:
        assert mean is not None
        assert variance is not None
        scale = (variance.double() + eps).rsqrt()
        scale = scale if weight is None else scale * weight
        shift = -mean * scale
        return Scaling(scale, shift if bias is None else shift + bias)


def fold_into_convolution(graph: Graph, conv: Node, norm: Scaling) -> Value:
    x, w, b, *window, transposed, output_padding, groups = arguments(conv)
    weight = graph.constants[w]
    # The output channels: of all groups in the first dimension, or of each in the second if transposed.
    if transposed:
        by_group = weight.unflatten(0, (groups, -1)) * norm.scale.view(
            groups, 1, -1, *[1] * (weight.ndim - 2)
        )
        new_weight = by_group.flatten(0, 1)
    else:
        new_weight = weight * norm.scale.view(-1, *[1] * (weight.ndim - 1))
    new_bias = norm.shift if b is None else graph.constants[b] * norm.scale + norm.shift
    new_w = graph.constant(w.name, new_weight.to(weight.dtype))
    new_b = graph.constant(f"{w.name}_bias", new_bias.to(weight.dtype))
    return graph.call(conv.target, x, new_w, new_b, *window, transposed, output_padding, groups, before=conv)


def scale_and_shift(graph: Graph, node: Node, x: Value, norm: Scaling) -> Value:
    shape = (-1, *[1] * (len(x.shape) - 2))
    dtype = getattr(torch, x.dtype)
    scale = graph.constant("scale", norm.scale.view(shape).to(dtype))
    shift = graph.constant("shift", norm.shift.view(shape).to(dtype))
    product = graph.call(aten.mul.Tensor, x, scale, before=node)
    return graph.call(aten.add.Tensor, product, shift, before=node)


def arguments(node: Node) -> list[Any]:
    """The positional arguments, with defaults."""
    assert not isinstance(node.target, str)
    return fill_defaults(node.target, node.args, node.kwargs)[0]


def are_constant(graph: Graph, values: list[Value | None]) -> bool:
    return all(v is None or v in graph.constants for v in values)


def has_constant_weights(graph: Graph, node: Node) -> bool:
    return node.target is aten.convolution.default and are_constant(graph, arguments(node)[1:3])


def is_only_read_by(graph: Graph, value: Value, node: Node) -> bool:
    return graph.readers(value) == [node] and value not in graph.outputs
