"""The interpreter against NumPy, its two ways of running against each other, and its errors."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaschedule import ir
from metaschedule.interpreter import InterpreterError, interpret
from metaschedule.interpreter.lanes import LaneNest, find_nest
from metaschedule.interpreter.numeric import round_once
from metaschedule.interpreter.walk import Interpreter
from metaschedule.script import parse


def script(text: str) -> ir.Program:
    """A program as written; not verified, because many here are wrong on purpose."""
    return parse(textwrap.dedent(text), check=False)


def run(program: ir.Program, *inputs: Any) -> Any:
    """The result, the same bits with and without lanes."""
    results = [interpret(program, *inputs, lanes=lanes) for lanes in (False, True, None)]
    first, *others = [r if isinstance(r, tuple) else (r,) for r in results]
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()
    return results[0]


def failure(program: ir.Program, *inputs: Any) -> str:
    """The text of the error, the same with and without lanes."""
    texts: set[str] = set()
    for lanes in (False, True, None):
        with pytest.raises(InterpreterError) as error:
            interpret(program, *inputs, lanes=lanes)
        texts.add(str(error.value))
    assert len(texts) == 1
    return texts.pop()


def runs_in_lanes(program: ir.Program, *inputs: Any) -> bool:
    """Whether some nest of the program was done by lanes to the end."""
    done: list[bool] = []
    original = LaneNest.run

    def spy(self: LaneNest) -> bool:
        done.append(original(self))
        return done[-1]

    LaneNest.run = spy
    try:
        interpret(program, *inputs, lanes=True)
    finally:
        LaneNest.run = original
    return any(done)


def floats(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(ir.numpy_dtype(dtype))


def integers(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Small integers: sums of products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(ir.numpy_dtype(dtype))


# --- loops and blocks -----------------------------------------------------------------------------

MATMUL = """
    @ms.program
    def matmul(A: T.Tensor((5, 7)), B: T.Tensor((7, 6)), C: T.Output((5, 6))):
        for i, j, k in T.grid(5, 6, 7):
            with T.block("matmul"):
                vi = T.spatial(5, i)
                vj = T.spatial(6, j)
                vk = T.reduce(7, k)
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    """


def test_matmul():
    a, b = integers(5, 7), integers(7, 6, seed=1)
    program = script(MATMUL)
    assert np.array_equal(run(program, a, b), a @ b)
    assert runs_in_lanes(program, a, b)


def test_terms_are_added_in_the_order_of_the_loops():
    x = floats(1000)
    program = script("""
        @ms.program
        def total(X: T.Tensor((1000,)), S: T.Output(())):
            for i in range(1000):
                with T.block("total"):
                    v = T.reduce(1000, i)
                    with T.init():
                        S[()] = 0.0
                    S[()] = S[()] + X[v]
        """)
    result = run(program, x)
    assert result.shape == ()
    assert isinstance(result, np.ndarray)
    assert result == np.add.accumulate(x)[-1]


@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled", *ir.GPU_AXES])
def test_every_kind_of_loop_is_the_serial_loop(kind: str):
    a, c, i = ir.Buffer("A", (9,)), ir.Buffer("C", (9,)), ir.Var("i")
    program = ir.Program(
        "double", (a,), (c,), (ir.For(i, ir.const(9), (ir.Store(c, (i,), a[i] * 2.0),), kind),)
    )
    x = floats(9)
    assert np.array_equal(run(program, x), x * 2)


@pytest.mark.parametrize("extent", ["0", "-3", "N[()]"])
def test_a_loop_without_iterations_does_nothing(extent: str):
    program = script(f"""
        @ms.program
        def nothing(N: T.Tensor((), "int32"), C: T.Output((2,))):
            for i in range(2):
                C[i] = 1.0
            for i in range({extent}):
                C[99] = 0.0
        """)
    assert run(program, np.int32(-1)).tolist() == [1, 1]


def test_an_output_without_elements():
    program = script("""
        @ms.program
        def empty(A: T.Tensor((0, 3)), C: T.Output((0, 3))):
            for i, j in T.grid(0, 3):
                C[i, j] = A[i, j]
        """)
    assert run(program, floats(0, 3)).shape == (0, 3)


def test_init_runs_where_all_reduction_iterators_are_zero():
    program = script("""
        @ms.program
        def count(C: T.Output((3,), "int64")):
            for i, a, b in T.grid(3, 2, 4):
                with T.block("count"):
                    vi = T.spatial(3, i)
                    va = T.reduce(2, a)
                    vb = T.reduce(4, b)
                    with T.init():
                        C[vi] = 100
                    C[vi] = C[vi] + 1
        """)
    assert run(program).tolist() == [108] * 3


def test_predicate_holds_off_instances_and_what_they_would_read():
    program = script("""
        @ms.program
        def guarded(A: T.Tensor((7,)), C: T.Output((7,))):
            for o, i in T.grid(2, 4):
                with T.block("guarded"):
                    T.where(o * 4 + i < 7)
                    T.where(A[o * 4 + i] != 99.0)
                    v = T.spatial(7, o * 4 + i)
                    C[v] = A[v] + 1.0
        """)
    x = floats(7)
    assert np.array_equal(run(program, x), x + np.float32(1))
    assert runs_in_lanes(program, x)


def test_rows_in_the_domain_may_still_belong_to_the_next_tile():
    # 12 rows as 2 tiles of 6, each as 2 of 4: without the predicate rows 6 and 7 are counted twice
    program = script("""
        @ms.program
        def twice(A: T.Tensor((12, 3)), C: T.Output((12,))):
            for i0, i1, i2, k in T.grid(2, 2, 4, 3):
                with T.block("twice"):
                    T.where(i1 * 4 + i2 < 6)
                    T.where(i0 * 6 + (i1 * 4 + i2) < 12)
                    v = T.spatial(12, i0 * 6 + (i1 * 4 + i2))
                    vk = T.reduce(3, k)
                    with T.init():
                        C[v] = 0.0
                    C[v] = C[v] + A[v, vk]
        """)
    x = integers(12, 3)
    assert np.array_equal(run(program, x), x.sum(1))
    assert runs_in_lanes(program, x)


def test_block_buffers_live_for_one_instance():
    text = """
        @ms.program
        def local(A: T.Tensor((4,)), C: T.Output((4,))):
            for i in range(4):
                with T.block("outer"):
                    v = T.spatial(4, i)
                    t = T.alloc((2,), "float32", scope="local")
                    {first}
                    for j in range(2):
                        C[v] = t[j]
        """
    x = floats(4)
    good = text.format(first="t[0], t[1] = A[v], A[v] * 2.0")
    assert np.array_equal(run(script(good), x), x * 2)
    bad = text.format(first="if v == 0: t[0], t[1] = 1.0, 2.0")
    assert "read of t[0] before it was written" in failure(script(bad), x)


def test_nested_blocks_and_opaque_blocks():
    program = script("""
        @ms.program
        def tiles(A: T.Tensor((8, 6)), C: T.Output((8,))):
            for i in range(4):
                with T.block("tile"):
                    vi = T.spatial(4, i)
                    for j, k in T.grid(2, 6):
                        with T.block("row"):
                            vj = T.spatial(2, j)
                            vk = T.reduce(6, k)
                            with T.init():
                                C[vi * 2 + vj] = 0.0
                            C[vi * 2 + vj] = C[vi * 2 + vj] + A[vi * 2 + vj, vk]
            with T.block("opaque"):
                for i in range(8):
                    C[i] = -C[i]
        """)
    x = integers(8, 6)
    assert np.array_equal(run(program, x), -x.sum(1))


def test_iterator_extents_may_depend_on_iterators_and_loads():
    program = script("""
        @ms.program
        def triangle(N: T.Tensor((4,), "int32"), C: T.Output((4, 4), "int64")):
            for i, j in T.grid(4, 4):
                C[i, j] = 0
            for i in range(4):
                for j in range(i + 1):
                    with T.block("triangle"):
                        vi = T.spatial(4, i)
                        vj = T.spatial(T.min(vi + 1, T.cast(N[vi], "int64")), j)
                        C[vi, vj] = vi * 10 + vj
        """)
    full = np.full(4, 9, np.int32)
    expected = np.tril(np.add.outer(np.arange(4) * 10, np.arange(4)))
    assert np.array_equal(run(program, full), expected)
    error = failure(program, np.array([1, 2, 2, 9], np.int32))
    assert "iterator vj of block triangle is bound to 2, outside its range of 2" in error
    assert 'in block "triangle"\nin loops i=2, j=2' in error


def test_a_binding_below_zero():
    program = script("""
        @ms.program
        def below(C: T.Output((4,))):
            for i in range(20):
                with T.block("b"):
                    v = T.spatial(4, i - 1)
                    C[v] = 1.0
        """)
    assert failure(program).startswith("iterator v of block b is bound to -1, outside its range of 4")


# --- statements -----------------------------------------------------------------------------------


def test_tuple_store_computes_every_value_before_any_store():
    program = script("""
        @ms.program
        def swap(A: T.Tensor((5,)), B: T.Output((5,)), C: T.Output((5,))):
            for i in range(5):
                B[i] = A[i]
                C[i] = -A[i]
            for i in range(5):
                B[i], C[i] = C[i], B[i]
        """)
    x = floats(5)
    b, c = run(program, x)
    assert np.array_equal(b, -x)
    assert np.array_equal(c, x)


def test_argmax_gives_a_tuple_in_the_order_of_the_outputs():
    program = script("""
        @ms.program
        def argmax(A: T.Tensor((6, 11)), P: T.Output((6,), "int64"), M: T.Output((6,))):
            for i, k in T.grid(6, 11):
                with T.block("argmax"):
                    vi = T.spatial(6, i)
                    vk = T.reduce(11, k)
                    with T.init():
                        P[vi], M[vi] = -1, T.float32("-inf")
                    P[vi], M[vi] = (
                        T.select(A[vi, vk] > M[vi], vk, P[vi]),
                        T.select(A[vi, vk] > M[vi], A[vi, vk], M[vi]),
                    )
        """)
    x = floats(6, 11)
    where, value = run(program, x)
    assert np.array_equal(where, x.argmax(1))
    assert np.array_equal(value, x.max(1))
    assert runs_in_lanes(program, x)


def test_branches_and_several_stores():
    program = script("""
        @ms.program
        def branches(A: T.Tensor((4, 6)), B: T.Output((4, 6)), C: T.Output((4, 6))):
            for i, j in T.grid(4, 6):
                if A[i, j] > 0.0:
                    B[i, j] = A[i, j]
                    if j > 2:
                        B[i, j] = B[i, j] + 1.0
                    C[i, j] = B[i, j]
                else:
                    C[i, j] = 0.0
                    B[i, j] = C[i, j]
        """)
    x = floats(4, 6)
    b, c = run(program, x)
    expected = np.where(x > 0, x + (np.arange(6) > 2), 0).astype(np.float32)
    assert np.array_equal(b, expected)
    assert np.array_equal(c, expected)
    assert runs_in_lanes(program, x)


def test_while_searches():
    program = script("""
        @ms.program
        def searchsorted(
            A: T.Tensor((10,), "int32"), Q: T.Tensor((5,), "int32"), C: T.Output((5,), "int64")
        ):
            for i in range(5):
                with T.block("search"):
                    v = T.spatial(5, i)
                    high = T.alloc((), "int64")
                    C[v], high[()] = 0, 10
                    while C[v] < high[()]:
                        if A[(C[v] + high[()]) // 2] < Q[v]:
                            C[v] = (C[v] + high[()]) // 2 + 1
                        else:
                            high[()] = (C[v] + high[()]) // 2
        """)
    a = np.sort(np.random.default_rng(0).integers(0, 50, 10)).astype(np.int32)
    q = np.array([0, 7, 20, 35, 60], np.int32)
    assert np.array_equal(run(program, a, q), np.searchsorted(a, q))


def test_sparse_rows_have_loaded_extents():
    program = script("""
        @ms.program
        def csr(
            P: T.Tensor((5,), "int32"), J: T.Tensor((6,), "int32"), V: T.Tensor((6,)),
            D: T.Tensor((4, 20)), C: T.Output((4, 20)),
        ):
            for i, j in T.grid(4, 20):
                C[i, j] = 0.0
            for i in range(4):
                for p in range(P[i + 1] - P[i]):
                    for j in range(20):
                        C[i, j] = C[i, j] + V[P[i] + p] * D[J[P[i] + p], j]
        """)
    p, j = np.array([0, 2, 2, 3, 6], np.int32), np.array([0, 3, 1, 0, 2, 3], np.int32)
    values, d = integers(6), integers(4, 20, seed=1)
    dense = np.zeros((4, 4), np.float32)
    for row in range(4):
        for at in range(p[row], p[row + 1]):
            dense[row, j[at]] += values[at]
    assert np.array_equal(run(program, p, j, values, d), dense @ d)


def test_assertion():
    program = script("""
        @ms.program
        def checked(A: T.Tensor((40,)), C: T.Output((40,))):
            for i in range(40):
                assert A[i] >= 0.0, "negative weight"
                C[i] = T.sqrt(A[i])
        """)
    x = np.abs(floats(40))
    assert np.array_equal(run(program, x), np.sqrt(x))
    x[[3, 20]] = -1
    assert failure(program, x) == textwrap.dedent("""\
        negative weight
        in loops i=3

        @ms.program
        def checked(A: T.Tensor((40,), "float32"), C: T.Output((40,), "float32")):
            for i in range(40):
                assert A[i] >= 0.0, "negative weight"
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^  does not hold
                C[i] = T.sqrt(A[i])""")


def test_guarded_reads_never_happen():
    program = script("""
        @ms.program
        def padded(A: T.Tensor((5,)), B: T.Output((9,)), C: T.Output((9,), "bool")):
            for i in range(9):
                B[i] = T.select(i >= 2 and i < 7, A[i - 2], 0.0)
                C[i] = i >= 2 and i < 7 and A[i - 2] > 0.0 or (i >= 5 or not A[i] > 0.0)
        """)
    x = floats(5)
    b, c = run(program, x)
    assert np.array_equal(b, np.pad(x, 2))
    late, early = np.pad(x, 2) > 0, np.append(~(x > 0), [True] * 4)
    assert np.array_equal(c, late | early)
    assert runs_in_lanes(program, x)


def test_scatter_with_conflicts_keeps_the_order():
    program = script("""
        @ms.program
        def histogram(
            X: T.Tensor((50,), "int64"), H: T.Output((8,), "int64"), L: T.Output((8,), "int64")
        ):
            for i in range(8):
                H[i], L[i] = 0, -1
            for i in range(50):
                H[X[i]] = H[X[i]] + 1
            for i in range(50):
                L[X[i]] = i
        """)
    x = np.random.default_rng(0).integers(0, 8, 50)
    counts, last = run(program, x)
    assert np.array_equal(counts, np.bincount(x, minlength=8))
    assert last.tolist() == [int(np.flatnonzero(x == v)[-1]) for v in range(8)]


def test_a_scan_and_an_in_place_reversal_keep_the_order():
    program = script("""
        @ms.program
        def scan(
            A: T.Tensor((30,), "int64"), C: T.Output((30,), "int64"), R: T.Output((30,), "int64")
        ):
            for i in range(30):
                C[i] = A[i] + T.select(i > 0, C[i - 1], 0)
                R[i] = A[i]
            for i in range(30):
                R[i] = R[29 - i]
        """)
    x = np.arange(30) ** 2
    c, r = run(program, x)
    assert np.array_equal(c, np.cumsum(x))
    assert np.array_equal(r, np.concatenate([x[:14:-1], x[15:]]))


def test_a_table_is_part_of_the_program():
    program = script("""
        @ms.program
        def looked_up(I: T.Tensor((4,), "int32"), C: T.Output((4,), "float16")):
            W = T.table([1.5, 2.5, "inf"], (3,), "float16")
            for i in range(4):
                C[i] = W[I[i]]
        """)
    assert run(program, np.array([2, 0, 1, 1], np.int32)).tolist() == [math.inf, 1.5, 2.5, 2.5]


# --- arithmetic -----------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -3.0, 1e-7, 6e-8, 1e30, -1e38, 65504.0, 1e308]
SPECIAL += [math.inf, -math.inf, math.nan, 7.25, -2.5, 1.5, 2.5, 1e-310, 88.0, -700.0]


def samples(dtype: str) -> np.ndarray:
    """Values that are awkward in `dtype`, and some ordinary ones."""
    rng = np.random.default_rng(1)
    if dtype == "bool":
        return np.array([False, True])
    if ir.is_float(dtype):
        with np.errstate(over="ignore"):
            return np.array(SPECIAL + list(rng.standard_normal(12))).astype(ir.numpy_dtype(dtype))
    low, high = ir.integer_limits(dtype)
    some = [low, low + 1, high, high - 1, 0, 1, 2, 3, 5, 7, 31, 64]
    return np.array(some + ([-1, -2, -7] if low < 0 else []), ir.numpy_dtype(dtype))


def elementwise(make: Callable[..., ir.Expr], *arrays: np.ndarray) -> np.ndarray:
    """`make` of the elements of the arrays, by a program."""
    n = arrays[0].size
    inputs = tuple(ir.Buffer(f"A{k}", (n,), str(a.dtype)) for k, a in enumerate(arrays))
    i = ir.Var("i")
    value = make(*[b[i] for b in inputs])
    out = ir.Buffer("C", (n,), value.dtype)
    program = ir.Program(
        "elementwise", inputs, (out,), (ir.For(i, ir.const(n), (ir.Store(out, (i,), value),)),)
    )
    return run(program, *arrays)


def assert_same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    if a.dtype.kind in "iub":
        assert np.array_equal(a, b)
        return
    with np.errstate(all="ignore"):
        a, b = a.astype(np.float64), b.astype(np.float64)
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    assert np.all(equal | (np.isnan(a) & np.isnan(b)))


UFUNCS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.true_divide,
    "//": np.floor_divide, "%": np.remainder, "min": np.minimum, "max": np.maximum,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    "==": np.equal, "!=": np.not_equal,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": np.left_shift, ">>": np.right_shift,
}  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def is_defined(op: str, dtype: str) -> bool:
    if op in ("&", "|", "^", "<<", ">>"):
        return dtype in ir.INTEGERS
    return op in COMPARISONS or ir.is_float(dtype) or (op != "/" and dtype in ir.INTEGERS)


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op in UFUNCS for dtype in ir.DTYPES if is_defined(op, dtype)]
)
def test_operators_are_numpys(op: str, dtype: str):
    values = samples(dtype)
    a, b = (x.reshape(-1).copy() for x in np.meshgrid(values, values))
    if op in ("//", "%") and dtype in ir.INTEGERS:
        a, b = a[b != 0], b[b != 0]
    if op in ("<<", ">>"):
        keep = (b >= 0) & (b < a.dtype.itemsize * 8)
        a, b = a[keep], b[keep]
    kind = "bool" if op in COMPARISONS else dtype
    got = elementwise(lambda x, y: ir.Binary(op, x, y, kind), a, b)
    with np.errstate(all="ignore"):
        expected = UFUNCS[op](a, b)
    if op in ("min", "max"):  # NumPy gives a zero of either sign, depending on the dtype
        got, expected = got + got.dtype.type(0), expected + got.dtype.type(0)
    assert_same(got, expected)


@pytest.mark.parametrize("dtype", ir.DTYPES)
def test_unary_operators_are_numpys(dtype: str):
    x = samples(dtype)
    ops: dict[str, Any] = {"not": np.logical_not} if dtype == "bool" else {"-": np.negative}
    if dtype in ir.INTEGERS:
        ops["~"] = np.invert
    for op, ufunc in ops.items():
        assert_same(elementwise(lambda a, op=op: ir.Unary(op, a, a.dtype), x), ufunc(x))


@pytest.mark.parametrize("want", ir.DTYPES)
@pytest.mark.parametrize("have", ir.DTYPES)
def test_casts_are_numpys(have: str, want: str):
    x = samples(have)
    with np.errstate(all="ignore"):
        assert_same(elementwise(lambda a: ir.Cast(a, want), x), x.astype(ir.numpy_dtype(want)))


def exact(name: str, *args: float) -> float:
    """A function of Python floats, by the math module."""
    x = args[0]
    try:
        if name == "pow":
            return math.pow(*args)
        if name in ("exp", "expm1", "sqrt", "tan", "asin", "acos", "atan", "sinh", "cosh"):
            return getattr(math, name)(x)
        return {
            "exp2": lambda: math.pow(2.0, x), "rsqrt": lambda: 1 / math.sqrt(x),
            "sigmoid": lambda: 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x)),
            "round": lambda: float(round(x)) if math.isfinite(x) else x,
            "floor": lambda: float(math.floor(x)) if math.isfinite(x) else x,
            "ceil": lambda: float(math.ceil(x)) if math.isfinite(x) else x,
            "trunc": lambda: float(math.trunc(x)) if math.isfinite(x) else x,
            "abs": lambda: abs(x),
        }.get(name, lambda: getattr(math, name)(x))()  # fmt: skip
    except (OverflowError, ValueError, ZeroDivisionError):
        return math.nan  # infinities and poles are tested below


@pytest.mark.parametrize("dtype", ir.FLOATS)
@pytest.mark.parametrize("name", [n for n in ir.FUNCTIONS if n not in ("isnan", "isinf")])
def test_functions_are_computed_in_float64_and_rounded_once(name: str, dtype: str):
    x = samples(dtype)
    args = [x] if ir.FUNCTIONS[name] == 1 else [v.reshape(-1).copy() for v in np.meshgrid(x, x)]
    got = elementwise(lambda *a: ir.Call(name, a, dtype), *args)
    assert got.dtype == ir.numpy_dtype(dtype)
    wide = [a.astype(np.float64).tolist() for a in args]
    expected = np.array([exact(name, *point) for point in zip(*wide)])
    known = np.isfinite(expected)
    with np.errstate(all="ignore"):
        rounded = expected.astype(got.dtype)[known]
    if dtype == "float64":  # two libraries, each off by an ulp or so
        assert np.all(np.abs(got[known] - rounded) <= 4 * np.spacing(np.abs(rounded)))
    else:
        assert np.array_equal(got[known], rounded)


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("dtype", ir.FLOATS)
@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("exp", [(-INF, 0.0), (INF, INF), (NAN, NAN), (1e4, INF), (-1e4, 0.0)]),
        ("expm1", [(-INF, -1.0), (INF, INF), (NAN, NAN)]),
        ("log", [(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (NAN, NAN), (1.0, 0.0)]),
        ("log1p", [(-1.0, -INF), (-2.0, NAN), (INF, INF)]),
        ("sqrt", [(-1.0, NAN), (INF, INF), (-0.0, -0.0)]),
        ("rsqrt", [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (4.0, 0.5)]),
        ("tanh", [(INF, 1.0), (-INF, -1.0), (NAN, NAN)]),
        ("erf", [(INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)]),
        ("sigmoid", [(INF, 1.0), (-INF, 0.0), (NAN, NAN), (0.0, 0.5)]),
        ("sin", [(INF, NAN), (-0.0, -0.0)]),
        ("asin", [(2.0, NAN)]),
        ("round", [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (INF, INF), (NAN, NAN)]),
        ("floor", [(-0.5, -1.0), (-INF, -INF)]),
        ("abs", [(-0.0, 0.0), (-INF, INF), (NAN, NAN)]),
    ],
)
def test_special_values_of_functions(name: str, points: list[tuple[float, float]], dtype: str):
    x, expected = np.array(points).T
    got = elementwise(lambda a: ir.Call(name, (a,), dtype), x.astype(ir.numpy_dtype(dtype)))
    assert_same(got, expected.astype(ir.numpy_dtype(dtype)))


def test_rounding_to_bfloat16_happens_once():
    # just above the middle of two bfloat16 values; in float32 it is the middle, which rounds down
    x = np.array([1 + 2**-8 + 2**-40, -1 - 2**-8 - 2**-40, 1 + 2**-8, 1e39, 1e-60, math.nan])
    with np.errstate(all="ignore"):
        got = round_once(x, ir.numpy_dtype("bfloat16"))
    expected = np.array([1.0078125, -1.0078125, 1.0, math.inf, 0.0, math.nan])
    assert_same(got, expected.astype(ir.numpy_dtype("bfloat16")))


@pytest.mark.parametrize("dtype", ir.FLOATS)
def test_tests_for_nan_and_infinity(dtype: str):
    x = samples(dtype)
    assert_same(elementwise(lambda a: ir.Call("isnan", (a,), "bool"), x), np.isnan(x))
    assert_same(elementwise(lambda a: ir.Call("isinf", (a,), "bool"), x), np.isinf(x))


def test_every_intermediate_is_rounded():
    x = np.array([2048, 60000], np.float16)
    assert elementwise(lambda a: a + 1.0 - a, x).tolist() == [0.0, 0.0]
    assert elementwise(lambda a: a * 2.0 / 2.0, x).tolist() == [2048, math.inf]
    y = np.array([200], np.uint8)
    assert elementwise(lambda a: (a + 100) // 2, y).tolist() == [22]


# --- errors ---------------------------------------------------------------------------------------


def test_out_of_bounds_read_names_everything():
    program = script("""
        @ms.program
        def shifted(A: T.Tensor((4, 30)), C: T.Output((4, 30))):
            for i, j in T.grid(4, 30):
                with T.block("shift"):
                    vi = T.spatial(4, i)
                    vj = T.spatial(30, j)
                    T.reads(A[vi, vj + vi])
                    T.writes(C[vi, vj])
                    C[vi, vj] = A[vi, vj + vi]
        """)
    assert failure(program, floats(4, 30)) == textwrap.dedent("""\
        read of A[1, 30] is out of bounds: the shape of A is (4, 30)
        in block "shift" at vi=1, vj=29
        in loops i=1, j=29

        @ms.program
        def shifted(A: T.Tensor((4, 30), "float32"), C: T.Output((4, 30), "float32")):
            for i, j in T.grid(4, 30):
                with T.block("shift"):
                    vi = T.spatial(4, i)
                    vj = T.spatial(30, j)
                    T.reads(A[vi, vj + vi])
                    T.writes(C[vi, vj])
                    C[vi, vj] = A[vi, vj + vi]
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^  A[1, 30]: out of bounds""")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("C[i] = A[i - 1]", "read of A[-1] is out of bounds: the shape of A is (20,)"),
        ("C[i + 1] = A[i]", "write of C[20] is out of bounds: the shape of C is (20,)"),
        ("C[i - 1] = A[i]", "write of C[-1] is out of bounds"),
        ("C[i] = C[i] + A[i]", "read of C[0] before it was written"),
        ("if i > 3: C[i] = A[i]", "output C[0] was never written"),
        ("C[i] = T.cast(7 // i, 'float32')", "integer division by zero: 7 // 0 in 7 // i"),
        ("C[i] = T.cast(7 % i, 'float32')", "integer division by zero: 7 % 0"),
        ("A[i] = 1.0", "write of A[0]: A is an input, which nothing may change"),
        ("assert i < 7", "assertion failed: i < 7"),
    ],
)
def test_errors(body: str, message: str):
    program = script(f"""
        @ms.program
        def wrong(A: T.Tensor((20,)), C: T.Output((20,))):
            for i in range(20):
                {body}
        """)
    assert failure(program, floats(20)).startswith(message)


def test_never_written_output_names_the_first_element():
    program = script("""
        @ms.program
        def holes(A: T.Tensor((4, 5)), C: T.Output((4, 5))):
            for i, j in T.grid(4, 5):
                if i * 5 + j != 19:
                    C[i, j] = A[i, j]
        """)
    assert failure(program, floats(4, 5)).startswith("output C[3, 4] was never written")


def test_a_variable_or_buffer_outside_its_scope():
    i, j = ir.Var("i"), ir.Var("j")
    c, t = ir.Buffer("C", (4,)), ir.Buffer("t", (4,))
    loop = ir.For(i, ir.const(4), (ir.Store(c, (i,), ir.const(1.0)),))
    stray = ir.Program("stray", (), (c,), (loop, ir.Store(c, (i,), ir.const(2.0))))
    assert failure(stray).startswith("variable i is used outside its scope")
    lost = ir.Program("lost", (), (c,), (ir.For(i, ir.const(4), (ir.Store(c, (i,), t[i]),)),))
    assert failure(lost).startswith("buffer t is not a parameter and is not allocated here")
    v = ir.Var("v")
    inner = ir.Block("b", (ir.Iter(v, ir.const(4)),), (i,), (), (), (ir.Store(c, (v,), ir.const(0.0)),))
    after = ir.For(j, ir.const(4), (ir.For(i, ir.const(4), (inner, ir.Store(c, (v,), ir.const(1.0)))),))
    assert failure(ir.Program("gone", (), (c,), (after,))).startswith("variable v is used outside")


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((), "matmul takes 2 input(s) (A, B), got 0"),
        ((floats(5, 7), floats(7, 6), floats(5, 6)), "matmul takes 2 input(s) (A, B), got 3"),
        (
            (floats(5, 7), floats(6, 7)),
            "input 1 (B): expected float32 of shape (7, 6), got float32 of shape (6, 7)",
        ),
        (
            (np.zeros((5, 7)), floats(7, 6)),
            "input 0 (A): expected float32 of shape (5, 7), got float64 of shape (5, 7)",
        ),
    ],
)
def test_inputs_are_checked(inputs: tuple[np.ndarray, ...], message: str):
    with pytest.raises(InterpreterError) as error:
        interpret(script(MATMUL), *inputs)
    assert str(error.value) == message


def test_inputs_may_be_strided_and_are_not_modified():
    a, b = integers(7, 5).T, integers(7, 12, seed=1)[:, ::-2]
    copies = a.copy(), b.copy()
    assert np.array_equal(run(script(MATMUL), a, b), a @ b)
    assert np.array_equal(a, copies[0])
    assert np.array_equal(b, copies[1])


# --- lanes and walk agree -------------------------------------------------------------------------


def nest(loops: list[ir.For]) -> ir.For:
    """Loops given outermost first, the innermost with its body, as one nest."""
    inner = loops[-1]
    for outer in reversed(loops[:-1]):
        inner = ir.For(outer.var, outer.extent, (inner,), outer.kind)
    return inner


def tiled(sizes: tuple[int, int, int], factors: tuple[int, int, int], order: tuple[int, ...]) -> ir.Program:
    """A matmul with each loop split in two, the tail held off, and the six loops in some order."""
    n, m, k = sizes
    a, b, c = ir.Buffer("A", (n, k)), ir.Buffer("B", (k, m)), ir.Buffer("C", (n, m))
    outer, inner = [ir.Var("i0"), ir.Var("j0"), ir.Var("k0")], [ir.Var("i1"), ir.Var("j1"), ir.Var("k1")]
    vi, vj, vk = ir.Var("vi"), ir.Var("vj"), ir.Var("vk")
    at = [o * f + i for o, f, i in zip(outer, factors, inner)]
    iters = (ir.Iter(vi, ir.const(n)), ir.Iter(vj, ir.const(m)), ir.Iter(vk, ir.const(k), "reduce"))
    update = ir.Store(c, (vi, vj), c[vi, vj] + a[vi, vk] * b[vk, vj])
    block = ir.Block(
        "matmul", iters, tuple(at), (), (c.region(vi, vj),), (update,),
        init=(ir.Store(c, (vi, vj), ir.const(0.0)),), predicate=tuple(e < s for e, s in zip(at, sizes)),
    )  # fmt: skip
    extents = [-(-s // f) for s, f in zip(sizes, factors)] + list(factors)
    loops = [ir.For((outer + inner)[x], ir.const(extents[x]), ()) for x in order]
    loops[-1] = ir.For(loops[-1].var, loops[-1].extent, (block,))
    return ir.Program("tiled", (a, b), (c,), (nest(loops),))


@given(
    st.tuples(*[st.integers(1, 7)] * 3),
    st.tuples(*[st.integers(1, 4)] * 3),
    st.permutations(range(6)),
)
def test_tiled_matmul(sizes: tuple[int, int, int], factors: tuple[int, int, int], order: list[int]):
    # outer reduction loops must stay outside inner ones: else `init` comes after the first terms
    k0, k1 = sorted((order.index(2), order.index(5)))
    order[k0], order[k1] = 2, 5
    n, m, k = sizes
    a, b = integers(n, k), integers(k, m, seed=1)
    program = tiled(sizes, factors, tuple(order))
    assert np.array_equal(run(program, a, b), a @ b)
    assert runs_in_lanes(program, a, b)


def test_tiled_matmul_of_some_size():
    a, b = integers(64, 64), integers(64, 64, seed=1)
    program = tiled((64, 64, 64), (6, 16, 8), (0, 1, 2, 3, 5, 4))
    assert np.array_equal(interpret(program, a, b), a @ b)


@pytest.mark.parametrize(
    ("statement", "qualifies"),
    [
        ("C[i, j] = A[i, j]", True),
        ("C[i, j] = C[i, j] + A[j, i]", True),
        ("C[j, i] = C[j, i] + C[j, i]", True),
        ("C[i, 0] = A[i, j]", True),
        ("C[0, 0] = A[i, j]", False),  # no loop to make lanes of
        ("C[i, j] = C[j, i]", False),  # reads what another lane may write
        ("C[i, j] = C[i, 0 + j]", False),  # not seen to be the same
        ("C[i, D[i]], D[i] = A[i, j], 0", False),  # the place moves
        ("while A[i, j] < 0.0: C[i, j] = A[i, j]", False),
    ],
)
def test_which_nests_run_in_lanes(statement: str, qualifies: bool):
    program = script(f"""
        @ms.program
        def square(A: T.Tensor((4, 4)), C: T.Output((4, 4)), D: T.Output((4,), "int64")):
            for i, j in T.grid(4, 4):
                {statement}
        """)
    loop = program.body[0]
    assert isinstance(loop, ir.For)
    assert (find_nest(loop, Interpreter({})) is not None) == qualifies


def test_a_lane_that_only_reads_what_another_writes():
    program = script("""
        @ms.program
        def echo(C: T.Output((10,), "int64"), D: T.Output((20,), "int64")):
            for i in range(20):
                C[i // 2], D[i] = 1, 0
            for t, i in T.grid(2, 20):
                if i % 2 == 0:
                    D[i] = C[i // 2]
                else:
                    C[i // 2] = 5
        """)
    c, d = run(program)
    assert c.tolist() == [5] * 10
    assert d.tolist() == [5, 0] * 10


def test_an_extent_that_the_nest_changes():
    program = script("""
        @ms.program
        def shrinking(N: T.Output((4,), "int64")):
            for i in range(4):
                N[i] = 4
            for i in range(3):
                for j in range(N[0]):
                    N[j] = N[j] - 1
        """)
    assert run(program).tolist() == [1, 1, 2, 3]


def test_a_nest_of_too_many_lanes_peels_its_outer_loops(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("metaschedule.interpreter.lanes.MOST", 10)
    a, b = integers(5, 7), integers(7, 6, seed=1)
    assert np.array_equal(run(script(MATMUL), a, b), a @ b)
    assert runs_in_lanes(script(MATMUL), a, b)


NUMBERS = {(a, b): st.integers(a, b) for a in range(-3, 3) for b in [*range(a, 10), 99]}


class Nests:
    """Draws small programs that are often legal, often conflicting, sometimes wrong."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw = draw
        self.a, self.x = ir.Buffer("A", (4, 3)), ir.Buffer("X", (5,), "int64")
        self.c = ir.Buffer("C", (4, 3))
        self.d = ir.Buffer("D", (6,), self.pick("int64", "int8"))

    def number(self, low: int, high: int) -> int:
        return self.draw(NUMBERS[low, high])

    def pick(self, *choices: Any) -> Any:
        return choices[self.number(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent  # shrinks to no

    def index(self, scope: list[ir.Var], extent: int, depth: int = 0) -> ir.Expr:
        """An affine index, usually brought into range, sometimes read from X."""
        e: ir.Expr = ir.const(self.number(-1, 2))
        for v in scope:
            if self.chance(40):
                e = e + v * self.pick(1, 1, 2, 3, -1)
        if self.chance(15):
            e = e // self.pick(2, 3)
        if depth == 0 and self.chance(20):
            e = self.x[self.index(scope, 5, 1)]
        how = self.number(0, 9)
        if how < 7:
            return e % extent
        return ir.minimum(ir.maximum(e, 0), extent - 1) if how < 9 else e

    def place(self, scope: list[ir.Var], buffer: ir.Buffer) -> tuple[ir.Expr, ...]:
        if scope and self.chance(50):  # plain variables: the common, conflict-free case
            return tuple(self.pick(*scope) % extent for extent in buffer.shape)
        return tuple(self.index(scope, extent) for extent in buffer.shape)

    def condition(
        self, scope: list[ir.Var], own: dict[ir.Buffer, tuple[ir.Expr, ...]], depth: int = 0
    ) -> ir.Expr:
        kind = self.number(0, 3 if depth == 0 else 2)
        if kind < 2:
            op = self.pick("<", ">=", "==", "!=")
            return ir.Binary(op, self.index(scope, 5), ir.const(self.number(0, 4)), "bool")
        if kind == 2:
            return ir.Binary("<", self.value(scope, own, 2), ir.const(0.5, "float32"), "bool")
        a, b = self.condition(scope, own, 1), self.condition(scope, own, 1)
        return ir.Binary(self.pick("and", "or"), a, b, "bool")

    def value(
        self, scope: list[ir.Var], own: dict[ir.Buffer, tuple[ir.Expr, ...]], depth: int = 0
    ) -> ir.Expr:
        """A float32; reads of the stored buffers are mostly of the lane's own element."""
        kind = self.number(0, 9 if depth < 2 else 4)
        if kind == 0:
            return ir.const(self.number(-3, 3), "float32")
        if kind == 1:
            return self.index(scope, 9).astype("float32")
        if kind <= 4:
            buffer = self.pick(self.a, self.c, self.c, self.d)
            at = own.get(buffer)
            if at is None or self.chance(15):
                at = self.place(scope, buffer)
            return buffer[at].astype("float32")
        if kind == 5:
            x, y = self.index(scope, 4), self.index(scope, 3) + min(self.number(0, 9), 1)
            return ir.Binary(self.pick("//", "%"), x, y, "int64").astype("float32")
        a, b = self.value(scope, own, depth + 1), self.value(scope, own, depth + 1)
        if kind == 6:
            return ir.Select(self.condition(scope, own), a, b, "float32")
        op = self.pick("+", "-", "*", "min", "max")
        return ir.Binary(op, a, b, "float32")

    def stores(
        self, scope: list[ir.Var], own: dict[ir.Buffer, tuple[ir.Expr, ...]], depth: int = 0
    ) -> ir.Body:
        body: list[ir.Stmt] = []
        for _ in range(self.number(1, 2 - depth)):
            made: list[ir.Store] = []
            for buffer in self.pick([self.c], [self.d], [self.c, self.d]):
                at = own[buffer] if self.chance(90) else self.place(scope, buffer)
                value = self.value(scope, own)
                if buffer is self.d:  # within int8, where a cast is defined
                    value = ir.minimum(ir.maximum(value, -9.0), 9.0).astype(buffer.dtype)
                made.append(ir.Store(buffer, at, value))
            stmts: ir.Body = tuple(made)
            if len(made) > 1 and self.chance(60):
                stmts = (ir.TupleStore(tuple(made)),)
            if depth == 0 and self.chance(30):
                orelse = self.stores(scope, own, 1) if self.chance(30) else ()
                stmts = (ir.If(self.condition(scope, own), stmts, orelse),)
            if self.chance(5):
                stmts += (ir.Assert(self.condition(scope, own), "drawn"),)
            body += stmts
        return tuple(body)

    def body(self, scope: list[ir.Var]) -> ir.Body:
        if self.chance(30):
            return self.stores(scope, {b: self.place(scope, b) for b in (self.c, self.d)})
        iters: list[ir.Iter] = []
        bindings: list[ir.Expr] = []
        for at in range(self.number(1, 3)):
            extent = self.number(2, 6)
            kind = self.pick("spatial", "spatial", "reduce")
            iters.append(ir.Iter(ir.Var(f"v{at}"), ir.const(extent), kind))
            bindings.append(self.index(scope, extent))
        inside = [it.var for it in iters]
        spatial = [it.var for it in iters if it.kind == "spatial"]
        own = {b: self.place(spatial, b) for b in (self.c, self.d)}
        predicate = [self.condition(scope, {}) for _ in range(self.number(0, 2))]
        init = self.stores(spatial, own) if self.chance(50) else ()
        return (
            ir.Block("b", tuple(iters), tuple(bindings), (), (), self.stores(inside, own), init,
                  tuple(predicate)),
        )  # fmt: skip

    def fill(self, buffer: ir.Buffer) -> ir.Stmt:
        variables = [ir.Var(f"f{d}") for d in range(len(buffer.shape))]
        start = ir.Store(buffer, tuple(variables), ir.const(1, buffer.dtype))
        loops = [ir.For(v, ir.const(n), ()) for v, n in zip(variables, buffer.shape)]
        loops[-1] = ir.For(variables[-1], loops[-1].extent, (start,))
        return nest(loops)

    def program(self) -> ir.Program:
        stmts: list[ir.Stmt] = [self.fill(b) for b in (self.c, self.d) if self.chance(85)]
        for _ in range(self.number(1, 2)):
            scope = [ir.Var(f"i{d}") for d in range(self.number(1, 4))]
            loops: list[ir.For] = []
            for at, v in enumerate(scope):
                extent: ir.Expr = ir.const(self.number(0 if self.chance(5) else 1, 4))
                if self.chance(10):
                    extent = self.index(scope[:at], 4)
                loops.append(ir.For(v, extent, ()))
            loops[-1] = ir.For(scope[-1], loops[-1].extent, self.body(scope))
            stmts.append(nest(loops))
        return ir.Program("drawn", (self.a, self.x), (self.c, self.d), tuple(stmts))


@st.composite
def programs(draw: Callable[..., Any]) -> ir.Program:
    return Nests(draw).program()


def outcome(program: ir.Program, inputs: tuple[np.ndarray, ...], lanes: bool | None) -> Any:
    try:
        result = interpret(program, *inputs, lanes=lanes)
    except InterpreterError as error:
        return str(error)
    return [array.tobytes() for array in result]


@given(programs())
def test_lanes_do_what_the_walk_does(program: ir.Program):
    inputs = floats(4, 3), np.array([2, 0, 4, 1, 3])
    walked = outcome(program, inputs, False)
    assert outcome(program, inputs, True) == walked
    assert outcome(program, inputs, None) == walked


def test_conditions_combine():
    x = floats(30)
    got = elementwise(lambda a: ir.select(ir.all_of([a > 0.0, a < 1.0]), a, ir.Const(9.0, "float32")), x)
    assert np.array_equal(got, np.where((x > 0) & (x < 1), x, np.float32(9)))


def test_product_of_ranges_is_program_order():
    """Sequences of (i, j) that a loop nest visits, seen through a counter."""
    program = script("""
        @ms.program
        def visit(N: T.Output((), "int64"), C: T.Output((3, 4), "int64")):
            N[()] = 0
            for j, i in T.grid(4, 3):
                C[i, j] = N[()]
                N[()] = N[()] + 1
        """)
    _, c = run(program)
    expected = {(i, j): n for n, (j, i) in enumerate(itertools.product(range(4), range(3)))}
    assert all(c[at] == n for at, n in expected.items())
