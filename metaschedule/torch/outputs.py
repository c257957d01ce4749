"""What a model returns: with the strides that were traced, since Dynamo goes on with those.

Views are left to torch, and nothing is returned twice that eager would copy. A result that was traced in
another order than row-major (`x.t() * 2`, channels last) is computed in that order by its kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from .graph import Graph, Node, Value

aten = torch.ops.aten


@dataclass(frozen=True)
class ViewCall:
    """A view by torch: result number `index` of a call whose first argument is what it looks at."""

    target: OpOverload
    args: tuple[Any, ...]
    index: int


COPY = ViewCall(aten.clone.default, (), 0)


@dataclass(frozen=True)
class Given:
    """An input of this number, as the caller gave it."""

    number: int


@dataclass(frozen=True)
class Output:
    """`views` of a `source`: a value, later its place; or something else that the model returns. `origin` is
    the value that was traced there: values of different origin do not share memory in eager. `strides` are
    those to return; None if they follow from what is given."""

    source: Any
    origin: Value | None
    views: tuple[ViewCall, ...] = ()
    strides: tuple[int, ...] | None = None

    @property
    def is_own(self) -> bool:
        """Whether it is neither an input nor a weight, nor a view of one."""
        return self.origin is not None and self.origin.node is not None


def return_view_bases(graph: Graph) -> list[Output]:
    """Let the graph return what views among its outputs look at, in the order in which that was traced; torch
    then gives them the strides that they have in eager."""
    outputs: list[Output] = []
    ordered: dict[Value, Value] = {}
    for value in graph.outputs:
        strides = graph.strides.get(value) if isinstance(value, Value) else None
        views: list[ViewCall] = []
        while isinstance(value, Value) and value.node is not None and is_view(value.node):
            views.insert(0, ViewCall(viewing(value.node), value.node.args[1:], value.index))
            value = value.node.args[0]
        origin = value if isinstance(value, Value) else None
        if origin is not None and origin.node is not None and (order := find_traced_order(graph, origin)):
            if origin not in ordered:
                ordered[origin] = graph.call(aten.permute.default, origin, order)
            value = ordered[origin]
            views.insert(0, ViewCall(aten.permute.default, (inverse(order),), 0))
        if origin is None or origin in graph.inputs:
            strides = None
        outputs.append(Output(value, origin, tuple(views), strides))
    graph.outputs = [output.source for output in outputs]
    graph.prune()
    return outputs


def find_traced_order(graph: Graph, value: Value) -> list[int] | None:
    """The order of its dimensions in which a value was traced to lie densely in memory; None if that is
    row-major, or there is no such order.

    >>> graph = Graph()
    >>> x = graph.input("x", (2, 3, 1, 4))
    >>> graph.strides[x] = (12, 1, 5, 3)
    >>> find_traced_order(graph, x)
    [2, 0, 3, 1]
    """
    strides = graph.strides.get(value)
    if strides is None or 0 in value.shape:
        return None
    real = [d for d, n in enumerate(value.shape) if n > 1]
    order = sorted(real, key=lambda d: -strides[d])
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= value.shape[d]
    return None if order == real else [d for d, n in enumerate(value.shape) if n == 1] + order


def inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def restride(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor with these strides: itself, if they differ only where nothing is to be seen of it.

    >>> restride(torch.ones(2, 3), (1, 2)).stride()
    (1, 2)
    """
    if tensor.stride() == strides:
        return tensor
    pairs = zip(tensor.shape, tensor.stride(), strides)
    if not tensor.numel() or all(n == 1 or has == wants for n, has, wants in pairs):
        return tensor.as_strided(tensor.shape, strides)
    repeated = [0 if stride == 0 and n > 1 else n for n, stride in zip(tensor.shape, strides)]
    distinct = [1 if n == 0 else n for n in repeated]
    new = torch.empty_strided(distinct, strides, dtype=tensor.dtype)
    new.copy_(tensor[tuple([slice(0, n) for n in distinct])])
    return new.as_strided(tensor.shape, strides)


def is_view(node: Node) -> bool:
    plain = not node.kwargs and len(node.reads) == 1
    return isinstance(node.target, OpOverload) and node.target.is_view and plain


def viewing(node: Node) -> OpOverload:
    """What makes the view; strides may differ from those traced, so `view` must be able to copy."""
    assert isinstance(node.target, OpOverload)
    return aten.reshape.default if node.target is aten.view.default else node.target
