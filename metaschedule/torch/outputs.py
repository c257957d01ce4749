"""What a model returns: views are left to torch, and nothing is returned twice that eager would copy."""

from __future__ import annotations

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
class Output:
    """`views` of a `source`: a value, later its place; or something else that the model returns. `origin` is
    the value that was traced there: values of different origin do not share memory in eager."""

    source: Any
    origin: Value | None
    views: tuple[ViewCall, ...] = ()

    @property
    def is_own(self) -> bool:
        """Whether it is neither an input nor a weight, nor a view of one."""
        return self.origin is not None and self.origin.node is not None


def without_views(graph: Graph) -> list[Output]:
    """Let the graph return what views among its outputs look at; torch then gives them the strides that
    they have in eager."""
    outputs: list[Output] = []
    for value in graph.outputs:
        views: list[ViewCall] = []
        while isinstance(value, Value) and value.node is not None and is_view(value.node):
            views.insert(0, ViewCall(viewing(value.node), value.node.args[1:], value.index))
            value = value.node.args[0]
        outputs.append(Output(value, value if isinstance(value, Value) else None, tuple(views)))
    graph.outputs = [output.source for output in outputs]
    graph.prune()
    return outputs


def is_view(node: Node) -> bool:
    plain = not node.kwargs and len(node.reads) == 1
    return isinstance(node.target, OpOverload) and node.target.is_view and plain


def viewing(node: Node) -> OpOverload:
    """What makes the view; strides may differ from those traced, so `view` must be able to copy."""
    assert isinstance(node.target, OpOverload)
    return aten.reshape.default if node.target is aten.view.default else node.target
