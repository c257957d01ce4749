"""Windows: values that need no kernel, because they are part of another value's memory.

`x[t]` is the memory of `x` from some address on, `x[:, t]` the same with rows that are further apart. A
kernel that reads one takes it as an argument with these strides (`ir.Layout`): its program does not know
which `t` it was, so that equal steps of a recurrence are one kernel.
"""

from __future__ import annotations

import torch

from ..ir import dense_strides, normal_strides, reach
from .graph import Node, Value, Window
from .lowering import LOWERINGS, Kind

aten = torch.ops.aten
CUTS = {aten.slice.Tensor, aten.select.int}


def whole(value: Value) -> Window:
    """Where a value is: in its own memory, if it is no window."""
    return value.window or Window(value)


def window_of(node: Node, source: Window) -> Window | None:
    """The result of a node as part of the memory that its input is in; None if elements would have to move.

    >>> from .graph import Graph
    >>> graph = Graph()
    >>> x = graph.input("x", (2, 8, 4))
    >>> column = graph.call(aten.select.int, x, 1, 3)
    >>> found = window_of(column.node, whole(x))
    >>> found.offset, found.strides
    (12, (32, 1))
    >>> window_of(graph.call(aten.reshape.default, column, [8]).node, found) is None
    True
    """
    value, result = node.reads[0], node.result
    strides = source.strides or dense_strides(value.shape)
    size = source.offset + reach(value.shape, strides)[1]
    memory = torch.empty(size, device="meta").as_strided(value.shape, strides, source.offset)
    if node.target in CUTS:
        seen = node.target(memory, *node.args[1:], **node.kwargs)
    elif is_view(node):
        try:
            seen = memory.view(result.shape)
        except RuntimeError:  # what torch says of strides that no view has
            return None
    else:
        return None
    return Window(source.root, int(seen.storage_offset()), normal_strides(result.shape, seen.stride()))


def is_view(node: Node) -> bool:
    return node.target in LOWERINGS and LOWERINGS[node.target].kind == Kind.VIEW
