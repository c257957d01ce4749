"""UseInstruction: whatever it takes is computed exactly, whatever the shape, dtypes and layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.codegen import generate
from metaschedule.ir import Buffer, Program, numpy_dtype
from metaschedule.schedule import Trace
from metaschedule.target import missing_features, resolve
from tests.schedule.emulator import run_emulated

SIGNED = ("int8", "int8", "int32")
EXTENTS = st.sampled_from([1, 2, 3, 4, 7, 8, 13, 16, 17, 31, 33])
TARGETS = (
    "x86-64-v4,+avx512vnni,+avx512bf16,cores=2",
    "x86-64-v3,+avxvnni,cores=2",
    "x86-64-v3,cores=2",
    "x86-64-v2,cores=2",
    "aarch64,+dotprod,+i8mm,+bf16,cores=2",
)


def numbers(b: Buffer, rng: np.random.Generator) -> np.ndarray:
    """The whole range of integers; floats of which sums are exact."""
    if b.dtype == "bfloat16":
        return rng.integers(-4, 5, b.shape).astype(numpy_dtype(b.dtype))
    limits = np.iinfo(b.dtype)
    return rng.integers(limits.min, limits.max + 1, b.shape).astype(b.dtype)


def with_instruction(program: Program, target: str) -> list[Trace]:
    return [t for t in ms.space.default(target).sketches(program) if "tensorize" in str(t)]


def assert_exact(program: Program, target: str, draws: int = 2) -> set[str]:
    """All candidates with an instruction compute what the loops as written do. Gives the instructions."""
    rng = np.random.default_rng(0)
    args = [numbers(b, rng) for b in program.inputs]
    want = ms.build(ms.Schedule(program))(*args)
    names: set[str] = set()
    runs = not missing_features(resolve(target))
    for trace in with_instruction(program, target):
        names |= {line.split('"')[1] for line in str(trace).splitlines() if "tensorize" in line}
        for seed in range(draws):
            sch = trace.apply(program, rng=seed)
            kernel = ms.build(sch, target=target)
            got: Any = kernel(*args) if runs else ms.interpret(sch.program, *args)
            np.testing.assert_array_equal(got, want)
    return names


def einsum(
    n: int,
    m: int,
    k: int,
    batch: int,
    types: tuple[str, str, str],
    swapped: tuple[bool, bool],
    epilogue: bool,
) -> Program:
    """A batched product of operands in either order, and an element-wise step after it."""
    a, b, c = types
    x = te.placeholder((batch, k, n) if swapped[0] else (batch, n, k), a, name="A")
    y = te.placeholder((batch, m, k) if swapped[1] else (batch, k, m), b, name="B")
    r = te.reduce_axis(k, name="k")

    def element(z: Any, i: Any, j: Any) -> Any:
        left = x[z, r, i] if swapped[0] else x[z, i, r]
        right = y[z, j, r] if swapped[1] else y[z, r, j]
        return te.sum(left.astype(c) * right.astype(c), axis=r)

    out = te.compute((batch, n, m), element, name="C")
    if epilogue:
        out = te.compute(out.shape, lambda *i: te.maximum(out[i], 0) + 1, name="D")
    return te.program([x, y], [out])


TYPES = [(a, b, "int32") for a in ("int8", "uint8", "int16") for b in ("int8", "uint8", "int16")] + [
    ("bfloat16", "bfloat16", "float32")
]


@settings(max_examples=20)
@given(
    EXTENTS,
    EXTENTS,
    EXTENTS,
    st.sampled_from([1, 2]),
    st.sampled_from(TYPES),
    st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
    st.sampled_from(TARGETS),
)
def test_products_of_any_shape_are_exact(
    n: int, m: int, k: int, batch: int, types: tuple[str, str, str], swapped: tuple[bool, bool],
    epilogue: bool, target: str,
) -> None:  # fmt: skip
    assert_exact(einsum(n, m, k, batch, types, swapped, epilogue), target)


@pytest.mark.slow
@settings(max_examples=50)
@given(
    EXTENTS,
    EXTENTS,
    EXTENTS,
    st.sampled_from([1, 3]),
    st.sampled_from(TYPES),
    st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
)
def test_many_products_are_exact(
    n: int, m: int, k: int, batch: int, types: tuple[str, str, str], swapped: tuple[bool, bool],
    epilogue: bool,
) -> None:  # fmt: skip
    assert_exact(einsum(n, m, k, batch, types, swapped, epilogue), "native", draws=20)


@pytest.mark.parametrize(
    ("target", "types", "name"),
    [
        (TARGETS[0], ("uint8", "int8", "int32"), "x86.vpdpbusd.512"),
        (TARGETS[0], ("int8", "uint8", "int32"), "x86.vpdpbusd.512"),
        (TARGETS[0], ("int8", "int8", "int32"), "x86.vpdpbusd.512"),  # by an offset
        (TARGETS[0], ("int16", "int16", "int32"), "x86.vpdpwssd.512"),
        (TARGETS[0], ("bfloat16", "bfloat16", "float32"), "x86.vdpbf16ps.512"),
        (TARGETS[1], ("uint8", "int8", "int32"), "x86.avxvnni.vpdpbusd.256"),
        (TARGETS[2], ("int8", "int8", "int32"), "x86.vpmaddwd.256"),  # widened
        (TARGETS[3], ("uint8", "uint8", "int32"), "x86.vpmaddwd.128"),
        ("x86-64-v3,+avxvnniint8,cores=2", ("int8", "int8", "int32"), "x86.vpdpbssd.256"),
        (TARGETS[4], ("int8", "int8", "int32"), "arm.smmla"),
        (TARGETS[4], ("uint8", "uint8", "int32"), "arm.ummla"),
        (TARGETS[4], ("uint8", "int8", "int32"), "arm.usmmla"),
        (TARGETS[4], ("bfloat16", "bfloat16", "float32"), "arm.bfmmla"),
        ("aarch64,+dotprod,cores=2", ("int8", "int8", "int32"), "arm.sdot"),
    ],
)
def test_the_widest_instruction_that_fits_is_taken(
    target: str, types: tuple[str, str, str], name: str
) -> None:
    assert assert_exact(einsum(17, 33, 13, 1, types, (False, False), True), target, draws=1) == {name}


AMX = f"{TARGETS[0]},+amx-tile,+amx-int8,+amx-bf16"


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (("uint8", "int8", "int32"), {"x86.tdpbusd", "x86.vpdpbusd.512"}),
        (("int8", "int8", "int32"), {"x86.tdpbssd", "x86.vpdpbusd.512"}),
        (("bfloat16", "bfloat16", "float32"), {"x86.tdpbf16ps", "x86.vdpbf16ps.512"}),
    ],
)
def test_products_on_tiles_are_exact(types: tuple[str, str, str], names: set[str]) -> None:
    """Rows, columns and depth that no tile divides, batched and transposed; vectors are offered beside."""
    for n, m, k, swapped in ((17, 20, 70, (False, False)), (40, 33, 130, (True, True))):
        assert assert_exact(einsum(n, m, k, 2, types, swapped, True), AMX) == names


@pytest.mark.parametrize(("n", "m", "k"), [(1, 32, 64), (16, 8, 64), (16, 32, 30)])
def test_tiles_are_left_alone_where_they_would_be_padding(n: int, m: int, k: int) -> None:
    program = einsum(n, m, k, 1, ("uint8", "int8", "int32"), (False, False), False)
    assert assert_exact(program, AMX, draws=1) == {"x86.vpdpbusd.512"}


def tiled(program: Program, size: list[int]) -> str:
    """The assembly of a candidate with so many tiles of rows and of columns in registers."""
    trace = with_instruction(program, AMX)[0]
    place = next(n for n, d in trace.decisions.items() if len(d) == 2)  # the register tile is drawn first
    return ms.build(trace.apply(program, decisions={place: size}, rng=0), target=AMX).source("asm")


def test_results_stay_in_tiles() -> None:
    """From zero to the end of the reduction; operands are read where they are, twice for two products each,
    and the shapes of tiles are configured once."""
    lines = tiled(einsum(64, 64, 512, 1, SIGNED, (False, False), False), [2, 2]).splitlines()
    words = [line.split()[0] for line in lines if line.strip().startswith(("tdp", "tile", "ldtile"))]
    assert [words.count(word) for word in ("ldtilecfg", "tilerelease", "tilezero")] == [1, 1, 4]
    assert words.count("tileloadd") == words.count("tdpbssd") > 0
    assert words.count("tilestored") == 4
    stored = [n for n, word in enumerate(words) if word == "tilestored"]
    assert not any(word.startswith("t") and word != "tilestored" for word in words[stored[0] : stored[-1]])


def test_tiles_have_as_many_rows_as_divide_the_extent() -> None:
    """56 rows are four times 14: no row is padding."""
    program = einsum(56, 64, 64, 1, SIGNED, (False, False), False)
    assert "A_pad" not in str(with_instruction(program, AMX)[0].apply(program, rng=0).program)
    assert assert_exact(program, AMX)


def test_what_does_not_fit_tiles_is_computed() -> None:
    """Lanes of a quarter of a tile, whose rows are no constant distance apart."""
    program = ms.parse(
        """
def odd(A: T.Tensor((16, 64), "int8"), R: T.Tensor((4,), "int64"), B: T.Tensor((16, 16, 4), "int8"),
        C: T.Tensor((4, 16), "int32"), D: T.Output((4, 16), "int32")):
    for v in T.vectorized(64):
        D[v // 16, v % 16] = T.instruction("x86.tdpbssd", C[v // 16, v % 16], ARGUMENTS)
""".replace("ARGUMENTS", ", ".join(
            [f"A[R[v // 16], {k}]" for k in range(64)]
            + [f"B[{k // 4}, v % 16, {k % 4}]" for k in range(64)]
        ))
    )  # fmt: skip
    kernel = ms.build(ms.Schedule(program), target=AMX)
    assert "tdpbssd" not in kernel.source("asm")
    rng = np.random.default_rng(0)
    args = [numbers(b, rng) for b in program.inputs]
    args[1] = np.array([3, 0, 15, 2])
    if not missing_features(resolve(AMX)):
        np.testing.assert_array_equal(kernel(*args), ms.interpret(program, *args))


ARM = [
    einsum(17, 33, 13, 2, ("int8", "int8", "int32"), (False, True), True),
    einsum(6, 10, 24, 1, ("uint8", "int8", "int32"), (True, False), False),
    einsum(1, 33, 13, 1, ("int8", "int8", "int32"), (False, False), True),
    einsum(9, 12, 20, 1, TYPES[-1], (False, False), True),
]


@pytest.mark.parametrize("program", ARM, ids=["smmla", "usmmla", "sdot", "bfmmla"])
def test_kernels_for_arm_are_exact_under_qemu(program: Program) -> None:
    rng = np.random.default_rng(0)
    args = [numbers(b, rng) for b in program.inputs]
    want = ms.build(ms.Schedule(program))(*args)
    machine = resolve(TARGETS[4])
    for trace in with_instruction(program, TARGETS[4]):
        kernel = generate(trace.apply(program, rng=0).program, machine)
        np.testing.assert_array_equal(run_emulated(kernel, [args])[0][0], want)


@pytest.mark.parametrize("types", [("float32", "float32", "float32"), ("int8", "int8", "float32"),
                                   ("int32", "int32", "int32")])  # fmt: skip
def test_other_products_are_left_alone(types: tuple[str, str, str]) -> None:
    assert not with_instruction(einsum(8, 32, 8, 1, types, (False, False), False), TARGETS[0])


def convolution(
    size: tuple[int, int],
    channels: tuple[int, int],
    kernel: int,
    stride: int,
    last: bool,
    types: tuple[str, str, str],
) -> Program:
    (h, w), (ci, co), (a, b, c) = size, channels, types
    x = te.placeholder((h, w, ci) if last else (ci, h, w), a, name="X")
    f = te.placeholder((kernel, kernel, ci, co), b, name="W", constant=True)
    edge = kernel // 2
    shape = (h + 2 * edge, w + 2 * edge)

    def padded(*i: Any) -> Any:
        y, z, o = i if last else (*i[1:], i[0])
        inside = te.all_of([y >= edge, y < h + edge, z >= edge, z < w + edge])
        at = (y - edge, z - edge)
        return te.select(inside, x[*at, o] if last else x[o, *at], 0)

    p = te.compute((*shape, ci) if last else (ci, *shape), padded, name="pad")
    ry, rx = te.reduce_axis(kernel, name="ry"), te.reduce_axis(kernel, name="rx")
    rc = te.reduce_axis(ci, name="rc")
    space = tuple((n - kernel) // stride + 1 for n in shape)

    def element(*i: Any) -> Any:
        y, z, o = i if last else (*i[1:], i[0])
        at = (y * stride + ry, z * stride + rx)
        value = p[*at, rc] if last else p[rc, *at]
        return te.sum(value.astype(c) * f[ry, rx, rc, o].astype(c), axis=[ry, rx, rc])

    return te.program([x, f], [te.compute((*space, co) if last else (co, *space), element, name="conv")])


@pytest.mark.parametrize("types", [("uint8", "int8", "int32"), ("int8", "int8", "int32"), TYPES[-1]])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride"), [((8, 32), 3, 1), ((3, 13), 3, 2), ((5, 17), 1, 1)]
)
def test_convolutions_are_exact(
    types: tuple[str, str, str], last: bool, channels: tuple[int, int], kernel: int, stride: int
) -> None:
    assert assert_exact(convolution((6, 19), channels, kernel, stride, last, types), TARGETS[0], draws=1)


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.tuples(st.integers(3, 9), st.integers(3, 23)),
    st.tuples(st.integers(1, 9), st.sampled_from([1, 3, 16, 17, 33])),
    st.sampled_from([1, 2, 3, 5]),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(TYPES),
)
def test_many_convolutions_are_exact(
    size: tuple[int, int], channels: tuple[int, int], kernel: int, stride: int, last: bool,
    types: tuple[str, str, str],
) -> None:  # fmt: skip
    assert_exact(convolution(size, channels, kernel, stride, last, types), "native", draws=20)


def test_accumulators_stay_in_registers() -> None:
    """In the inner loop nothing but operands is loaded, and nothing is stored."""
    program = einsum(48, 64, 256, 1, ("uint8", "int8", "int32"), (False, False), False)
    trace = with_instruction(program, TARGETS[0])[0]
    place = next(n for n, d in trace.decisions.items() if len(d) == 2)  # the register tile is drawn first
    sch = trace.apply(program, decisions={place: [12, 32]}, rng=0)
    lines = ms.build(sch, target=TARGETS[0]).source("asm").splitlines()
    found = [n for n, line in enumerate(lines) if "vpdpbusd" in line]
    inner = lines[found[0] : found[23] + 1]
    assert not any("(%rsp" in line and "vmov" in line for line in inner)


def test_without_the_module_no_candidate_has_an_instruction() -> None:
    program = einsum(16, 32, 16, 1, ("uint8", "int8", "int32"), (False, False), False)
    space = ms.space.default(TARGETS[0])
    assert any("tensorize" in str(t) for t in space.sketches(program))
    assert not any("tensorize" in str(t) for t in (space - "UseInstruction").sketches(program))


def test_an_instruction_of_ones_own_is_short() -> None:
    """As examples/04_own_instruction.py shows it: description, code and registration."""
    text = (Path(__file__).parents[2] / "examples" / "04_own_instruction.py").read_text()
    own = text.partition("# --- the instruction ---")[2].partition("# --- a program")[0]
    assert len([line for line in own.splitlines() if line.strip()]) < 40


def test_an_instruction_is_used_from_when_it_is_registered() -> None:
    """Also by a space that has made sketches of the same program before."""
    space = ms.space.default(TARGETS[2])
    x, y = te.placeholder((8, 16), "uint8", name="A"), te.placeholder((16, 16), "uint8", name="B")
    k = te.reduce_axis(16, name="k")
    far = te.compute((8, 16), lambda i, j: te.sum(te.abs(x[i, k].astype("int64") - y[j, k].astype("int64")),
                                                  axis=k), name="far")  # fmt: skip
    program = te.program([x, y], [far])
    assert not any("tensorize" in str(t) for t in space.sketches(program))
    description = ms.parse(
        """
def differences(A: T.Tensor((4, 8), "uint8"), B: T.Tensor((4, 8), "uint8"), C: T.Output((4,), "int64")):
    for i, k in T.grid(4, 8):
        C[i] = C[i] + T.abs(T.cast(A[i, k], "int64") - T.cast(B[i, k], "int64"))
"""
    )
    code = """
        declare <4 x i64> @llvm.x86.avx2.psad.bw(<32 x i8>, <32 x i8>)
        %sum = call <4 x i64> @llvm.x86.avx2.psad.bw(<32 x i8> %A, <32 x i8> %B)
        add <4 x i64> %C, %sum
    """
    ms.schedule.register_intrinsic("test.psadbw", description, instruction=code, features=("avx2",))
    assert assert_exact(program, TARGETS[2]) == {"test.psadbw"}


@pytest.mark.parametrize(
    ("dtype", "total", "mnemonic"), [("bfloat16", "float32", "vdpbf16ps"), ("int8", "int32", "vpdpbusd")]
)
def test_what_a_trace_names_is_in_the_machine_code(dtype: str, total: str, mnemonic: str) -> None:
    """Operands that are not packed as the registers want them would be multiplied without the instruction."""
    a = te.placeholder((24, 64), dtype, name="A")
    b = te.placeholder((64, 64), dtype, name="B", constant=True)
    k = te.reduce_axis(64, name="k")
    c = te.compute(
        (24, 64), lambda i, j: te.sum(a[i, k].astype(total) * b[k, j].astype(total), axis=k), name="C"
    )
    program = te.program([a, b], [c])
    traces = with_instruction(program, TARGETS[0])
    assert traces
    for trace in traces:
        kernel = ms.build(trace.apply(program, rng=0), target=TARGETS[0])
        assert mnemonic in kernel.source("asm"), str(trace)
