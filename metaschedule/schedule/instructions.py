"""Instructions that CPUs have for products of narrow numbers, described once and registered.

Each lane adds up products of neighbours along a reduction: four of bytes, two of 16 bits. The lanes of a
matrix instruction are rows and columns of a small product. What a target has is told by its features; a
space takes the instruction with the most products (`space.use_instruction`).
"""

from __future__ import annotations

from ..script import parse
from .intrinsics import INTRINSICS, register_intrinsic


def dot_product(lanes: int, group: int, a: str, b: str, c: str) -> str:
    """The description of `c[i] += sum of a[i, k] * b[i, k]`. Of floats, whose sums round, the last product
    comes first, as `vdpbf16ps` has it."""
    k = f"{group - 1} - k" if c == "float32" else "k"
    return f"""
def dot(A: T.Tensor(({lanes}, {group}), "{a}"), B: T.Tensor(({lanes}, {group}), "{b}"),
        C: T.Output(({lanes},), "{c}")):
    for i, k in T.grid({lanes}, {group}):
        C[i] = C[i] + T.cast(A[i, {k}], "{c}") * T.cast(B[i, {k}], "{c}")
"""


def matrix_product(shape: tuple[int, int, int], packed: int, a: str, b: str, c: str) -> str:
    """The description of `c[i, j] += sum of a[i, k] * b[j, k]`; the register of b has all of k side by side
    (`packed` is 0), or so many neighbours along k in each column."""
    rows, columns, depth = shape
    size = (depth // packed, columns, packed) if packed else (columns, depth)
    at = f"k // {packed}, j, k % {packed}" if packed else "j, k"
    return f"""
def product(A: T.Tensor(({rows}, {depth}), "{a}"), B: T.Tensor({size}, "{b}"),
            C: T.Output(({rows}, {columns}), "{c}")):
    for i, j, k in T.grid({rows}, {columns}, {depth}):
        C[i, j] = C[i, j] + T.cast(A[i, k], "{c}") * T.cast(B[{at}], "{c}")
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


def saturated_product(lanes: int) -> str:
    """The description of `vpmaddubsw`, `vpmaddwd` by ones and an addition: pairs of products saturate."""
    pair = " + ".join(
        f'T.cast(A[i, k * 2 + {n}], "int32") * T.cast(B[i, k * 2 + {n}], "int32")' for n in range(2)
    )
    return f"""
def saturated(A: T.Tensor(({lanes}, 4), "uint8"), B: T.Tensor(({lanes}, 4), "int8"),
              C: T.Output(({lanes},), "int32")):
    for i, k in T.grid({lanes}, 2):
        C[i] = C[i] + T.max(T.min({pair}, 32767), -32768)
"""


def multiply_add_bytes(bits: int, bytes_: str, words: str) -> str:
    lanes = bits // 32
    result, word, byte = f"<{lanes} x i32>", f"<{2 * lanes} x i16>", f"<{4 * lanes} x i8>"
    return f"""
        declare {word} @{bytes_}({byte}, {byte})
        declare {result} @{words}({word}, {word})
        %pairs = call {word} @{bytes_}({byte} %A, {byte} %B)
        %sums = call {result} @{words}({word} %pairs, {word} splat (i16 1))
        add {result} %sums, %C
    """


def register_amx() -> None:
    """Instructions of AMX on tiles of 16 rows of 64 bytes."""
    kinds = {"ss": SIGNED, "su": ("int8", "uint8", "int32"), "us": BYTES, "uu": UNSIGNED}
    shapes = {f"tdpb{kind}d": ((16, 16, 64), 4, operands, "amx-int8") for kind, operands in kinds.items()}
    shapes |= {"tdpbf16ps": ((16, 16, 32), 2, BRAIN, "amx-bf16")}
    for name, (shape, group, operands, feature) in shapes.items():
        description, features = parse(matrix_product(shape, group, *operands)), ("amx-tile", feature)
        register_intrinsic(
            f"x86.{name}", description, instruction=f"llvm.x86.{name}", features=features, tiles=True
        )


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
    for bits, bytes_, words, feature in (
        (512, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
        (256, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", "avx2"),
        (128, "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd", "ssse3"),
    ):
        code = multiply_add_bytes(bits, bytes_, words)
        description = parse(saturated_product(bits // 32))
        register_intrinsic(f"x86.vpmaddubsw.{bits}", description, instruction=code, features=(feature,))


def register_arm() -> None:
    for name, operands, features in (
        ("sdot", SIGNED, ("dotprod",)),
        ("udot", UNSIGNED, ("dotprod",)),
        ("usdot", BYTES, ("i8mm",)),
    ):
        code = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
        register_dot(f"arm.{name}", 4, operands, code, features)
    register_dot("arm.bfdot", 4, BRAIN, "llvm.aarch64.neon.bfdot.v4f32.v8bf16", ("bf16",))
    for name, operands in (("smmla", SIGNED), ("ummla", UNSIGNED), ("usmmla", BYTES)):
        description = parse(matrix_product((2, 2, 8), 0, *operands))
        code = f"llvm.aarch64.neon.{name}.v4i32.v16i8"
        register_intrinsic(f"arm.{name}", description, instruction=code, features=("i8mm",))
    description = parse(matrix_product((2, 2, 4), 0, *BRAIN))
    code = "llvm.aarch64.neon.bfmmla"
    register_intrinsic("arm.bfmmla", description, instruction=code, features=("bf16",))


register_x86()
register_amx()
register_arm()
OWN = frozenset(INTRINSICS)  # the package's; others are users'
