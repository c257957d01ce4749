"""`Target`: what a machine is, a CPU or a GPU, as far as code generation, search spaces and the database
care.

A target is plain data: it prints, hashes, goes through JSON and crosses processes. Where one comes
from is `resolve` (names and options) and `detect` (this machine).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from metaschedule.ir import numpy_dtype

from .gpu import Gpu

# The features that decide which kernel is fast; the others (virtualisation, cryptography) stay out
# of `key`.
_COMPUTE = (
    "sse4.1 avx avx2 fma f16c avxvnni avxvnniint8 avxneconvert avx512f avx512bw avx512dq avx512vl "
    "avx512vnni avx512bf16 avx512fp16 amx-tile amx-int8 amx-bf16 amx-fp16 "
    "neon fullfp16 dotprod i8mm bf16 sve sve2 sme "
    "v zfh zvfh zvfbfmin"
)
COMPUTE_FEATURES = frozenset(_COMPUTE.split())


@dataclass(frozen=True, repr=False)
class Target:
    """One CPU or GPU. Sizes are in bytes; `l1` and `l2` belong to one core, `l3` is shared by all.

    `features` are LLVM's, with their sign ("+avx2", "-avx512f"); `vector_bytes` is the widest
    vector that is worth using and `vector_registers` how many of those there are. `cores` is the
    number of threads a kernel gets unless told otherwise, and part of `key`.

    A GPU has its figures in `gpu`; of the others `cores` are its multiprocessors, `vector_bytes` is the
    widest load of a thread, `vector_registers` are the registers of a thread, `l2` and `l3` are its last
    cache.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    cores: int
    l1: int
    l2: int
    l3: int
    line: int = 64
    gpu: Gpu | None = None

    @property
    def kind(self) -> Literal["cpu", "cuda", "opencl"]:
        """What kernels are written in: machine code of a CPU, CUDA, OpenCL."""
        return self.gpu.language if self.gpu else "cpu"

    @property
    def arch(self) -> str:
        """ "x86_64", "aarch64", "riscv64", "nvptx64", "spir64"."""
        return self.triple.partition("-")[0]

    @property
    def feature_string(self) -> str:
        """Features as LLVM's target machine takes them."""
        return ",".join(self.features)

    @property
    def abi(self) -> str:
        """ABI name for LLVM's target machine; only RISC-V has a choice to make."""
        return "lp64d" if self.arch == "riscv64" else ""

    @property
    def key(self) -> str:
        """What two machines must share for a measurement to mean the same on both (database key).

        >>> from metaschedule.target import resolve
        >>> resolve("x86-64-v3,cores=4").key
        'x86_64:x86-64-v3:avx+avx2+f16c+fma+sse4.1:32x16:c4'
        >>> resolve("cuda:sm_80").key
        'cuda:sm_80:NVIDIA A100-PCIE-40GB:m108'
        """
        if self.gpu:
            return f"{self.kind}:{self.gpu.arch}:{self.gpu.device}:m{self.gpu.multiprocessors}"
        present = sorted(f[1:] for f in self.features if f[0] == "+" and f[1:] in COMPUTE_FEATURES)
        vectors = f"{self.vector_bytes}x{self.vector_registers}"
        return f"{self.arch}:{self.cpu}:{'+'.join(present)}:{vectors}:c{self.cores}"

    @property
    def matrix_registers(self) -> int:
        """Registers that hold a matrix each: the tiles of AMX."""
        return 8 if self.has("amx-tile") else 0

    def has(self, feature: str) -> bool:
        """Whether the machine has a feature, by LLVM's name: `target.has("avx512f")`."""
        return f"+{feature}" in self.features

    @property
    def vector_scale(self) -> int | None:
        """How many 128 bits an SVE register has at the least, if code is to use more of it than NEON does."""
        return self.vector_bytes // 16 if self.has("sve") and self.vector_bytes > 16 else None

    def lanes(self, dtype: str) -> int:
        """How many elements of a dtype a vector register holds.

        >>> from metaschedule.target import resolve
        >>> resolve("x86-64-v3").lanes("float32"), resolve("aarch64").lanes("float64")
        (8, 2)
        """
        return max(1, self.vector_bytes // numpy_dtype(dtype).itemsize)

    def with_cores(self, cores: int) -> Target:
        return replace(self, cores=cores)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values, for `json.dumps`."""
        gpu = {"gpu": self.gpu.to_json()} if self.gpu else {}
        plain = {name: value for name, value in asdict(self).items() if name != "gpu"}
        return plain | {"features": list(self.features)} | gpu

    @staticmethod
    def from_json(data: dict[str, Any] | str) -> Target:
        """The target that `to_json` wrote, from the dictionary or its JSON text."""
        values: Any = json.loads(data) if isinstance(data, str) else data
        known = {f.name for f in fields(Target)}
        if not isinstance(values, dict) or not set(values) <= known:
            raise ValueError(f"not a target: {data!r:.200}")
        try:
            arguments: dict[str, Any] = values | {"features": tuple(values["features"])}
            if arguments.get("gpu") is not None:
                arguments["gpu"] = Gpu.from_json(arguments["gpu"])
            return Target(**arguments)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a complete target: {error}") from error

    def __str__(self) -> str:
        if self.gpu:
            return f"{self.name} ({self.gpu})"
        return (
            f"{self.name} ({self.cpu}, "
            f"{self.vector_registers} vectors of {8 * self.vector_bytes} bits, "
            f"{self.cores} core{'s' if self.cores != 1 else ''}, "
            f"L1 {size(self.l1)}, L2 {size(self.l2)}, L3 {size(self.l3)})"
        )

    def __repr__(self) -> str:
        return f"<Target {self}>"


def size(n: int) -> str:
    """Bytes for people: "32K", "1M".

    >>> size(32768), size(1 << 20), size(1000)
    ('32K', '1M', '1000')
    """
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if n and n % unit == 0:
            return f"{n // unit}{name}"
    return str(n)
