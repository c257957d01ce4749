"""Every registered instruction: what its lanes compute, and what its code is and does."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import metaschedule as ms
from metaschedule.codegen import generate
from metaschedule.ir import INSTRUCTIONS, Expr, HardwareInstruction, Load, numpy_dtype
from metaschedule.schedule.instruction_semantics import split_loops
from metaschedule.schedule.intrinsics import INTRINSICS
from metaschedule.target import Target, resolve
from metaschedule.target.detect import missing_features
from tests.schedule import oracles
from tests.schedule.emulator import run_emulated
from tests.schedule.refusals import refusal

BASE = {"x86": "x86-64-v4", "arm": "aarch64"}


def target_of(known: HardwareInstruction) -> Target:
    """The least target that has an instruction."""
    features = ",".join(f"+{feature}" for feature in known.features)
    return resolve(f"{BASE[known.name.partition('.')[0]]},{features}")


def lane_program(known: HardwareInstruction) -> ms.ir.Program:
    """All lanes of one instruction, on registers that are its parameters; lanes of a matrix are its rows and
    columns."""
    description = INTRINSICS[known.name].description
    inputs = "".join(f"{b.name}: T.Tensor({b.shape}, {b.dtype!r}), " for b in description.inputs)
    (output,) = description.outputs
    digits = ("i",) if len(output.shape) == 1 else (f"(i // {output.shape[1]})", f"(i % {output.shape[1]})")
    lanes = split_loops(INTRINSICS[known.name].loops, INTRINSICS[known.name].stores[0])[0]
    values = {loop.var.name: digit for loop, digit in zip(lanes, digits, strict=True)}

    def text(e: Expr) -> str:
        return re.sub(r"\b[a-z]+\b", lambda found: values.get(found[0], found[0]), str(e))

    args: list[str] = []
    for e in known.arguments[1:]:
        assert isinstance(e, Load)
        args.append(f"{e.buffer.name}[{', '.join(map(text, e.indices))}]")
    at = ", ".join(digits)
    call = f'T.instruction("{known.name}", before[{at}], {", ".join(args)})'
    return ms.parse(
        f"""
def lanes({inputs}before: T.Tensor({output.shape}, {output.dtype!r}),
          {output.name}: T.Output({output.shape}, {output.dtype!r})):
    for i in T.vectorized({known.lanes}):
        {output.name}[{at}] = {call}
"""
    )


SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3.0e38, -3.0e38, 1.5, 2.0**-100, 2.0**-126)
SUBNORMAL = (2.0**-127, -(2.0**-130), 2.0**-133)


def corner_values(dtype: str, count: int, rng: np.random.Generator, small: bool) -> np.ndarray:
    """Least, greatest, zero, one and what is between; of floats what is special, subnormal if `small`."""
    if dtype in ("bfloat16", "float32"):
        some = rng.choice([*SPECIAL, *(SUBNORMAL if small else ())], count)
        return np.where(rng.random(count) < 0.2, some, rng.standard_normal(count)).astype(numpy_dtype(dtype))
    limits = np.iinfo(dtype)
    corners = [limits.min, limits.max, 0, 1, limits.max - 1]
    some, others = rng.choice(corners, count), rng.integers(limits.min, limits.max, count, endpoint=True)
    return np.where(rng.random(count) < 0.6, some, others).astype(dtype)


def arguments(known: HardwareInstruction, rng: np.random.Generator, small: bool = True) -> list[np.ndarray]:
    params = INTRINSICS[known.name].description.params
    return [corner_values(b.dtype, b.size, rng, small).reshape(b.shape) for b in params]


def expected(known: HardwareInstruction, args: list[np.ndarray], **options: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return oracles.oracle_of(known.name)(*args, **options)


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """Bit for bit; any NaN is a NaN."""
    np.testing.assert_array_equal(got, want)
    finite = ~np.isnan(want.astype(float))
    np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(want[finite]))


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_interpreter_computes_what_the_manual_says(name: str) -> None:
    """Integers bit for bit. The order of float additions is the description's: tiles of AMX and ARM's pairs,
    which round to odd, differ in that by an ulp or two of the largest term; subnormals count, where hardware
    takes them for zeros."""
    known, rng = INSTRUCTIONS[name], np.random.default_rng(0)
    program = lane_program(known)
    for _ in range(2 if known.lanes > 64 else 8):
        args = arguments(known, rng, small=False)
        with np.errstate(all="ignore"):
            got = np.asarray(ms.interpret(program, *args))
        if known.dtype == "int32":
            assert_same(got, expected(known, args))
        elif "vdpbf16ps" in name:
            with np.errstate(all="ignore"):
                exact = args[0].astype(float) * args[1].astype(float)
            # The product alone may overflow where the instruction, which rounds once, does not.
            fits = ~(np.isfinite(exact) & (np.abs(exact) > 3.4e38)).any(axis=1)
            assert_same(got[fits], expected(known, args, small=oracles.keep)[fits])
        else:
            args = [rng.standard_normal(x.shape).astype(x.dtype) for x in args]
            np.testing.assert_allclose(
                np.asarray(ms.interpret(program, *args)), expected(known, args), rtol=0, atol=4e-6
            )


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_code_is_one_instruction(name: str) -> None:
    known = INSTRUCTIONS[name]
    assembly = ms.build(ms.Schedule(lane_program(known)), target=target_of(known)).source("asm")
    mnemonic = name.split(".")[-2] if name.split(".")[-1].isdecimal() else name.split(".")[-1]
    # "{vex} vpdpbusd" is how the AVX-VNNI form is written.
    assert re.search(rf"^\s+({{vex}}\s+)?{mnemonic}\b", assembly, re.MULTILINE)
    assert not re.search(r"^\s+v?p?mul", assembly, re.MULTILINE)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_machine_computes_what_the_manual_says(name: str) -> None:
    """Bit for bit, also subnormals; machines of another architecture are emulated."""
    known, rng = INSTRUCTIONS[name], np.random.default_rng(1)
    target = target_of(known)
    calls = [arguments(known, rng) for _ in range(200)]
    if target.arch == "aarch64":
        results = [out for (out,) in run_emulated(generate(lane_program(known), target), calls)]
    else:
        if lacks := missing_features(target):
            pytest.skip(f"this machine has no {', '.join(lacks)}")
        kernel = ms.build(ms.Schedule(lane_program(known)), target=target)
        results = [kernel(*args) for args in calls]
    for args, got in zip(calls, results, strict=True):
        assert_same(got, expected(known, args))


def test_a_target_without_the_instruction_is_told_by_name() -> None:
    program = lane_program(INSTRUCTIONS["x86.vpdpbusd.512"])
    with pytest.raises(
        ValueError, match=r"x86-64-v3 has no instruction x86.vpdpbusd.512: it lacks avx512vnni"
    ):
        ms.build(ms.Schedule(program), target="x86-64-v3")


def test_an_instruction_prints_and_parses() -> None:
    program = lane_program(INSTRUCTIONS["arm.sdot"])
    assert 'T.instruction("arm.sdot", before[i], A[i, 0]' in str(program)
    assert ms.structural_equal(ms.parse(str(program)), program)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('T.instruction("arm.nothing", C[0])', "unknown instruction 'arm.nothing'"),
        (
            'T.instruction("arm.sdot", C[0], A[0])',
            "takes 1 x int32 \\(C\\), 4 x int8 \\(A\\), 4 x int8 \\(B\\)",
        ),
    ],
)
def test_scripts_with_a_wrong_instruction_are_refused(call: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        ms.parse(
            f"""
def wrong(A: T.Tensor((4,), "int8"), C: T.Output((1,), "int32")):
    C[0] = {call}
"""
        )


DOT = """
def dot(A: T.Tensor((4, 2), "int16"), B: T.Tensor((4, 2), "int16"), C: T.Output((4,), "int32")):
    for i, k in T.grid(4, 2):
        C[i] = C[i] + T.cast(A[i, k], "int32") * T.cast(B[i, k], "int32")
"""


def test_an_instruction_may_be_written_in_llvm_where_lanes_do_not_fit_it_is_computed() -> None:
    code = """
        %a = sext <8 x i16> %A to <8 x i32>
        %b = sext <8 x i16> %B to <8 x i32>
        %p = mul <8 x i32> %a, %b
        %even = shufflevector <8 x i32> %p, <8 x i32> poison, <4 x i32> <i32 0, i32 2, i32 4, i32 6>
        %odd = shufflevector <8 x i32> %p, <8 x i32> poison, <4 x i32> <i32 1, i32 3, i32 5, i32 7>
        %both = add <4 x i32> %even, %odd
        add <4 x i32> %C, %both
    """
    ms.schedule.register_intrinsic("test.pairs", ms.parse(DOT), instruction=code)
    ms.schedule.register_intrinsic("test.pairs", ms.parse(DOT), instruction=code)  # the same again is fine
    with pytest.raises(ValueError, match="registered already, as something else"):
        ms.schedule.register_intrinsic("test.pairs", ms.parse(DOT), instruction="llvm.other")
    rng = np.random.default_rng(0)
    for lanes in (1, 3, 4, 8, 13):
        program = ms.parse(
            f"""
def lanes(A: T.Tensor(({lanes}, 2), "int16"), B: T.Tensor(({lanes}, 2), "int16"),
          C: T.Tensor(({lanes},), "int32"), D: T.Output(({lanes},), "int32")):
    for i in T.vectorized({lanes}):
        D[i] = T.instruction("test.pairs", C[i], A[i, 0], A[i, 1], B[i, 0], B[i, 1])
"""
        )
        args = [rng.integers(-99, 99, b.shape).astype(b.dtype) for b in program.inputs]
        kernel = ms.build(ms.Schedule(program))
        np.testing.assert_array_equal(kernel(*args), oracles.dot(*args))
        assert ("ms.instruction.test.pairs" in kernel.source("llvm")) == (lanes >= 4)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (DOT.replace("C[i] = C[i]", "C[3 - i] = C[3 - i]"), "lanes must be the elements of C, in order"),
        (DOT.replace("C[i] + ", ""), "only the last step over k would count"),
    ],
)
def test_descriptions_that_are_no_instruction_are_refused(description: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ms.schedule.register_intrinsic("test.wrong", ms.parse(description), instruction="llvm.none")


def test_tensorize_leaves_one_lane() -> None:
    program = ms.parse(
        """
def product(A: T.Tensor((3, 8), "uint8"), B: T.Tensor((2, 16, 4), "int8"), C: T.Output((3, 16), "int32")):
    for i, o, j, k in T.grid(3, 2, 16, 4):
        with T.block("dot"):
            vi = T.spatial(3, i)
            vo = T.reduce(2, o)
            vj = T.spatial(16, j)
            vk = T.reduce(4, k)
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + T.cast(A[vi, vo * 4 + vk], "int32") * T.cast(B[vo, vj, vk], "int32")
"""
    )
    sch = ms.Schedule(program)
    block = sch.get_block("dot")
    _, o, j, k = sch.get_loops(block)
    sch.decompose_reduction(block, o)
    sch.vectorize(j)
    sch.tensorize(k, "x86.vpdpbusd.512")
    rng = np.random.default_rng(0)
    args = [rng.integers(-128, 128, b.shape).astype(b.dtype) for b in program.inputs]
    np.testing.assert_array_equal(ms.interpret(sch.program, *args), ms.interpret(program, *args))
    again = ms.Trace.from_json(sch.trace.to_json()).apply(program)
    assert ms.structural_equal(again.program, sch.program)


def test_all_pairs_of_bytes() -> None:
    """Every product of two bytes, through the interpreter and the machine, if it has the instruction."""
    known = INSTRUCTIONS["x86.vpdpbusd.256"]
    pairs = np.array(list(itertools.product(range(256), range(-128, 128))))
    lanes = len(pairs) // 4
    a, b = (", ".join(f"{x}[o * 8 + i, {n}]" for n in range(4)) for x in "AB")
    program = ms.parse(
        f"""
def products(A: T.Tensor(({lanes}, 4), "uint8"), B: T.Tensor(({lanes}, 4), "int8"),
             D: T.Output(({lanes},), "int32")):
    for o in range({lanes // 8}):
        for i in T.vectorized(8):
            D[o * 8 + i] = T.instruction("{known.name}", 0, {a}, {b})
"""
    )
    a, b = pairs[:, 0].reshape(lanes, 4).astype("uint8"), pairs[:, 1].reshape(lanes, 4).astype("int8")
    want = (a.astype("int32") * b.astype("int32")).sum(axis=1)
    np.testing.assert_array_equal(ms.interpret(program, a, b), want)
    if not missing_features(target_of(known)):
        np.testing.assert_array_equal(ms.build(ms.Schedule(program), target=target_of(known))(a, b), want)


def test_bfloat16_is_not_flushed_where_it_matters() -> None:
    """Products that are ordinary numbers are exact to float32's rounding; the smallest may count as zero."""
    known = INSTRUCTIONS["x86.vdpbf16ps.256"]
    program = lane_program(known)
    a = np.full((8, 2), 2.0**-60, ml_dtypes.bfloat16)
    c = np.zeros(8, np.float32)
    want = np.full(8, 2.0**-119, np.float32)
    np.testing.assert_array_equal(ms.interpret(program, a, a, c), want)
    if not missing_features(target_of(known)):
        np.testing.assert_array_equal(ms.build(ms.Schedule(program), target=target_of(known))(a, a, c), want)


def refused(text: str, at: int, name: str) -> str:
    """Why what a loop holds is not a lane of an instruction."""
    sch = ms.Schedule(ms.parse(text))
    return refusal(sch.tensorize, sch.get_loops(sch.get_block("dot"))[at], name)


PRODUCT = """
def product(A: T.Tensor((16, 4), "uint8"), B: T.Tensor((16, 4), "int8"), C: T.Output((16,), "int32")):
    for j, k in T.grid(16, 4):
        with T.block("dot"):
            vj = T.spatial(16, j)
            vk = T.reduce(4, k)
            C[vj] = C[vj] + T.cast(A[vj, vk], "int32") * T.cast(B[vj, vk], "int32")
"""


def test_tensorize_refuses_what_is_no_lane() -> None:
    assert "its loops are [16, 4], those of a lane of x86.vpdpbusd.512 are [4]" in refused(
        PRODUCT, 0, "x86.vpdpbusd.512"
    )
    assert "a lane of arm.sdot computes" in refused(PRODUCT, 1, "arm.sdot")
    shifted = PRODUCT.replace("= C[vj] +", "= C[15 - vj] +")
    assert "it stores to C elsewhere than it reads" in refused(shifted, 1, "x86.vpdpbusd.512")
    moving = PRODUCT.replace("C[vj]", "C[vj // 4 * 4 + vk]").replace("T.reduce(4", "T.spatial(4")
    assert "where it stores moves with the loops of a lane" in refused(moving, 1, "x86.vpdpbusd.512")
    twice = PRODUCT + PRODUCT.splitlines()[-1] + "\n"
    assert "it has 2 statements, described is one store" in refused(twice, 1, "x86.vpdpbusd.512")
