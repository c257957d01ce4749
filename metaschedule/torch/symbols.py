"""Symbolic sizes of a traced graph: what they are in a call, and arguments of other sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from .sizes import other_sizes, size_class


class Symbols:
    """The sizes that Dynamo, or `torch.export`, left open in the inputs of a graph; none without a graph."""

    def __init__(self, module: torch.fx.GraphModule | None) -> None:
        placeholders = [] if module is None else module.graph.find_nodes(op="placeholder")
        self.inputs = [node.meta.get("val") for node in placeholders]

    def values(self, args: Sequence[Any]) -> dict[Any, int]:
        """What the symbols are in a call, by symbol, in the order of their appearance."""
        found: dict[Any, int] = {}
        for given, arg in zip(self.inputs, args):
            if isinstance(given, torch.SymInt):
                add_symbol(found, given, arg)
            elif isinstance(given, torch.Tensor) and isinstance(arg, torch.Tensor):
                for dim, size in zip(given.shape, arg.shape):
                    add_symbol(found, dim, size)
        return found

    def arguments_of_other_sizes(self, args: Sequence[Any], fixed: Collection[int]) -> Iterator[list[Any]]:
        """Arguments like those of a call, but of other sizes; those of `fixed` places stay. What tensors
        hold is undefined."""
        now = self.values(args)
        choices = [other_sizes(size) for size in now.values()]
        for n in range(max(map(len, choices), default=0)):
            sizes = {symbol: sizes[min(n, len(sizes) - 1)] for symbol, sizes in zip(now, choices)}
            if (found := self.arguments_of_sizes(args, fixed, sizes)) is not None:
                yield found

    def arguments_of_class(self, args: Sequence[Any], fixed: Collection[int]) -> list[Any] | None:
        """Such arguments of the largest sizes that share kernels with these."""
        sizes = {symbol: size_class(size) for symbol, size in self.values(args).items()}
        return self.arguments_of_sizes(args, fixed, sizes)

    def arguments_of_sizes(
        self, args: Sequence[Any], fixed: Collection[int], sizes: dict[Any, int]
    ) -> list[Any] | None:
        try:
            return [
                arg if place in fixed else resize(given, arg, sizes)
                for place, (given, arg) in enumerate(zip(self.inputs, args))
            ]
        except (TypeError, ValueError, RuntimeError):  # an expression of other symbols
            return None


def add_symbol(found: dict[Any, int], dim: Any, size: Any) -> None:
    if isinstance(dim, torch.SymInt) and isinstance(size, int) and dim.node.expr.is_Symbol:
        found.setdefault(dim.node.expr, size)


def resize(given: Any, arg: Any, sizes: dict[Any, int]) -> Any:
    """An argument of these sizes."""

    def number(dim: Any) -> int:
        return int(dim.node.expr.subs(sizes)) if isinstance(dim, torch.SymInt) else dim

    if isinstance(given, torch.SymInt):
        return number(given)
    if isinstance(given, torch.Tensor) and isinstance(arg, torch.Tensor):
        shape, strides = [number(n) for n in given.shape], [number(n) for n in given.stride()]
        return torch.empty_strided(shape, strides, dtype=arg.dtype)
    return arg
