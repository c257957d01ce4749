"""Instructions that CPUs have for products of narrow numbers, described once and registered.

Each lane adds up products of neighbours along a reduction: four of bytes, two of 16 bits. What a target
has is told by its features; a space takes the widest (`space.use_instruction`).
"""

from __future__ import annotations

from ..script import parse
from .intrinsics import register_intrinsic


def dot_product(lanes: int, group: int, a: str, b: str, c: str) -> str:
    """The description of `c[i] += sum of a[i, k] * b[i, k]`."""
    return f"""
def dot(A: T.Tensor(({lanes}, {group}), "{a}"), B: T.Tensor(({lanes}, {group}), "{b}"),
        C: T.Output(({lanes},), "{c}")):
    for i, k in T.grid({lanes}, {group}):
        C[i] = C[i] + T.cast(A[i, k], "{c}") * T.cast(B[i, k], "{c}")
"""


def register_dot(
    name: str, lanes: int, operands: tuple[str, str, str], code: str, features: tuple[str, ...]
) -> None:
    """An instruction that multiplies groups of bytes or of 16 bits that fill 32."""
    a, b, c = operands
    group = 4 if a.endswith("int8") else 2
    register_intrinsic(name, parse(dot_product(lanes, group, a, b, c)), instruction=code, features=features)


BYTES = ("uint8", "int8", "int32")
SIGNED = ("int8", "int8", "int32")
UNSIGNED = ("uint8", "uint8", "int32")
WORDS = ("int16", "int16", "int32")
BRAIN = ("bfloat16", "bfloat16", "float32")


def multiply_add_words(bits: int, intrinsic: str) -> str:
    """`vpmaddwd` and an addition. Two products of 16 bits fit 32 but for -32768 twice, which wraps."""
    lanes = bits // 32
    result, operand = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    return f"""
        declare {result} @{intrinsic}({operand}, {operand})
        %products = call {result} @{intrinsic}({operand} %A, {operand} %B)
        add {result} %products, %C
    """


def register_x86() -> None:
    vnni, narrow = ("avx512vnni",), ("avx512vnni", "avx512vl")
    for bits, features in ((512, vnni), (256, narrow), (128, narrow)):
        name = f"llvm.x86.avx512.vpdpbusd.{bits}"
        register_dot(f"x86.vpdpbusd.{bits}", bits // 32, BYTES, name, features)
        name = f"llvm.x86.avx512.vpdpwssd.{bits}"
        register_dot(f"x86.vpdpwssd.{bits}", bits // 32, WORDS, name, features)
    for bits in (256, 128):
        register_dot(
            f"x86.avxvnni.vpdpbusd.{bits}",
            bits // 32,
            BYTES,
            f"llvm.x86.avx512.vpdpbusd.{bits}",
            ("avxvnni",),
        )
        for kind, operands in (("ssd", SIGNED), ("uud", UNSIGNED)):
            name = f"llvm.x86.avx2.vpdpb{kind}.{bits}"
            register_dot(f"x86.vpdpb{kind}.{bits}", bits // 32, operands, name, ("avxvnniint8",))
    for bits, features in ((512, ("avx512bf16",)), (256, ("avx512bf16", "avx512vl"))):
        name = f"llvm.x86.avx512bf16.dpbf16ps.{bits}"
        register_dot(f"x86.vdpbf16ps.{bits}", bits // 32, BRAIN, name, features)
    for bits, name, features in (
        (512, "llvm.x86.avx512.pmaddw.d.512", ("avx512bw",)),
        (256, "llvm.x86.avx2.pmadd.wd", ("avx2",)),
        (128, "llvm.x86.sse2.pmadd.wd", ("sse2",)),
    ):
        register_dot(f"x86.vpmaddwd.{bits}", bits // 32, WORDS, multiply_add_words(bits, name), features)


def register_arm() -> None:
    for name, operands, features in (
        ("sdot", SIGNED, ("dotprod",)),
        ("udot", UNSIGNED, ("dotprod",)),
        ("usdot", BYTES, ("i8mm",)),
    ):
        code = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
        register_dot(f"arm.{name}", 4, operands, code, features)
    register_dot("arm.bfdot", 4, BRAIN, "llvm.aarch64.neon.bfdot.v4f32.v8bf16", ("bf16",))


register_x86()
register_arm()
