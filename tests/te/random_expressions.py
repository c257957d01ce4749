"""Random tensor expressions: a Hypothesis strategy of programs with inputs and what NumPy gives.

    @given(random_expressions())
    def test_something(case):
        results = run(case.program, *case.inputs)
        case.check(results)              # or compare case.expected with case.tolerances yourself

A case has up to four stages over up to three inputs (and embedded tables): element-wise
expressions, broadcasts, transpositions, padding by select, strided, reversed and affine reads,
gathers, reductions (sum, prod, min, max, argmax, argmin, user-defined combiners of one and two
values; over triangles; as the whole body or inside an expression), blocks with two results. All
dtypes, with casts and promotion; extents 0, 1 and primes.

Data are small integers: where the tolerance is 0, every order of evaluation must give the same
bits. Where there are mathematical functions the tolerance is an absolute error bound, derived
operation by operation (see `random_nodes`; how tensors are read is in `random_reads`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from metaschedule import ir, te
from tests.te import random_nodes as nodes
from tests.te.random_nodes import Env, Mesh, Node
from tests.te.random_reads import Known, Reader

MOST = 1500  # points of a stage, so that interpreting one takes milliseconds


@dataclass(eq=False)
class RandomExpression:
    """A program, its inputs, and per output what NumPy gives and how far off a result may be."""

    program: ir.Program
    inputs: list[np.ndarray]
    reference: Callable[..., list[np.ndarray]]
    expected: list[np.ndarray]
    tolerances: list[float]  # absolute; 0: bit for bit

    def check(self, results: Any) -> None:
        """Fails unless `results` (an array, or a tuple of them) are what is expected."""
        given = list(results) if isinstance(results, tuple) else [results]
        assert len(given) == len(self.expected)
        for got, want, tolerance in zip(given, self.expected, self.tolerances, strict=True):
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            if tolerance == 0:
                np.testing.assert_array_equal(got, want)
            else:
                np.testing.assert_allclose(
                    got.astype(np.float64), want.astype(np.float64), rtol=0, atol=tolerance
                )

    def __repr__(self) -> str:
        arrays = "\n".join(
            f"{b.name} = np.array({a.tolist()}, {b.dtype!r})"
            for b, a in zip(self.program.inputs, self.inputs, strict=True)
        )
        return f"\n{self.program}\n{arrays}\n"


@st.composite
def random_expressions(draw: st.DrawFn, max_stages: int = 4) -> RandomExpression:
    """The strategy. Shrinks towards one element-wise stage of small extents."""
    return Builder(draw).build(max_stages)


class Builder(Reader):
    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(draw)
        self.inputs: list[tuple[te.Tensor, np.ndarray]] = []
        self.tables: dict[int, np.ndarray] = {}
        self.results: list[Known] = []
        self.steps: list[Callable[[Env], None]] = []

    def build(self, max_stages: int) -> RandomExpression:
        for n in range(self.number(1, 3)):
            self.add_input(n)
        for n in range(self.number(1, max_stages)):
            self.add_stage(f"s{n}")
        last, rest = self.results[-1], self.results[:-1]
        others = [k for k in rest if self.draw(st.booleans())]
        outputs = [*others, last]
        program = te.program([t for t, _ in self.inputs], [k.tensor for k in outputs])
        keys = [k.key for k in outputs]
        inputs, tables, steps = len(self.inputs), self.tables, self.steps
        places = [k.key for k in self.known if k.tensor.is_placeholder]

        def reference(*arrays: np.ndarray) -> list[np.ndarray]:
            assert len(arrays) == inputs
            env = dict(zip(places, arrays, strict=True)) | tables
            with np.errstate(all="ignore"):
                for step in steps:
                    step(env)
            return [env[key] for key in keys]

        arrays = [a for _, a in self.inputs]
        return RandomExpression(program, arrays, reference, reference(*arrays), [2 * k.err for k in outputs])

    def add_input(self, n: int) -> None:
        shape = self.extents(self.number(0, 3), 200)
        dtype = self.pick(("float32", *ir.DTYPES))
        least = 0 if dtype in ("uint8", "bool") else -4
        greatest = 1 if dtype == "bool" else 4
        rng = np.random.default_rng(self.number(0, 2**16))
        array = rng.integers(least, greatest + 1, shape).astype(ir.numpy_dtype(dtype))
        if n and array.size and array.ndim and self.number(0, 4) == 4:
            tensor = te.table(array, name=f"t{n}")
            self.tables[len(self.known)] = array
        else:
            tensor = te.placeholder(shape, dtype, name=f"x{n}")
            self.inputs.append((tensor, array))
        self.known.append(Known(tensor, len(self.known), least, greatest, 0))

    # --- stages ---

    def add_stage(self, name: str) -> None:
        kind = self.pick(("map", "reduce", "hoist", "pair", "both", "position", "custom", "triangle"))
        spatial = self.extents(self.number(0, 3), 200)
        if kind in ("map", "pair"):
            values = [self.tree(spatial, 3) for _ in range(2 if kind == "pair" else 1)]
            self.finish(name, spatial, values)
            return
        left = MOST // max(1, math.prod(spatial))
        axes = self.extents(self.number(1, 2), max(left, 3))
        if kind == "position" and 0 in axes:
            axes = tuple([max(n, 1) for n in axes])
        value = self.tree(spatial + axes, 2)
        if kind == "triangle" and spatial:
            self.finish(name, spatial, [self.triangle(value, spatial, axes)])
        elif kind == "position":
            self.finish(name, spatial, [self.position(value, spatial, axes)])
        elif kind == "custom":
            self.finish(name, spatial, self.custom(value, spatial, axes))
        elif kind == "both":
            shared: list[Any] = []
            pair = [self.reduced(self.pick(("sum", "max")), value, spatial, axes, shared) for _ in "12"]
            self.finish(name, spatial, pair)
        else:
            total = self.reduced(self.pick(("sum", "max", "min", "prod")), value, spatial, axes)
            if kind == "hoist":
                other = self.tree(spatial, 1)
                total = nodes.combine(self.pick(("+", "*", "max")), total, other) or total
                if self.draw(st.booleans()):
                    total = nodes.choose(self.condition(spatial), total, other) or total
            self.finish(name, spatial, [total])

    def finish(self, name: str, dims: tuple[int, ...], values: list[Node]) -> None:
        """Adds the stage that computes `values`."""

        def body(*i: ir.Expr) -> Any:
            made = [v.te(i) for v in values]
            return tuple(made) if len(made) > 1 else made[0]

        made = te.compute(dims, body, name=name)
        tensors = made if isinstance(made, tuple) else (made,)
        first = len(self.known)
        for n, (t, v) in enumerate(zip(tensors, values, strict=True)):
            assert t.dtype == v.dtype
            self.known.append(Known(t, first + n, v.low, v.high, v.err))
            self.results.append(self.known[-1])

        def step(env: Env) -> None:
            for n, v in enumerate(values):
                array = np.asarray(v.ref(env, open_mesh(dims)))
                assert array.dtype == ir.numpy_dtype(v.dtype), (array.dtype, v.dtype)
                env[first + n] = np.broadcast_to(array, dims).copy()

        self.steps.append(step)

    def reduced(
        self,
        op: str,
        value: Node,
        spatial: tuple[int, ...],
        axes: tuple[int, ...],
        shared: list[Any] | None = None,
    ) -> Node:
        """sum, prod, min or max; sum and prod fall back to max where exactness would be lost.

        Reductions with the same list `shared` are over the same axes, so one block can do both.
        """
        if value.dtype == "bool":
            value = nodes.convert(value, "int32") or value
        kind, count = value.dtype, math.prod(axes)
        if ir.is_float(kind):
            grown = value.size * count if op == "sum" else max(1.0, value.size) ** count
            limit = nodes.EXACT[kind] if op == "prod" or value.is_exact else nodes.LARGEST[kind]
            lost = not grown <= limit or (op == "prod" and not value.is_exact)
            if op in ("sum", "prod") and lost:
                op = "max"
        low, high, err = value.low, value.high, value.err
        if op == "sum":
            low, high = count * min(low, 0), count * max(high, 0)
            if err:
                err = count * (err + nodes.EPS[kind] * count * value.size)
        elif op == "prod":
            high = max(1.0, value.size) ** count
            low = -high
        elif not count:
            low, high = (-math.inf, math.inf) if ir.is_float(kind) else ir.integer_limits(kind)
        numpy_op = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
        make = {"sum": te.sum, "prod": te.prod, "min": te.min, "max": te.max}[op]
        own = [] if shared is None else shared

        def build(i: Sequence[ir.Expr]) -> ir.Expr:
            if not own:
                own.extend(te.reduce_axis(n) for n in axes)
            return make(value.te([*i, *own]), axis=list(own))

        def ref(env: Env, mesh: Mesh) -> np.ndarray:
            flat = every(value, env, spatial, axes)
            return fold(numpy_op, flat, identity(op, kind))

        if not count and op in ("min", "max"):  # infinite: nothing further is computed from it
            return Node(kind, low, high, 0, build, ref)
        return nodes.typed(kind, low, high, err, build, ref)

    def triangle(self, value: Node, spatial: tuple[int, ...], axes: tuple[int, ...]) -> Node:
        """A sum over an axis whose bounds depend on an index: low to min(index + 1, extent)."""
        axes = axes[:1]
        value = self.tree(spatial + axes, 2)
        if value.dtype == "bool" or (ir.is_float(value.dtype) and not value.is_exact):
            value = nodes.constant(2, "float32")
        axis, low = self.number(0, len(spatial) - 1), min(self.number(0, 1), axes[0])
        total = self.reduced("sum", value, spatial, axes)

        def build(i: Sequence[ir.Expr]) -> ir.Expr:
            k = te.reduce_axis((low, te.maximum(low, te.minimum(i[axis] + 1, axes[0]))))
            return te.sum(value.te([*i, k]), axis=k)

        def ref(env: Env, mesh: Mesh) -> np.ndarray:
            flat = every(value, env, spatial, axes)
            k = np.arange(axes[0])
            inside = (k >= low) & (k < open_mesh(spatial)[axis][..., None] + 1)
            return fold(np.add, np.where(inside, flat, np.zeros((), flat.dtype)), 0)

        return nodes.typed(value.dtype, total.low, total.high, 0, build, ref)

    def position(self, value: Node, spatial: tuple[int, ...], axes: tuple[int, ...]) -> Node:
        """argmax or argmin."""
        if not value.is_exact:
            value = nodes.constant(1, "float32")
        op = self.pick(("argmax", "argmin"))
        make, numpy_op = (te.argmax, np.argmax) if op == "argmax" else (te.argmin, np.argmin)

        def build(i: Sequence[ir.Expr]) -> ir.Expr:
            own = [te.reduce_axis(n) for n in axes]
            return make(value.te([*i, *own]), axis=own)

        def ref(env: Env, mesh: Mesh) -> np.ndarray:
            flat = every(value, env, spatial, axes).astype(np.float64)  # exact, see `Node`
            shape = flat.shape[:-1]
            return np.asarray(numpy_op(flat, axis=-1) if flat.size else np.zeros(shape, np.int64))

        return Node("int64", 0, math.prod(axes), 0, build, ref)

    def custom(self, value: Node, spatial: tuple[int, ...], axes: tuple[int, ...]) -> list[Node]:
        """A user's combiner: exclusive or of integers; the two largest of anything else."""
        own: list[Any] = []

        def along(i: Sequence[ir.Expr]) -> ir.Expr:
            if not own:
                own.extend(te.reduce_axis(n) for n in axes)
            return value.te([*i, *own])

        if ir.is_integer(value.dtype) and self.draw(st.booleans()):
            xor = te.reducer(lambda a, b: a ^ b, lambda dtype: 0, name="xor")
            low, high = ir.integer_limits(value.dtype)
            return [
                Node(
                    value.dtype, low, high, 0,
                    lambda i: xor(along(i), axis=list(own)),
                    lambda env, mesh: fold(np.bitwise_xor, every(value, env, spatial, axes), 0),
                )
            ]  # fmt: skip
        if value.dtype == "bool":
            value = nodes.convert(value, "int32") or value
        lowest = identity("max", value.dtype)
        top = te.reducer(
            lambda a, b: (
                te.maximum(a[0], b[0]),
                te.maximum(te.minimum(a[0], b[0]), te.maximum(a[1], b[1])),
            ),
            lambda d0, d1: (lowest, lowest),
            name="top",
        )
        cache: list[Any] = []

        def build(i: Sequence[ir.Expr], n: int) -> ir.Expr:
            if not cache:
                element = along(i)
                first = te.constant(lowest, value.dtype)
                cache.extend(top((element, first), axis=list(own)))
            return cache[n]

        def ref(env: Env, mesh: Mesh, n: int) -> np.ndarray:
            flat = every(value, env, spatial, axes)
            wide = np.float64 if ir.is_float(value.dtype) else np.int64
            filler = np.full((*flat.shape[:-1], 2), lowest, wide)
            ordered = np.sort(np.concatenate([flat.astype(wide), filler], axis=-1), axis=-1)
            return ordered[..., -1 - n].astype(flat.dtype)

        finite = ir.is_integer(value.dtype)
        low = lowest if finite or not math.prod(axes) else value.low
        largest = Node(value.dtype, low, value.high, value.err, lambda i: build(i, 0),
                       lambda env, mesh: ref(env, mesh, 0))  # fmt: skip
        if not finite and math.prod(axes) < 2:
            return [largest]  # the second may be infinite
        second = Node(value.dtype, low, value.high, value.err, lambda i: build(i, 1),
                      lambda env, mesh: ref(env, mesh, 1))  # fmt: skip
        return [largest, second]


def open_mesh(dims: Sequence[int]) -> list[np.ndarray]:
    """One index array per dimension, each along an axis of its own."""
    return [
        np.arange(n, dtype=np.int64).reshape([-1 if d == at else 1 for d in range(len(dims))])
        for at, n in enumerate(dims)
    ]


def every(node: Node, env: Env, spatial: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """All values of a node, its reduction axes flattened into the last."""
    dims = spatial + axes
    array = np.broadcast_to(node.ref(env, open_mesh(dims)), dims)
    return array.reshape((*spatial, math.prod(axes)))


def identity(op: str, dtype: str) -> Any:
    if op in ("sum", "prod"):
        return int(op == "prod")
    if ir.is_float(dtype):
        return math.inf if op == "min" else -math.inf
    return ir.integer_limits(dtype)[1 if op == "min" else 0]


def fold(f: Any, array: np.ndarray, first: Any) -> np.ndarray:
    """`f` over the last axis, one element after the other and in the array's own dtype."""
    result = np.full(array.shape[:-1], first, array.dtype)
    name = array.dtype.name
    step = nodes.computed(f, "bfloat16" if name == "bfloat16" else name)
    for n in range(array.shape[-1]):
        result = step(result, array[..., n])
    return np.asarray(result)
