# ruff: noqa: E501  (programs as they print)
"""What the script means: every statement and every piece of sugar, as the program prints."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import pytest

from metaschedule import ir
from metaschedule.script import parse

MATMUL = """\
@ms.program
def matmul(
    A: T.Tensor((4, 8), "float32"),
    B: T.Tensor((8, 4), "float32", constant=True),
    C: T.Output((4, 4), "float32"),
):
    T.annotate({"origin": "test", "sizes": (4, 8), "nested": {"x": T.float64("inf"), "y": None}})
    L = T.alloc((4, 4), "float32", scope="local")
    for i in T.parallel(4, annotations={"jobs": 2}):
        for j, k in T.grid(4, 8):
            with T.block("L"):
                vi = T.spatial(4, i)
                vj = T.spatial(4, j)
                vk = T.reduce(8, k)
                T.where(i * 4 + j < 15)
                T.where(k < 8)
                T.reads(A[vi, vk], B[vk, vj])
                T.writes(L[vi, vj])
                T.annotate({"tile": (1,)})
                with T.init():
                    L[vi, vj] = 0.0
                L[vi, vj] = L[vi, vj] + A[vi, vk] * B[vk, vj]
    for i in T.bind(2, "blockIdx.x"):
        for j in T.vectorized(4):
            for k in T.unrolled(2):
                C[i * 2 + k, j] = L[i * 2 + k, j]"""

EVERYTHING = """\
@ms.program
def every(X: T.Tensor((4,), "float16"), N: T.Tensor((), "int32"), Y: T.Output((4,), "float16")):
    W = T.table([1.0, "inf", "-inf", "nan", -0.0], (5,), "bfloat16")
    I = T.table([True, False], (2, 1), "bool", scope="shared")
    L = T.alloc((4,), "int64")
    with T.block("opaque \\"quoted\\""):
        T.reads(X[0 : T.size(4)], N[()], W[0 : T.size(T.int32(5))], I[0, 0])
        T.writes(Y[0 : T.size(4)], L[0 : T.size(4)])
        S = T.alloc((1,), "uint8", scope="warp")
        S[0] = 0
        if N[()] < 3:
            pass
        elif N[()] == 4 or not I[0, 0]:
            L[0], L[1] = 1, -9223372036854775808
        else:
            Y[0] = T.neg(T.float16(1.0))
        while L[0] < 10 and T.cast(S[0], "int64") != 3:
            L[0] = L[0] + (2 - -1) * 3 // 2 % 5
        assert -L[0] < 3
        assert ~L[0] << 2 & 3 == 0, "two\\nlines"
        Y[1] = T.select(T.isnan(X[0]), T.min(X[0], 1.5), T.max(X[1], T.float16("inf")))
        Y[2] = T.pow(X[0], X[1] / 2.0)"""


@pytest.mark.parametrize("text", [MATMUL, EVERYTHING], ids=["matmul", "everything"])
def test_printed_programs_parse_to_the_same_text(text: str) -> None:
    program = parse(text)
    assert str(program) == text
    assert ir.structural_equal(parse(str(program)), program)


def test_the_parts_of_a_program() -> None:
    program = parse(MATMUL)
    assert repr(program) == ("<Program matmul(A: float32[4, 8], B: float32[8, 4]) -> C: float32[4, 4]>")
    assert [b.constant for b in program.inputs] == [False, True]
    assert program.allocs[0].scope == "local"
    assert program.annotations == {
        "origin": "test",
        "sizes": (4, 8),
        "nested": {"x": math.inf, "y": None},
    }
    outer = program.body[0]
    assert isinstance(outer, ir.For)
    assert (outer.kind, outer.fixed_extent, outer.annotations) == ("parallel", 4, {"jobs": 2})
    block = ir.blocks(program)[0]
    assert [it.kind for it in block.iters] == ["spatial", "spatial", "reduce"]
    assert len(block.predicate) == 2
    table = parse(EVERYTHING).allocs[0].data
    assert table is not None
    np.testing.assert_array_equal(
        table.astype("float32"), np.array([1, np.inf, -np.inf, np.nan, -0.0], "float32")
    )
    assert math.copysign(1, float(table[4])) == -1


HEAD = (
    "@ms.program\n"
    'def f(A: T.Tensor((8,), "float32"), N: T.Tensor((8,), "int32"), B: T.Output((8,), "float32")):\n'
)


def means(written: str, printed: str) -> None:
    """Check that a body prints as another; the parser reads both as the same program."""
    finish = "\nB[7] = 0.0"
    text = HEAD + textwrap.indent(textwrap.dedent(written).strip() + finish, "    ")
    expected = HEAD + textwrap.indent(textwrap.dedent(printed).strip() + finish, "    ")
    assert str(parse(text)) == expected
    assert ir.structural_equal(parse(text), parse(expected))


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("B[0] += 1", "B[0] = B[0] + 1.0"),
        ("B[0] -= A[0]", "B[0] = B[0] - A[0]"),
        ("B[0] *= 2", "B[0] = B[0] * 2.0"),
        ("B[0] /= 2", "B[0] = B[0] / 2.0"),
        ("B[0] //= 2", "B[0] = B[0] // 2.0"),
        ("B[0] %= 2", "B[0] = B[0] % 2.0"),
        ("B[0] = 1 if N[0] < 2 else A[0]", "B[0] = T.select(N[0] < 2, 1.0, A[0])"),
        ("B[0] = 1.0 if 0 <= N[0] < 2 else 0.0", "B[0] = T.select(0 <= N[0] and N[0] < 2, 1.0, 0.0)"),
        ("B[0] = A[0] ** 2", "B[0] = T.pow(A[0], 2.0)"),
        ("B[0] = min(A[0], 1, A[1])", "B[0] = T.min(T.min(A[0], 1.0), A[1])"),
        ("B[0] = max(1, A[0])", "B[0] = T.max(1.0, A[0])"),
        ("B[0] = abs(-A[0])", "B[0] = T.abs(-A[0])"),
        ("B[0] = +A[0]", "B[0] = A[0]"),
        ("B[0] = -1", "B[0] = -1.0"),
        ("B[0] = -T.float32(1)", "B[0] = T.neg(1.0)"),
        ("B[0] = A[0] + T.cast(1, 'float32')", 'B[0] = A[0] + T.cast(1, "float32")'),
        ("assert not N[0] == 1 and N[1] > 2 or N[2] > 3", "assert not N[0] == 1 and N[1] > 2 or N[2] > 3"),
        ("assert not (N[0] == 1 and (N[1] > 2 or N[2] > 3))", "assert not (N[0] == 1 and (N[1] > 2 or N[2] > 3))"),
        ("assert N[0] == 1, 'text'", 'assert N[0] == 1, "text"'),
        ("B[0], B[1] = B[1], 2", "B[0], B[1] = B[1], 2.0"),
        ("(B[0], B[1]) = (B[1], 2)", "B[0], B[1] = B[1], 2.0"),
        ("'a comment'\npass\nB[0] = 1", "B[0] = 1.0"),
    ],
)  # fmt: skip
def test_sugar(written: str, printed: str) -> None:
    means(written, printed)


def test_numbers_take_the_dtype_of_their_place() -> None:
    means("B[0] = T.cast(N[0] + 1, 'float32')", 'B[0] = T.cast(N[0] + 1, "float32")')
    body = parse(HEAD + "    B[0] = T.cast(N[0] / 2, 'float32')\n").body[0]
    assert str(body) == 'B[0] = T.cast(T.cast(N[0], "float64") / T.cast(T.int32(2), "float64"), "float32")'
    body = parse(HEAD + "    B[0] = T.cast(N[0] + 1.5, 'float32')\n").body[0]
    assert str(body) == 'B[0] = T.cast(T.cast(N[0], "float64") + 1.5, "float32")'


def test_loops() -> None:
    means(
        """
        for i in range(2, 6):
            B[i] = A[i - 2]
        for i in range(0, 4):
            B[i] = A[i]
        for i in T.serial(4):
            B[i] = A[i]
        for i in T.grid(4):
            B[i] = A[i]
        for i in range(4):
            for j in range(N[i], N[i] + 2):
                if j > 3:
                    B[j] = A[i]
        """,
        """
        for i in range(4):
            B[i + 2] = A[i + 2 - 2]
        for i in range(4):
            B[i] = A[i]
        for i in range(4):
            B[i] = A[i]
        for i in range(4):
            B[i] = A[i]
        for i in range(4):
            for j in range(N[i] + 2 - N[i]):
                if j + T.cast(N[i], "int64") > 3:
                    B[j + T.cast(N[i], "int64")] = A[i]
        """,
    )


def test_names_are_local_to_their_scope() -> None:
    means(
        """
        for i in range(4):
            for j in range(2):
                B[i] = A[j]
            for j in range(2):
                B[i] = A[j]
        for j in range(4):
            with T.block("a"):
                i = T.spatial(4, j)
                T.reads()
                T.writes(B[i])
                B[i] = 0
        """,
        """
        for i in range(4):
            for j in range(2):
                B[i] = A[j]
            for j in range(2):
                B[i] = A[j]
        for j in range(4):
            with T.block("a"):
                i = T.spatial(4, j)
                T.reads()
                T.writes(B[i])
                B[i] = 0.0
        """,
    )


def test_regions_are_inferred_when_left_out() -> None:
    means(
        """
        for i, k in T.grid(4, 2):
            with T.block("sum"):
                vi = T.spatial(4, i)
                vk = T.reduce(2, k)
                with T.init():
                    B[vi] = 0
                B[vi] += A[vi * 2 + vk]
        for i in range(4):
            with T.block("rows"):
                vi = T.spatial(4, i)
                T.writes(B[vi])
                for j in range(2):
                    B[vi] = A[vi * 2 + j]
        """,
        """
        for i, k in T.grid(4, 2):
            with T.block("sum"):
                vi = T.spatial(4, i)
                vk = T.reduce(2, k)
                T.reads(A[vi * 2 + vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = 0.0
                B[vi] = B[vi] + A[vi * 2 + vk]
        for i in range(4):
            with T.block("rows"):
                vi = T.spatial(4, i)
                T.reads(A[vi * 2 : T.size(2)])
                T.writes(B[vi])
                for j in range(2):
                    B[vi] = A[vi * 2 + j]
        """,
    )


def test_regions_are_written_as_slices_too() -> None:
    means(
        """
        for i in range(4):
            with T.block("a"):
                vi = T.spatial(4, i)
                T.reads(A[vi : vi + 2], N, A[:3], A[5:])
                T.writes(B[vi])
                B[vi] = A[vi]
        """,
        """
        for i in range(4):
            with T.block("a"):
                vi = T.spatial(4, i)
                T.reads(A[vi : T.size(2)], N[0 : T.size(8)], A[0 : T.size(3)], A[5 : T.size(3)])
                T.writes(B[vi])
                B[vi] = A[vi]
        """,
    )


def test_lines_around_a_pasted_program_are_skipped() -> None:
    text = '"""A file."""\nimport metaschedule as ms\nfrom metaschedule import T\n\n' + MATMUL
    assert str(parse(text)) == MATMUL


def test_parameters_may_be_declared_by_default_values() -> None:
    text = 'def f(A=T.Tensor(4, "int8"), B=T.Output((4,), dtype="int8")):\n    B[0] = A[0]'
    assert str(parse(text)).splitlines()[1] == (
        'def f(A: T.Tensor((4,), "int8"), B: T.Output((4,), "int8")):'
    )


def test_verification_can_be_left_out() -> None:
    text = "def f(A: T.Tensor((4,)), B: T.Output((4,))):\n    B[9] = A[9]"
    assert parse(text, check=False).outputs[0].shape == (4,)
    with pytest.raises(ValueError, match="out of bounds"):
        parse(text)
