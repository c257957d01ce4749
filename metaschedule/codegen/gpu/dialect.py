# ruff: noqa: E501
"""CUDA C and OpenCL C: all that differs between them, as two tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """How a language spells what kernels are made of. `{}` stands for names and numbers."""

    name: str
    prelude: str
    kernel: str  # of {name} {x} {y} {z} {threads} {blocks} {params}
    pointer: str  # of {const} {type} {name}: a parameter
    shared: str  # a prefix
    table: str  # of {type} {name} {size} {values}
    helper: str  # a prefix of functions
    barrier: str
    space: str  # a prefix of pointers to memory of the device
    axes: dict[str, str]
    functions: dict[tuple[str, str], str]  # (function, dtype): its name


COMMON = r"""
HELPER float ms_from_bfloat16(u16 x) { return AS_FLOAT((u32)x << 16); }
HELPER u16 ms_to_bfloat16(float x) {
  u32 b = AS_UINT(x);
  if (x != x) return (u16)((b | 0x400000u) >> 16);
  return (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
HELPER float ms_from_float16(u16 h) {
  u32 s = (u32)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 1023u;
  if (e == 31u) return AS_FLOAT(s | 0x7f800000u | (m << 13));
  if (e) return AS_FLOAT(s | ((e + 112u) << 23) | (m << 13));
  float tiny = (float)m * 5.9604644775390625e-8f;
  return s ? -tiny : tiny;
}
HELPER u16 ms_to_float16(float x) {
  u32 b = AS_UINT(x), s = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
  if (a > 0x7f800000u) return (u16)(s | 0x7e00u);
  if (a >= 0x477ff000u) return (u16)(s | 0x7c00u);
  if (a >= 0x38800000u) { u32 r = a + 0xfffu + ((a >> 13) & 1u); return (u16)(s | ((r - 0x38000000u) >> 13)); }
  if (a < 0x33000000u) return (u16)s;
  u32 e = a >> 23, m = (a & 0x7fffffu) | 0x800000u, shift = 126u - e;
  u32 q = m >> shift, rest = m & ((1u << shift) - 1u), half_way = 1u << (shift - 1u);
  if (rest > half_way || (rest == half_way && (q & 1u))) ++q;
  return (u16)(s | q);
}
HELPER float ms_round_bfloat16(float x) { return ms_from_bfloat16(ms_to_bfloat16(x)); }
HELPER float ms_round_float16(float x) { return ms_from_float16(ms_to_float16(x)); }
"""

# Of every signed integer type T, unsigned U and width in bits.
INTEGER = r"""
HELPER T ms_floordiv_T(T a, T b) { if (b == -1) return (T)(0 - (U)a); T q = a / b; return q - ((a % b != 0) && ((a < 0) != (b < 0))); }
HELPER T ms_floormod_T(T a, T b) { if (b == -1) return 0; T r = a % b; return (r != 0 && ((r < 0) != (b < 0))) ? (T)(r + b) : r; }
HELPER T ms_shl_T(T a, T b) { return (b < 0 || b >= BITS) ? (T)0 : (T)((U)a << b); }
HELPER T ms_shr_T(T a, T b) { return (b < 0 || b >= BITS) ? (T)(a < 0 ? -1 : 0) : (T)(a >> b); }
HELPER T ms_min_T(T a, T b) { return a < b ? a : b; }
HELPER T ms_max_T(T a, T b) { return a > b ? a : b; }
HELPER T ms_abs_T(T a) { return a < 0 ? (T)(0 - (U)a) : a; }
"""
FLOAT = r"""
HELPER T ms_min_T(T a, T b) { return (a < b || a != a) ? a : b; }
HELPER T ms_max_T(T a, T b) { return (a > b || a != a) ? a : b; }
HELPER T ms_sigmoid_T(T x) { T d = EXP(-FABS(x)); return (x >= (T)0 ? (T)1 : d) / ((T)1 + d); }
HELPER T ms_floormod_T(T a, T b) { T r = FMOD(a, b); if (r != (T)0) return ((r < (T)0) != (b < (T)0)) ? r + b : r; return COPYSIGN((T)0, b); }
HELPER T ms_floordiv_T(T a, T b) {
  if (b == (T)0) return a / b;
  T r = FMOD(a, b), q = (a - r) / b;
  if (r != (T)0 && ((r < (T)0) != (b < (T)0))) q -= (T)1;
  T n = RINT(q);
  return n == (T)0 ? COPYSIGN((T)0, a / b) : n;
}
"""
CHECKS = r"""
HELPER i64 ms_check_index(GLOBAL int* status, int code, i64 value, i64 extent) {
  if (value >= 0 && value < extent) return value;
  if (CAS(status, 0, code) == 0) ((GLOBAL i64*)status)[1] = value;
  return 0;
}
HELPER int ms_fail(GLOBAL int* status, int code) { CAS(status, 0, code); return 1; }
"""


def prelude(types: str, defines: str, single: str) -> str:
    """Types and functions that both dialects have. `single` is how the name of a function of float ends."""
    text = types + defines + COMMON + CHECKS
    for name, unsigned, bits in (("i8", "u8", 8), ("i16", "u16", 16), ("i32", "u32", 32), ("i64", "u64", 64)):
        lines = INTEGER.replace("BITS", str(bits))
        text += (
            lines.replace("_T(", f"_{name}(")
            .replace("T ", f"{name} ")
            .replace("(T)", f"({name})")
            .replace("(U)", f"({unsigned})")
        )
    text += "HELPER u8 ms_min_u8(u8 a, u8 b) { return a < b ? a : b; }\n"
    text += "HELPER u8 ms_max_u8(u8 a, u8 b) { return a > b ? a : b; }\n"
    for name in ("float", "double"):
        suffix = single if name == "float" else ""
        functions = {"EXP": "exp", "FABS": "fabs", "FMOD": "fmod", "COPYSIGN": "copysign", "RINT": "rint"}
        lines = FLOAT.replace("_T(", f"_{name}(").replace("T ", f"{name} ").replace("(T)", f"({name})")
        for word, function in functions.items():
            lines = lines.replace(f"{word}(", f"{function}{suffix}(")
        text += lines
    return text


OPENCL_TYPES = """#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
"""
CUDA_TYPES = """typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
"""
CUDA_ASYNC = r"""
#if __CUDA_ARCH__ >= 800
template <int BYTES> HELPER void ms_copy_async(void* to, const void* from) {
  unsigned place = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(place), "l"(from), "n"(BYTES) : "memory");
}
template <int UNDER_WAY> HELPER void ms_copies_arrive() {
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.wait_group %0;" :: "n"(UNDER_WAY) : "memory");
}
#endif
"""
UNARY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "floor",
    "ceil",
    "trunc",
]
OPENCL_FUNCTIONS = {
    **{(name, dtype): name for name in UNARY for dtype in ("float32", "float64")},
    **{("pow", dtype): "pow" for dtype in ("float32", "float64")},
    **{("round", dtype): "rint" for dtype in ("float32", "float64")},
    **{("abs", dtype): "fabs" for dtype in ("float32", "float64")},
}
CUDA_FUNCTIONS = {
    (name, dtype): f"{called}f" if dtype == "float32" else called
    for (name, dtype), called in OPENCL_FUNCTIONS.items()
}

OPENCL = Dialect(
    "opencl",
    prelude(
        OPENCL_TYPES,
        "#define HELPER static inline\n#define GLOBAL __global\n#define AS_FLOAT(x) as_float(x)\n"
        "#define AS_UINT(x) as_uint(x)\n#define AS_DOUBLE(x) as_double(x)\n"
        "#define CAS(p, a, b) atomic_cmpxchg((volatile __global int*)(p), a, b)\n",
        "",
    ),
    "__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({params})",
    "__global {const}{type}* restrict {name}",
    "__local ",
    "__constant {type} {name}[{size}] = {{{values}}};",
    "inline ",
    "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    "__global ",
    {
        f"{unit}.{axis}": f"{function}({n})"
        for unit, function in (("blockIdx", "get_group_id"), ("threadIdx", "get_local_id"))
        for n, axis in enumerate("xyz")
    },
    OPENCL_FUNCTIONS,
)
CUDA = Dialect(
    "cuda",
    prelude(
        CUDA_TYPES,
        "#define HELPER static __device__ __forceinline__\n#define GLOBAL\n"
        "#define AS_FLOAT(x) __uint_as_float(x)\n#define AS_UINT(x) __float_as_uint(x)\n"
        "#define AS_DOUBLE(x) __longlong_as_double((long long)(x))\n#define CAS(p, a, b) atomicCAS(p, a, b)\n",
        "f",
    )
    + CUDA_ASYNC,
    'extern "C" __global__ void __launch_bounds__({threads}, {blocks}) {name}({params})',
    "{const}{type}* __restrict__ {name}",
    "__shared__ ",
    "static __constant__ {type} {name}[{size}] = {{{values}}};",
    "static __device__ __forceinline__ ",
    "__syncthreads();",
    "",
    {f"{unit}.{axis}": f"{unit}.{axis}" for unit in ("blockIdx", "threadIdx") for axis in "xyz"},
    CUDA_FUNCTIONS,
)
DIALECTS = {d.name: d for d in (OPENCL, CUDA)}
