"""Attention of a few queries to a cache, as far as its mask says.

A decoder with a static key-value cache multiplies a query by all keys of it, and masks what has not been
written yet. Where a mask lets nothing through beyond some position, neither keys nor values there matter:

    softmax(where(mask, q @ k.T * scale, -inf)) @ v   -->   cached_attention(q, k, v, mask, length)

where `length` is how many positions there are up to the last at which the mask is true for any query. It is
found at run time: the loops of the kernel (`torch/attention.py`) end there, and no length is compiled. Heads
of the query that share keys and values read them where they are. What is masked must be so with -inf, which
weighs exactly nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..graph import Graph, Node, Value

aten = torch.ops.aten
SOFTMAX = {aten._safe_softmax.default, aten._softmax.default}
MOST_QUERIES = 4  # from which on products of matrices are faster
SAMPLES = 4096


@dataclass(frozen=True)
class Attention:
    query: Value  # [heads, queries, features]
    keys: Value  # [shared heads, positions, features]
    values: Value
    mask: Value
    shape: tuple[int, ...]  # of the scores
    scale: float
    safe: bool  # zeros for a query that may see nothing, instead of NaN


def attend_to_caches(graph: Graph) -> None:
    """Let attention through a mask, of a few queries, be one node."""
    lengths: dict[Value, Value] = {}  # of masks: layers share them
    for node in list(graph.nodes):
        if node.target is aten.bmm.default and (found := find_attention(graph, node)):
            if found.mask not in lengths:
                lengths[found.mask] = find_length(graph, found.mask, before=node)
            length = lengths[found.mask]
            new = graph.call(
                "cached_attention",
                *(found.query, found.keys, found.values, found.mask, length),
                *(found.shape, found.scale, found.safe),
                results=[node.result.spec],
                before=node,
            )
            graph.replace(node.result, new)
    graph.prune()


def find_length(graph: Graph, mask: Value, before: Node) -> Value:
    """The number of the last position at which a mask is true, counted from 1."""
    counted = graph.constant("positions", torch.arange(1, mask.shape[-1] + 1))
    reached = graph.call(aten.mul.Tensor, mask, counted, before=before)
    most = graph.call(aten.amax.default, reached, list(range(len(mask.shape))), before=before)
    return graph.call(aten.reshape.default, most, [1], before=before)


def find_attention(graph: Graph, node: Node) -> Attention | None:
    """What a product of weights and values is made of, if the weights are those of masked scores."""
    weights, values = node.args
    softmax = behind_views(graph, weights)
    if softmax.target not in SOFTMAX or softmax.args[1] not in (-1, len(softmax.result.shape) - 1):
        return None
    masked = find_mask(softmax.args[0])
    if masked is None or node.result.dtype != "float32":
        return None
    scores, mask = masked
    scale, scores = find_scale(scores)
    product = None if scores is None else behind_views(graph, scores)
    if product is None or product.target is not aten.bmm.default:
        return None
    heads, queries, features = product.args[0].shape
    positions = product.args[1].shape[-1]
    shape = softmax.result.shape
    same = math.prod(shape[:-2]) == heads and shape[-2:] == (queries, positions)
    if queries > MOST_QUERIES or not same or mask.shape[-1] != positions or weights.dtype != "float32":
        return None
    keys = find_rows(graph, product.args[1], positions, features, transposed=True, before=node)
    rows = find_rows(graph, values, positions, values.shape[-1], transposed=False, before=node)
    if keys is None or rows is None or keys.shape[0] != rows.shape[0]:
        return None
    safe = softmax.target is aten._safe_softmax.default
    return Attention(product.args[0], keys, rows, mask, shape, scale, safe)


NOTHING = Node("nothing", (), {})


def behind_views(graph: Graph, value: Value) -> Node:
    """The node whose elements a value has in another shape, if it is for this alone."""
    node = value.node
    while node is not None and len(graph.readers(node.result)) == 1 and node.result not in graph.outputs:
        repeats = node.target is aten.expand.default and node.result.shape != node.args[0].shape
        if repeats or node.target not in (aten.expand.default, aten.reshape.default):
            return node
        node = node.args[0].node
    return NOTHING


def find_mask(scores: Value) -> tuple[Value, Value] | None:
    """The scores and the mask of masked ones: what is added is 0 or -inf, or -inf is in their place."""
    node = scores.node
    if node is None:
        return None
    if node.target is aten.where.self and is_number(node.args[2], -math.inf):
        return (node.args[1], node.args[0]) if is_over(node.args[0], node.args[1]) else None
    if node.target is aten.add.Tensor and not node.kwargs and isinstance(node.args[1], Value):
        for own, bias in (node.args, node.args[::-1]):
            where = bias.node
            if where is None or where.target is not aten.where.self or own.shape != scores.shape:
                continue
            if is_number(where.args[1], 0.0) and is_number(where.args[2], -math.inf):
                return own, where.args[0]
    return None


def is_over(mask: Value, scores: Value) -> bool:
    return len(mask.shape) <= len(scores.shape) and scores.dtype == "float32"


def is_number(value: Any, number: float) -> bool:
    """Whether a value is this number, everywhere."""
    node = value.node if isinstance(value, Value) else None
    if node is None:
        return isinstance(value, (int, float)) and value == number
    if node.target is aten.scalar_tensor.default:
        return node.args[0] == number
    if node.target is aten.full.default:
        return node.args[1] == number
    return node.target in (aten.expand.default, aten.reshape.default) and is_number(node.args[0], number)


def find_scale(scores: Value) -> tuple[float, Value | None]:
    node = scores.node
    if node is not None and node.target is aten.mul.Tensor and isinstance(node.args[1], (int, float)):
        return float(node.args[1]), node.args[0]
    return 1.0, scores


def find_rows(
    graph: Graph, value: Value, positions: int, features: int, transposed: bool, before: Node
) -> Value | None:
    """The tensor of which a batch of matrices shows rows: matrix number `n` those of number `n // times`."""
    heads = value.shape[0]
    rng = np.random.default_rng(0)
    lines = [np.arange(heads), np.arange(positions), np.arange(features)]
    size = sum(map(len, lines)) + SAMPLES
    index = [rng.integers(0, len(line), size) for line in lines]
    at = 0
    for n, line in enumerate(lines):  # all of each, and much of all together
        for own, other in enumerate(index):
            other[at : at + len(line)] = line if own == n else 0
        at += len(line)
    head, position, feature = index
    seen = [head, feature, position] if transposed else [head, position, feature]
    root, found = trace_elements(value, seen)
    shared, rest = divmod(math.prod(root.shape), positions * features)
    if rest or shared == 0 or heads % shared:
        return None
    expected = (head // (heads // shared) * positions + position) * features + feature
    if not np.array_equal(found, expected):
        return None
    shape = [shared, positions, features]
    return (
        root if root.shape == tuple(shape) else graph.call(aten.reshape.default, root, shape, before=before)
    )


def trace_elements(value: Value, index: Sequence[np.ndarray]) -> tuple[Value, np.ndarray]:
    """What a value shows by views, and which elements of that, in row-major order, those at `index` are."""
    while value.node is not None:
        target, args = value.node.target, value.node.args
        if target is aten.reshape.default:
            flat = np.ravel_multi_index(index, value.shape)
            index = np.unravel_index(flat, args[0].shape)
        elif target is aten.permute.default:
            back = dict(zip([d % len(value.shape) for d in args[1]], index))
            index = [back[d] for d in range(len(value.shape))]
        elif target is aten.expand.default:
            own = index[len(value.shape) - len(args[0].shape) :]
            index = [i * (n > 1) for i, n in zip(own, args[0].shape)]
        else:
            break
        value = args[0]
    return value, np.ravel_multi_index(index, value.shape)
