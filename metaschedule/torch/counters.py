"""Numbers that a graph counts beside its tensors, such as how many tokens a cache has seen.

Dynamo makes an integer attribute that changes from call to call an input of the graph, and what it becomes an
output. Where no tensor depends on it, the plan is the same whatever it is:

    def forward(n, x): return n + 1, relu(x)  -->  n + 1 in Python, beside a graph of relu(x)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

Symbols = set[Any]
UNUSED = 0  # in the place of a number that tensors do not depend on


class Counting:
    """`run` takes the arguments of a call and gives its tensors; numbers are computed beside it."""

    _boxed_call = True  # AOTAutograd passes the arguments as one list

    def __init__(
        self, run: Callable[[list[Any]], list[Any]], numbers: torch.fx.GraphModule, given: Sequence[int]
    ) -> None:
        self.run, self.numbers, self.given = run, numbers, given

    def __call__(self, args: list[Any]) -> list[Any]:
        numbers = self.numbers(*[args[n] for n in self.given])
        args = [UNUSED if n in self.given else arg for n, arg in enumerate(args)]
        results = iter(self.run(args))
        return [next(results) if number is None else number for number in numbers]


def with_counters(
    module: torch.fx.GraphModule, compile: Callable[[torch.fx.GraphModule], Callable[[list[Any]], list[Any]]]
) -> Callable[[list[Any]], list[Any]]:
    """What `compile` makes of a functional graph without the numbers that only numbers depend on."""
    symbols = {symbol for node in module.graph.nodes for symbol in symbols_of(node)}
    counted = symbols - set(used_by_tensors(module.graph))
    inputs = module.graph.find_nodes(op="placeholder")
    given = [n for n, node in enumerate(inputs) if is_number(node) and symbols_of(node) & counted]
    (output,) = module.graph.find_nodes(op="output")
    outputs = list(output.args[0])
    kept = [one for one in outputs if not is_counted(one, counted)]
    if not given or not any(isinstance(one, torch.fx.Node) for one in kept):
        return compile(module)
    rest = torch.fx.Graph()
    copies: dict[torch.fx.Node, Any] = {}
    rest.graph_copy(module.graph, copies)
    rest.output([copies.get(one, one) for one in kept])
    for n in given:
        copies[inputs[n]].meta["val"] = UNUSED
    numbers = number_graph([inputs[n] for n in given], outputs, counted)
    return Counting(compile(torch.fx.GraphModule(module, rest)), torch.fx.GraphModule({}, numbers), given)


def number_graph(inputs: Sequence[torch.fx.Node], outputs: Sequence[Any], counted: Symbols) -> torch.fx.Graph:
    """Of the outputs that are counted; None for the others."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}

    def copy(node: torch.fx.Node) -> torch.fx.Node:
        if node not in copies:
            copies[node] = graph.node_copy(node, copy)
        return copies[node]

    for node in inputs:
        copy(node)
    graph.output([copy(one) if is_counted(one, counted) else None for one in outputs])
    return graph


def used_by_tensors(graph: torch.fx.Graph) -> Iterator[Any]:
    """The symbols of all that is not a number, nor computed with numbers alone."""
    for node in graph.nodes:
        if node.op == "output" or is_number(node):
            continue
        yield from symbols_of(node)
        for read in node.all_input_nodes:
            yield from symbols_of(read)


def is_number(node: torch.fx.Node) -> bool:
    """Whether it is a number that only numbers were computed with."""
    return isinstance(node.meta.get("val"), torch.SymInt) and all(map(is_number, node.all_input_nodes))


def is_counted(item: Any, counted: Collection[Any]) -> bool:
    return isinstance(item, torch.fx.Node) and is_number(item) and symbols_of(item) <= set(counted)


def symbols_of(node: torch.fx.Node) -> Symbols:
    """The symbols in what a node gives."""
    found: Symbols = set()
    values = node.meta.get("val")
    for value in values if isinstance(values, (list, tuple)) else [values]:
        parts: list[Any] = [value]
        if isinstance(value, torch.Tensor):
            parts = [*value.shape, *value.stride(), value.storage_offset()]
        for part in parts:
            if isinstance(part, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                found |= part.node.expr.free_symbols
    return found
