"""The math functions against float64 NumPy: accuracy, special values, lanes, targets.

The bound of a function is what a sweep over every float found where the function is not trivial,
rounded up (pow: 2^26 random pairs of each of three kinds); it holds on any machine, since all steps
are IEEE operations. `pytest --long` repeats the sweep for exp, log, tanh and erf.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from metaschedule.codegen.llvm.arithmetic import function_symbol
from metaschedule.codegen.llvm.functions import Defined, define, vector_libraries
from metaschedule.ir.expr import FUNCTIONS
from metaschedule.runtime.compile import target_machine
from metaschedule.runtime.loader import find_symbol
from metaschedule.target import native, resolve

Array = np.ndarray[Any, np.dtype[Any]]

# Units in the last place of float32 that a result may be off.
BOUNDS = {
    "exp": 0.9, "exp2": 0.88, "expm1": 1.44, "log": 0.89, "log2": 1.56, "log10": 1.58,
    "log1p": 1.61, "sqrt": 0.5, "rsqrt": 1.5, "pow": 0.6, "sin": 1.57, "cos": 1.57, "tan": 3.68,
    "asin": 2.36, "acos": 1.27, "atan": 1.95, "sinh": 1.63, "cosh": 1.35, "tanh": 2.42,
    "erf": 1.61, "sigmoid": 2.41, "floor": 0, "ceil": 0, "round": 0, "trunc": 0, "abs": 0,
}  # fmt: skip
PREDICATES = ("isnan", "isinf")
UNARY = [name for name, arity in FUNCTIONS.items() if arity == 1]
TYPES = {"float32": "float", "float64": "double"}

TARGETS = ("x86-64-v3", "x86-64-v4", "aarch64", "riscv64")


# --- compiling ----------------------------------------------------------------------------------


@cache
def jit() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(host())


def host() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="small",
    )


def optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module


def loop(name: str, dtype: str, lanes: int, kernel: str) -> str:
    """`void kernel(out, x[, y], n)`: the function over n elements, `lanes` at a time."""
    lane = TYPES[dtype]
    of = lane if lanes == 1 else f"<{lanes} x {lane}>"
    if name in PREDICATES:
        returned, stored, step = of.replace(lane, "i1"), of.replace(lane, "i8"), "i8"
        convert = f"%s = zext {returned} %r to {stored}"
    else:
        returned, stored, step = of, of, lane
        convert = f"%s = freeze {of} %r"
    arrays = "xy"[: FUNCTIONS[name]]
    params = ", ".join(f"ptr %{a}" for a in arrays)
    loads = "\n".join(
        f"%{a}.p = getelementptr {lane}, ptr %{a}, i64 %i\n%{a}.v = load {of}, ptr %{a}.p, align 4"
        for a in arrays
    )
    values = ", ".join(f"{of} %{a}.v" for a in arrays)
    return f"""
define void @{kernel}(ptr %out, {params}, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {loads}
  %r = call {returned} @{function_symbol(name, dtype, lanes)}({values})
  {convert}
  %q = getelementptr {step}, ptr %out, i64 %i
  store {stored} %s, ptr %q, align 1
  %next = add i64 %i, {lanes}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def whole_module(defined: dict[str, Defined], dtype: str, lanes: int) -> str:
    """Functions, which must live together, each with a loop `k.NAME`."""
    declared = frozenset[str]().union(*(d.declared for d in defined.values()))
    text = "\n".join(sorted(declared)) + "\n"
    for name, d in defined.items():
        text += d.text + loop(name, dtype, lanes, f"k.{name}")
    return text


def externals(defined: dict[str, Defined]) -> set[str]:
    return set[str]().union(*(d.externals for d in defined.values()))


@cache
def compiled(dtype: str, lanes: int) -> dict[str, Callable[..., Array]]:
    """Every function of one type and width, as this machine has them."""
    defined = {name: define(name, dtype, lanes, vector_libraries(native())) for name in FUNCTIONS}
    machine = host()
    code = machine.emit_object(optimised(whole_module(defined, dtype, lanes), machine))
    builder = llvm.JITLibraryBuilder().add_object_img(code)
    for called in externals(defined):
        builder.import_symbol(called, find_symbol(called))
    for name in FUNCTIONS:
        builder.export_symbol(f"k.{name}")
    library = builder.link(jit(), f"math.{dtype}.{lanes}")
    return {name: caller(library, name, dtype, lanes) for name in FUNCTIONS}


def caller(library: Any, name: str, dtype: str, lanes: int) -> Callable[..., Array]:
    pointers = [ctypes.c_void_p] * (1 + FUNCTIONS[name])
    native = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(library[f"k.{name}"])

    def call(*args: Array) -> Array:
        """Padded with ones to whole vectors."""
        count = args[0].size
        whole = -(-count // lanes) * lanes
        padded = [np.ones(whole, dtype) for _ in args]
        for to, arg in zip(padded, args):
            assert arg.dtype == dtype
            to[:count] = arg
        out = np.empty(whole, bool if name in PREDICATES else dtype)
        native(out.ctypes.data, *(arg.ctypes.data for arg in padded), whole)
        return out[:count]

    call.library = library  # type: ignore[attr-defined]  # keeps the code alive
    return call


# --- the truth ----------------------------------------------------------------------------------


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def widened(x: Array) -> Array:
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return x.astype(np.float64)


def truth(name: str, *args: Array) -> Array:
    """Computed in float64."""
    wide = [widened(arg) for arg in args]
    with np.errstate(all="ignore"):
        match name:
            case "rsqrt":
                return 1 / np.sqrt(wide[0])
            case "sigmoid":
                return sigmoid(wide[0])
            case "erf":  # NumPy has none; this is the C library's
                return compiled("float64", 1)["erf"](wide[0])
            case "asin" | "acos" | "atan":
                return getattr(np, "arc" + name[1:])(wide[0])
            case "round":
                return np.rint(wide[0])
            case "pow":
                return np.power(*wide)
            case _:
                return getattr(np, name)(*wide)


def ulps(got: Array, want: Array) -> Array:
    """|got - want| in units of float32 at want; inf if one is NaN and the other is not."""
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        _, exponent = np.frexp(want)
        unit = np.ldexp(1.0, np.maximum(exponent - 1, -126) - 23)
        error = np.abs(widened(got) - want) / unit
    exact = (got == rounded) | (np.isnan(got) & np.isnan(want))
    exceptional = ~np.isfinite(rounded)
    error = np.where(exceptional, np.where(exact, 0, np.inf), error)
    return np.where(np.isnan(error), np.inf, error)


def assert_close(name: str, bound: float, got: Array, *args: Array) -> None:
    want = truth(name, *args)
    error = ulps(got, want)
    worst = int(error.argmax())
    given = ", ".join(repr(arg[worst]) for arg in args)
    message = f"{name}({given}) is {got[worst]!r}, not {want[worst]!r}: {error[worst]:.3f} ulp"
    assert error[worst] <= bound, message
    with np.errstate(all="ignore"):
        zero = want.astype(np.float32) == 0
    signs = zero & (got == 0) & (np.signbit(got) != np.signbit(want))
    assert not signs.any(), f"{name}{[arg[signs][0] for arg in args]}: the wrong zero"


# --- inputs -------------------------------------------------------------------------------------

SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]
    + [sign * v for sign in (1, -1) for v in (1e-45, 1e-40, 2**-126, 0.5, 1, 1.5, 2, 2.5, 3, 1e6)]
    + [sign * v for sign in (1, -1) for v in (2**23, 2**24, 2**31, 1e30, 3.4028235e38)],
    np.float32,
)


def every_exponent() -> Array:
    """Both signs, all exponents, mantissas near both ends and evenly between."""
    edge = np.arange(8, dtype=np.uint32)
    mantissas = np.unique(np.concatenate([edge, 2**23 - 1 - edge, np.arange(0, 2**23, 2**17)]))
    high = np.arange(512, dtype=np.uint32) << np.uint32(23)
    return (high[:, None] | mantissas.astype(np.uint32)[None, :]).ravel().view(np.float32)


@cache
def inputs() -> Array:
    rng = np.random.default_rng(7)
    parts = [SPECIAL, every_exponent()]
    parts.append(rng.integers(0, 2**32, 2**16, dtype=np.uint32).view(np.float32))
    parts += [rng.uniform(-r, r, 2**15).astype(np.float32) for r in (0.01, 1.0, 10.0, 110.0, 2e5)]
    # the joints of the pieces, and multiples of pi/2, where little is left after the reduction
    joints = np.array(
        [0.5, 0.9, 1, 4, 9, 10, 88.72284, -87.33655, -103.97208, 89.4, 2 / 3, 4 / 3], np.float32
    )
    turns = (np.arange(1, 2**16) * (np.pi / 2)).astype(np.float32)
    for centre in (joints, -joints, turns, np.array([2.0**17], np.float32)):
        for step in range(-2, 3):
            parts.append((centre.view(np.uint32) + np.uint32(step % 2**32)).view(np.float32))
    return np.concatenate(parts)


# --- tests --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in UNARY if name not in PREDICATES])
def test_float32_is_accurate(name: str):
    x = inputs()
    assert_close(name, BOUNDS[name], compiled("float32", 8)[name](x), x)


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize("name", UNARY)
def test_number_of_lanes_changes_no_bit(name: str, lanes: int):
    x = inputs()[::5]
    a, b = compiled("float32", 8)[name](x), compiled("float32", lanes)[name](x)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a)[~np.isnan(a)], np.signbit(b)[~np.isnan(b)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", UNARY)
def test_nan_infinity_and_zero_are_numpys(name: str, dtype: str):
    x = SPECIAL.astype(dtype)
    got = compiled(dtype, 4)[name](x)
    if name in PREDICATES:
        np.testing.assert_array_equal(got, getattr(np, name)(x))
        return
    with np.errstate(all="ignore"):
        want = truth(name, x).astype(dtype)
    for case in (np.isnan, np.isposinf, np.isneginf, lambda v: (v == 0) & ~np.signbit(v)):
        np.testing.assert_array_equal(case(got), case(want), err_msg=str(x))
    np.testing.assert_array_equal((got == 0) & np.signbit(got), (want == 0) & np.signbit(want))


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize("name", [name for name in UNARY if name not in PREDICATES])
def test_float64_is_the_c_librarys(name: str, lanes: int):
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**64, 2**12, dtype=np.uint64).view(np.float64)
    x = np.concatenate([SPECIAL.astype(np.float64), bits, rng.uniform(-30, 30, 2**12)])
    got, want = compiled("float64", lanes)[name](x), truth(name, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(got) & np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-15, atol=1e-320)


# float32 pow ------------------------------------------------------------------------------------


def pairs() -> Iterator[tuple[Array, Array]]:
    grid = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32)
    yield grid[:, 0], grid[:, 1]
    rng = np.random.default_rng(11)
    count = 2**17
    bits = rng.integers(0, 2**32, 2 * count, dtype=np.uint32).view(np.float32)
    yield bits[:count], bits[count:]
    x = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    yield x, rng.integers(-9, 10, count).astype(np.float32)
    x = np.exp(rng.uniform(-88, 88, count))
    yield x.astype(np.float32), (rng.uniform(-152, 130, count) / np.log2(x)).astype(np.float32)
    near = 1 + rng.uniform(-1e-3, 1e-3, count)
    yield near.astype(np.float32), rng.uniform(-1e5, 1e5, count).astype(np.float32)


def test_pow_is_accurate_and_c99s():
    for x, y in pairs():
        assert_close("pow", BOUNDS["pow"], compiled("float32", 8)["pow"](x, y), x, y)


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
def test_pow_in_other_widths(lanes: int):
    for x, y in pairs():
        x, y = x[:20000], y[:20000]
        a, b = compiled("float32", 8)["pow"](x, y), compiled("float32", lanes)["pow"](x, y)
        np.testing.assert_array_equal(a.view(np.uint32)[a == a], b.view(np.uint32)[b == b])


def test_pow_float64():
    for x, y in pairs():
        wide = widened(x[:4096]), widened(y[:4096])
        got, want = compiled("float64", 4)["pow"](*wide), truth("pow", *wide)
        np.testing.assert_allclose(got, want, rtol=1e-15, atol=1e-320)


# invariants that callers rely on ------------------------------------------------------------------


def test_bounded_functions_stay_in_bounds():
    x = inputs()
    x = x[~np.isnan(x)]
    for name, low in {"tanh": -1, "erf": -1, "sin": -1, "cos": -1, "sigmoid": 0}.items():
        got = compiled("float32", 8)[name](x)
        got = got[~np.isnan(got)]
        assert got.min() >= low, name
        assert got.max() <= 1, name


def test_saturation_is_exact():
    far = np.array([20, 1e3, 1e30, np.inf], np.float32)
    for name, left in {"tanh": -1, "erf": -1, "sigmoid": None}.items():
        run = compiled("float32", 4)[name]
        np.testing.assert_array_equal(run(far), 1)
        if left is not None:
            np.testing.assert_array_equal(run(-far), left)


# the text ---------------------------------------------------------------------------------------


def test_form_of_the_text():
    exp = define("exp", "float32", 8)
    head = "define internal <8 x float> @ms.exp.v8f32(<8 x float> %x) alwaysinline nounwind {"
    assert exp.text.startswith(head)
    assert "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)" in exp.declared
    assert "define internal <4 x i1> @ms.isnan.v4f32" in define("isnan", "float32", 4).text
    assert "define internal double @ms.exp.f64(double %x)" in define("exp", "float64", 1).text


def test_what_the_c_library_is_needed_for():
    needed = {name: define(name, "float32", 8).externals for name in FUNCTIONS}
    far = {"sin": {"sinf"}, "cos": {"cosf"}, "tan": {"tanf"}}
    assert {name: names for name, names in needed.items() if names} == far
    assert define("sigmoid", "float64", 8).externals == {"exp"}
    assert define("rsqrt", "float64", 8).externals == set()


@pytest.mark.skipif(not find_symbol("_ZGVdN4v_exp"), reason="the C library has no vector functions")
@pytest.mark.parametrize(
    ("target", "lanes", "called"),
    [
        ("x86-64-v2", 2, "_ZGVbN2v_exp"),
        ("x86-64-v2", 8, "_ZGVbN2v_exp"),
        ("x86-64-v3", 4, "_ZGVdN4v_exp"),
        ("x86-64-v3", 6, "_ZGVbN2v_exp"),
        ("x86-64-v3", 5, "exp"),
        ("x86-64-v4", 24, "_ZGVeN8v_exp"),
        ("x86-64-v4", 12, "_ZGVdN4v_exp"),
        ("x86-64-v4,vector_bytes=32", 8, "_ZGVdN4v_exp"),
        ("x86-64-v4", 1, "exp"),
        ("aarch64", 4, "exp"),
        ("riscv64", 4, "exp"),
    ],
)
def test_vector_functions_of_the_c_library(target: str, lanes: int, called: str):
    libraries = vector_libraries(resolve(target))
    assert define("exp", "float64", lanes, libraries).externals == {called}
    if len(called) > 3:
        assert define("pow", "float64", lanes, libraries).externals == {called.replace("v_exp", "vv_pow")}
    assert define("exp", "float32", lanes, libraries).externals == set()


@pytest.mark.parametrize("lanes", [1, 4, 5, 8, 16])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", TARGETS)
def test_every_target_compiles_all_and_calls_only_externals(name: str, dtype: str, lanes: int):
    target = resolve(name)
    machine = target_machine(target)
    defined = {name: define(name, dtype, lanes, vector_libraries(target)) for name in FUNCTIONS}
    text = f'target triple = "{target.triple}"\n' + whole_module(defined, dtype, lanes)
    assembly = machine.emit_assembly(optimised(text, machine))
    assert all(f"k.{name}:" in assembly for name in FUNCTIONS)
    calls = re.findall(r"^\s+(?:callq?|jmp|bl|tail)\s+([A-Za-z_][\w.]*)", assembly, re.MULTILINE)
    outside = {called for called in calls if not called.startswith(("ms.", ".L"))}
    assert outside == externals(defined)


# --- the long run -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_all_floats(name: str):
    chunk = 2**22
    for low in range(0, 2**32, chunk):
        x = np.arange(low, low + chunk, dtype=np.uint64).astype(np.uint32).view(np.float32)
        assert_close(name, BOUNDS[name], compiled("float32", 8)[name](x), x)
