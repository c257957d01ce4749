"""Operators of ours with programs of their own: loops that no tensor expression says.

A tensor expression computes all elements of a result. These write some elements of a value that is there
already, or go only as far as a number in memory says. Such a node is a kernel by itself; its program is a
script whose loops have their kinds already, and runs as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ..ir import Program
from ..script import parse
from .graph import Graph, Node, Target, Value
from .windows import whole

if TYPE_CHECKING:
    from .fuse import Group

Names = Mapping[Value, str]
Body = Callable[[Node, Names], str]

OWN_PROGRAMS: dict[Target, Body] = {}


def has_own_program(*targets: Target) -> Callable[[Body], Body]:
    """Registers a function that writes the body of an operator's program, without indentation: it calls the
    tensors by the names given, and its results `y0`, `y1` ..."""

    def register(body: Body) -> Body:
        OWN_PROGRAMS.update(dict.fromkeys(targets, body))
        return body

    return register


def own_program(group: Group, graph: Graph) -> Program:
    """The program of a group of one node. It takes `group.inputs` and gives the node's results."""
    node = group.sink
    names = {v: f"{'w' if v in graph.constants else 'x'}{n}" for n, v in enumerate(group.inputs)}
    tensors = [f"{name}: T.Tensor({describe(value)})" for value, name in names.items()]
    tensors += [f"y{n}: T.Output({describe(value)})" for n, value in enumerate(node.results)]
    body = OWN_PROGRAMS[node.target](node, names)
    return parse_once(
        "\n".join([f"@ms.program\ndef {group.name}({', '.join(tensors)}):", *indent(body.split("\n"))])
    )


@lru_cache(maxsize=256)
def parse_once(text: str) -> Program:
    """All layers of a model have the same programs."""
    return parse(text)


def describe(value: Value) -> str:
    strides = whole(value).strides
    layout = "" if strides is None else f", strides={strides}"
    return f'{value.shape}, "{value.dtype}"{layout}'


def indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def lanes_of(extent: int, most: int = 16) -> int:
    """How many elements of a row are one vector: a power of two that divides it.

    >>> lanes_of(64), lanes_of(24), lanes_of(7)
    (16, 8, 1)
    """
    return min(extent & -extent, most)
