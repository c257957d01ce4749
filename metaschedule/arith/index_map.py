"""`IndexMap`: a change of layout, as a function of indices.

Read `IndexMap`. The proofs come from `iter_map.py`: True and an inverse only where they are
certain.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import ir
from .domain import Domain
from .iter_map import IterationMap, iteration_map
from .simplify import simplify


@dataclass(eq=False)
class IndexMap:
    """An affine map of indices with floor division and modulo.

    >>> pack = IndexMap.from_function(lambda i, j: (j // 16, i, j % 16), 2)
    >>> print(pack)
    (i, j) -> (j // 16, i, j % 16)
    >>> pack.output_shape((4, 64))
    (4, 4, 16)
    >>> print(pack.inverse((4, 64)))
    (j0, j1, j2) -> (j1, j0 * 16 + j2)
    """

    inputs: tuple[ir.Var, ...]
    outputs: tuple[ir.Expr, ...]

    @staticmethod
    def from_function(f: Callable[..., Sequence[ir.Operand] | ir.Operand], ndim: int) -> IndexMap:
        """The map that `f`, given `ndim` variables, returns as a tuple of expressions."""
        names = find_parameters(f)
        if names is None or len(names) != ndim:
            names = [f"i{at}" for at in range(ndim)]
        inputs = tuple(map(ir.Var, names))
        try:
            result: Any = f(*inputs)
        except TypeError as error:
            raise TypeError(f"the index map, called with {ndim} indices: {error}") from error
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        exprs = tuple([ir.as_expr(e) for e in outputs])
        for e in exprs:
            if not ir.is_integer(e.dtype):
                raise TypeError(f"an index map's outputs must be integers, got {e.dtype}: {e}")
        return IndexMap(inputs, exprs)

    def __call__(self, indices: Sequence[ir.Operand]) -> tuple[ir.Expr, ...]:
        """Where the element at `indices` goes."""
        values = dict(zip(self.inputs, [ir.as_expr(i) for i in indices], strict=True))
        return tuple([simplify(ir.substitute(e, values)) for e in self.outputs])

    def __str__(self) -> str:
        inputs = ", ".join([v.name for v in self.inputs])
        return f"({inputs}) -> ({', '.join([str(e) for e in self.outputs])})"

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Per output the extent of the smallest range from 0 that we can show to hold all images."""
        domain = Domain(self.extents(shape))
        if domain.empty:
            return (0,) * len(self.outputs)
        found = self.analysis(shape)
        extents: list[int] = []
        for at, e in enumerate(self.outputs):
            low, high = found.ranges[at] if found is not None else domain.bounds(e)
            if low is None or high is None or low < 0:
                why = "may be negative" if high is not None else "has no known bounds"
                raise ValueError(f"output {at} of the index map, {e}, {why} on shape {tuple(shape)}")
            extents.append(high + 1)
        return tuple(extents)

    def is_injective(self, shape: Sequence[int]) -> bool:
        """Whether different indices within `shape` certainly have different images."""
        found = self.analysis(shape)
        return found is not None and found.injective

    def inverse(self, shape: Sequence[int]) -> IndexMap:
        """The map from images back to indices. On what is no image it gives anything."""
        found = self.analysis(shape)
        if found is None:
            raise ValueError(f"the index map {self} is not affine on shape {tuple(shape)}")
        if not found.injective:
            raise ValueError(f"the index map {self} may send two indices of {tuple(shape)} to one")
        inputs = tuple([ir.Var(f"j{at}") for at in range(len(self.outputs))])
        domain = Domain({v: max(last + 1, 1) for v, (_, last) in zip(inputs, found.ranges)})
        if any(first < 0 for first, _ in found.ranges):
            domain = Domain()  # images are not indices counted from 0: claim nothing of them
        solved = found.solve(inputs)
        return IndexMap(inputs, tuple([simplify(solved[v], domain) for v in self.inputs]))

    def gaps(self, shape: Sequence[int], images: Sequence[ir.Var], domain: Domain) -> list[ir.Expr]:
        """Tests of which one at least holds where `images` are no image of an index within `shape`.

        >>> halves = IndexMap.from_function(lambda i: (i % 2, i // 2), 1)
        >>> a, b = ir.Var("a"), ir.Var("b")
        >>> [str(test) for test in halves.gaps((5,), (a, b), Domain({a: 2, b: 3}))]
        ['b * 2 + a >= 5']
        """
        back = self.inverse(shape)(images)
        tests = [ir.binary("<", index, 0) for index in back]
        tests += [ir.binary(">=", index, size) for index, size in zip(back, shape, strict=True)]
        tests += [ir.binary("!=", there, here) for there, here in zip(self(back), images, strict=True)]
        return [test for t in tests if not isinstance(test := simplify(t, domain), ir.Const)]

    def extents(self, shape: Sequence[int]) -> dict[ir.Var, int]:
        if len(shape) != len(self.inputs):
            raise ValueError(f"the index map {self} takes {len(self.inputs)} indices, not {shape}")
        return dict(zip(self.inputs, shape))

    def analysis(self, shape: Sequence[int]) -> IterationMap | None:
        return iteration_map(self.outputs, self.extents(shape))


def find_parameters(f: Any) -> list[str] | None:
    """The names that a function gives its indices; None if it does not say how many it takes."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    known = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    return [p.name for p in parameters] if known else None
