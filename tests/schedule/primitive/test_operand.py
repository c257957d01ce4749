"""convert_operand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.ir import Program, integer_limits
from metaschedule.schedule import Schedule
from tests.schedule.checks import assert_same_results, check
from tests.schedule.refusals import refusal


def product(
    a: str = "int8", b: str = "int8", c: str = "int32", n: int = 3, m: int = 4, k: int = 5
) -> Program:
    x, y = te.placeholder((n, k), a, name="A"), te.placeholder((k, m), b, name="B")
    r = te.reduce_axis(k, name="k")
    z = te.compute((n, m), lambda i, j: te.sum(x[i, r].astype(c) * y[r, j].astype(c), axis=r), name="C")
    return te.program([x, y], [z])


def converted(program: Program, block: str, read: int, dtype: str, offset: int = 0) -> Schedule:
    sch = Schedule(program)
    sch.convert_operand(sch.get_block(block), read, dtype, offset)
    return sch


def extremes(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Numbers of the whole range."""
    rng = np.random.default_rng(seed)
    limits = [integer_limits(b.dtype) for b in program.inputs]
    return [
        rng.choice([low, high, 0, 1, high // 2], b.shape).astype(b.dtype)
        for b, (low, high) in zip(program.inputs, limits, strict=True)
    ]


def test_convert_operand_golden() -> None:
    program = product()
    sch = converted(program, "C", 0, "uint8", 128)
    assert str(sch.program) == (
        "@ms.program\n"
        'def main(A: T.Tensor((3, 5), "int8"), B: T.Tensor((5, 4), "int8"), C: T.Output((3, 4), "int32")):\n'
        '    A_uint8 = T.alloc((3, 5), "uint8")\n'
        '    C_offset = T.alloc((4,), "int32")\n'
        '    C_sum = T.alloc((3, 4), "int32")\n'
        "    for ax0, ax1 in T.grid(3, 5):\n"
        '        with T.block("A_uint8"):\n'
        "            v0 = T.spatial(3, ax0)\n"
        "            v1 = T.spatial(5, ax1)\n"
        "            T.reads(A[v0, v1])\n"
        "            T.writes(A_uint8[v0, v1])\n"
        '            A_uint8[v0, v1] = T.cast(T.cast(A[v0, v1], "int32") + 128, "uint8")\n'
        "    for j, k in T.grid(4, 5):\n"
        '        with T.block("C_offset"):\n'
        "            v_j = T.spatial(4, j)\n"
        "            v_k = T.reduce(5, k)\n"
        "            T.reads(B[v_k, v_j])\n"
        "            T.writes(C_offset[v_j])\n"
        "            with T.init():\n"
        "                C_offset[v_j] = 0\n"
        '            C_offset[v_j] = C_offset[v_j] + T.cast(B[v_k, v_j], "int32") * 128\n'
        "    for i, j, k in T.grid(3, 4, 5):\n"
        '        with T.block("C"):\n'
        "            v_i = T.spatial(3, i)\n"
        "            v_j = T.spatial(4, j)\n"
        "            v_k = T.reduce(5, k)\n"
        "            T.reads(A_uint8[v_i, v_k], B[v_k, v_j])\n"
        "            T.writes(C_sum[v_i, v_j])\n"
        "            with T.init():\n"
        "                C_sum[v_i, v_j] = 0\n"
        '            C_sum[v_i, v_j] = C_sum[v_i, v_j] + T.cast(A_uint8[v_i, v_k], "int32") * '
        'T.cast(B[v_k, v_j], "int32")\n'
        "    for i, j in T.grid(3, 4):\n"
        '        with T.block("C_shifted"):\n'
        "            v_i = T.spatial(3, i)\n"
        "            v_j = T.spatial(4, j)\n"
        "            T.reads(C_sum[v_i, v_j], C_offset[v_j])\n"
        "            T.writes(C[v_i, v_j])\n"
        "            C[v_i, v_j] = C_sum[v_i, v_j] - C_offset[v_j]"
    )
    check(sch, program)
    assert_same_results(program, sch.program, inputs=extremes(program))


@given(
    st.sampled_from(
        [("int8", "uint8", 128), ("uint8", "int8", -128), ("int8", "int16", 0), ("int8", "int32", 7)]
    ),
    st.sampled_from([0, 1]),
    *[st.sampled_from([1, 2, 3, 7]) for _ in range(3)],
)
def test_convert_operand_same_of_any_size(
    types: tuple[str, str, int], read: int, n: int, m: int, k: int
) -> None:
    have, want, offset = types
    program = product(have, have, n=n, m=m, k=k)
    sch = converted(program, "C", read, want, offset)
    assert_same_results(program, sch.program, inputs=extremes(program, n + m + k))


def test_convert_operand_same_in_windows() -> None:
    """The offset's sum is over all of the window, for every place of it."""
    x, w = te.placeholder((9,), "int8", name="X"), te.placeholder((3, 2), "int8", name="W")
    r = te.reduce_axis(3, name="r")
    y = te.compute(
        (7, 2), lambda i, o: te.sum(x[i + r].astype("int32") * w[r, o].astype("int32"), axis=r), name="Y"
    )
    program = te.program([x, w], [y])
    for read in (0, 1):
        sch = converted(program, "Y", read, "uint8", 128)
        check(sch, program)
        assert_same_results(program, sch.program, inputs=extremes(program))


def test_convert_operand_same_of_floats() -> None:
    program = product("float16", "float16", "float32")
    sch = converted(program, "C", 1, "float32")
    check(sch, program)
    assert "B_float32[v_k, v_j]" in str(sch.program)


def test_convert_operand_refuses_what_would_change_values() -> None:
    program = product()
    assert refusal(converted, program, "C", 2, "uint8", 128) == "block 'C' has 2 reads, not 3"
    assert refusal(converted, program, "C", 0, "uint8", 0) == "uint8 does not hold all values of int8"
    moved = refusal(converted, program, "C", 0, "uint8", 127)
    assert moved == "uint8 does not hold all values of int8 moved by 127"
    floats = product("int8", "int8", "float32")
    rounds = refusal(converted, floats, "C", 0, "uint8", 128)
    assert rounds == "with an offset a sum in float32 rounds otherwise"
    softmax = ms.workloads.create("SFM", shape=(3, 4))
    assert refusal(converted, softmax, "max", 0, "float64") == "block 'max' is not a sum that starts from 0"


def test_convert_operand_refuses_a_square() -> None:
    x = te.placeholder((3, 5), "int8", name="A")
    r = te.reduce_axis(5, name="k")
    y = te.compute(
        (3,), lambda i: te.sum(x[i, r].astype("int32") * x[i, r].astype("int32"), axis=r), name="S"
    )
    program = te.program([x], [y])
    assert refusal(converted, program, "S", 0, "int16") == "A is not one factor of what block 'S' sums"


def test_convert_operand_refuses_split_loops() -> None:
    sch = Schedule(product())
    block = sch.get_block("C")
    sch.split(sch.get_loops(block)[2], [None, 2])
    why = refusal(sch.convert_operand, block, 0, "int16")
    assert why == "v_k has no loop of its own as it was written"


def test_convert_operand_refuses_a_block_that_runs_only_somewhere() -> None:
    program = ms.parse(
        """
def main(A: T.Tensor((6,), "int8"), B: T.Tensor((6,), "int8"), C: T.Output((1,), "int32")):
    for k in range(6):
        with T.block("C"):
            v_k = T.reduce(6, k)
            T.where(k < 4)
            with T.init():
                C[0] = 0
            C[0] = C[0] + T.cast(A[v_k], "int32") * T.cast(B[v_k], "int32")
"""
    )
    assert refusal(converted, program, "C", 0, "uint8", 128) == "block 'C' runs only where k < 4"
