"""Whether a CPU has what code was compiled for, asked in C: for libraries that start on whatever machine."""

from __future__ import annotations

from metaschedule.target import Target

# What C compilers know by name; they ask the operating system, too, whether it keeps the registers.
_NAMED = (
    "popcnt sse3 ssse3 sse4.1 sse4.2 avx avx2 fma bmi bmi2 avx512f avx512bw avx512cd avx512dq avx512vl "
    "avx512vbmi avx512vbmi2 avx512vnni avx512ifma avx512bitalg avx512vpopcntdq"
)
NAMED = frozenset(_NAMED.split())
# Leaf, subleaf, register (eax to edx) and bit of CPUID.
BITS = {
    "f16c": (1, 0, 2, 29),
    "movbe": (1, 0, 2, 22),
    "lzcnt": (0x80000001, 0, 2, 5),
    "avxvnni": (7, 1, 0, 4),
    "avx512bf16": (7, 1, 0, 5),
    "avxvnniint8": (7, 1, 3, 4),
    "avxneconvert": (7, 1, 3, 5),
    "avx512fp16": (7, 0, 3, 23),
    "amx-bf16": (7, 0, 3, 22),
    "amx-tile": (7, 0, 3, 24),
    "amx-int8": (7, 0, 3, 25),
}
# Bits of AT_HWCAP (16) and AT_HWCAP2 (26) of Linux.
ARM = {
    "fullfp16": (16, 10),
    "dotprod": (16, 20),
    "sve": (16, 22),
    "sve2": (26, 1),
    "i8mm": (26, 13),
    "bf16": (26, 14),
    "sme": (26, 23),
}


def features_test(target: Target) -> str:
    """An expression of C: true where a CPU has the features of a target, as far as they can be asked for.

    >>> from metaschedule.target import resolve
    >>> features_test(resolve("aarch64,+dotprod"))
    '(getauxval(16) >> 20 & 1)'
    """
    wanted = [f[1:] for f in target.features if f[0] == "+"]
    tests: list[str] = []
    if target.arch == "x86_64":
        tests += [f'__builtin_cpu_supports("{f}")' for f in wanted if f in NAMED]
        tests += ["has_bit({}, {}, {}, {})".format(*BITS[f]) for f in wanted if f in BITS]
    elif target.arch == "aarch64":
        tests += ["(getauxval({}) >> {} & 1)".format(*ARM[f]) for f in wanted if f in ARM]
    return " && ".join(tests) or "true"
