"""Random scalar expressions over given dimensions, reading tensors in all sorts of ways.

`Reader.tree` is the entry; what the nodes are is in `random_nodes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from metaschedule import te
from metaschedule.ir import DTYPES, Expr, is_integer
from tests.te import random_nodes as nodes
from tests.te.random_nodes import Env, Mesh, Node

EXTENTS = (2, 3, 1, 5, 7, 4, 3, 2, 5, 11, 13, 2, 3, 0)


@dataclass(eq=False)
class Known:
    """A tensor that may be read: `key` is its place in the environment of the reference."""

    tensor: te.Tensor
    key: int
    low: float
    high: float
    err: float


@dataclass(eq=False)
class Index:
    """One index of a read: expression, NumPy, and a condition under which the read is made."""

    te: Callable[[Sequence[Expr]], Expr]
    ref: Callable[[Env, Mesh], np.ndarray]
    bounds: tuple[int, int, int] | None = None  # axis, least and greatest value of its index


class Reader:
    """Draws expressions of the tensors it knows."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.known: list[Known] = []

    # --- drawing ---

    def pick(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def extents(self, rank: int, limit: int) -> tuple[int, ...]:
        shape: list[int] = []
        for _ in range(rank):
            fits = [n for n in EXTENTS if math.prod(shape) * max(n, 1) <= limit]
            shape.append(self.pick(fits))
        return tuple(shape)

    # --- expressions ---

    def tree(self, dims: tuple[int, ...], depth: int) -> Node:
        """An expression over `dims`: operators above reads."""
        if depth == 0 or self.number(0, 5) == 0:
            return self.read(dims)
        a = self.tree(dims, depth - 1)
        kind = self.pick(("arithmetic", "cast", "unary", "choose", "bits", "math", "halve"))
        made: Node | None = None
        if kind == "arithmetic":
            made = nodes.combine(self.pick([*nodes.ARITHMETIC]), a, self.tree(dims, depth - 1))
        elif kind == "cast":
            made = nodes.convert(a, self.pick(DTYPES))
        elif kind == "unary":
            op, by = self.pick(("-", "//", "%")), self.number(1, 3)
            made = nodes.negate(a) if op == "-" else nodes.divide(op, a, by)
        elif kind == "choose":
            made = nodes.choose(self.condition(dims), a, self.tree(dims, depth - 1))
        elif kind == "bits":
            made = nodes.bitwise(self.pick([*nodes.LOGIC]), a, self.tree(dims, depth - 1))
        elif kind == "math":
            made = nodes.smooth(self.pick([*nodes.SMOOTH]), a)
        elif kind == "halve":
            made = nodes.halve(self.pick(("floor", "ceil", "round", "trunc")), a)
        return a if made is None else made

    def condition(self, dims: tuple[int, ...]) -> Node:
        if dims and self.draw(st.booleans()):
            axis = self.number(0, len(dims) - 1)
            left = nodes.index(axis, dims[axis])
        else:
            left = self.read(dims)
        right = self.read(dims) if self.draw(st.booleans()) else nodes.constant(1, "int64")
        made = nodes.compare(self.pick([*nodes.COMPARISONS]), left, right)
        return made or nodes.constant(self.number(0, 1), "bool")

    def read(self, dims: tuple[int, ...], want: Callable[[str], bool] | None = None) -> Node:
        """A read of a tensor, somehow indexed by `dims`; a number if no tensor can be."""
        fit = [
            k for k in self.known if all(n or 0 in dims for n in k.tensor.shape)
            and (want is None or want(k.tensor.dtype))
        ]  # fmt: skip
        if not fit:
            return nodes.constant(self.number(0, 3), "int32")
        source = self.pick(fit)
        gather = want is None  # an index is not itself read by a gathered index
        at = [self.index(n, dims, gather) for n in source.tensor.shape]
        tensor, key, extents = source.tensor, source.key, source.tensor.shape

        def inside(i: Sequence[Expr]) -> list[Expr]:
            guards = [x.bounds for x in at if x.bounds]
            return [c for axis, low, high in guards for c in (i[axis] >= low, i[axis] <= high)]

        def make(i: Sequence[Expr]) -> Expr:
            element = tensor[tuple([x.te(i) for x in at])]
            guard = inside(i)
            return te.select(te.all_of(guard), element, te.constant(0, "int8").astype(
                tensor.dtype)) if guard else element  # fmt: skip

        def ref(env: Env, mesh: Mesh) -> np.ndarray:
            safe = [
                np.clip(x.ref(env, mesh), 0, n - 1) if x.bounds else x.ref(env, mesh)
                for x, n in zip(at, extents, strict=True)
            ]
            result = np.asarray(env[key][tuple(safe)])
            for x in at:
                if x.bounds:
                    axis, low, high = x.bounds
                    keep = (mesh[axis] >= low) & (mesh[axis] <= high)
                    result = np.where(keep, result, np.zeros((), result.dtype))
            return result

        low, high = min(source.low, 0), max(source.high, 0)
        return nodes.typed(tensor.dtype, low, high, 0, make, ref) if source.err == 0 else Node(
            tensor.dtype, low, high, source.err, make, ref)  # fmt: skip

    def index(self, n: int, dims: tuple[int, ...], gather: bool) -> Index:
        """A way of indexing a dimension of extent `n` by variables of these extents."""
        ways: list[Callable[[], Index]] = []
        for axis, m in enumerate(dims):
            if m <= n:
                ways.append(lambda a=axis, m=m: self.affine(a, 1, self.number(0, n - m)))
                ways.append(lambda a=axis: self.affine(a, -1, n - 1))
            if n and 2 * (m - 1) < n:
                ways.append(lambda a=axis, m=m: self.affine(a, 2, self.number(0, n - 1 - 2 * max(m - 1, 0))))  # fmt: skip # noqa: E501
            if n:
                ways.append(lambda a=axis: Index(
                    lambda i, a=a: i[a] % n, lambda env, mesh, a=a: mesh[a] % n))  # fmt: skip
                ways.append(lambda a=axis: self.padded(a, n))
            if n and (m - 1) // 2 < n:
                ways.append(lambda a=axis: Index(
                    lambda i, a=a: i[a] // 2, lambda env, mesh, a=a: mesh[a] // 2))  # fmt: skip
        if n:
            ways.append(lambda: self.fixed(n))
            if gather:
                ways.append(lambda: self.gathered(n, dims))
        return self.pick(ways)()

    def affine(self, axis: int, scale: int, offset: int) -> Index:
        return Index(lambda i: i[axis] * scale + offset, lambda env, mesh: mesh[axis] * scale + offset)  # fmt: skip # noqa: E501

    def padded(self, axis: int, n: int) -> Index:
        p = self.number(0, 2)
        shifted = self.affine(axis, 1, -p)
        return Index(shifted.te, shifted.ref, (axis, p, n - 1 + p))

    def fixed(self, n: int) -> Index:
        at = self.number(0, n - 1)
        return Index(lambda i: te.constant(at), lambda env, mesh: np.int64(at) + np.zeros((), int))

    def gathered(self, n: int, dims: tuple[int, ...]) -> Index:
        where = self.read(dims, is_integer)
        return Index(lambda i: where.te(i) % n, lambda env, mesh: where.ref(env, mesh) % n)
