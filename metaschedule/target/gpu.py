"""`Gpu`: what a GPU is, as far as spaces, checks, code generation and the cost model care.

The words are CUDA's: a *block* of threads runs on one *multiprocessor*, in *warps* that share an instruction,
and has *shared* memory. For AMD they stand for a workgroup, a compute unit, a wavefront and LDS.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Language = Literal["cuda", "opencl"]


class NoDevice(ValueError):
    """There is no device of the kind asked for; the message says what is missing."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. Sizes are in bytes, registers have 32 bits, rates are per clock of one multiprocessor.

    `rates` are results a clock by dtype, one fused multiplication and addition being one result, and by
    instruction: "special" (exp, sqrt and the like), "mma.float16" (products of matrix instructions),
    "dot.int8" (dp4a). `sector` is the least that memory moves, `line` what caches keep. A block gets
    `max_shared` bytes as they are declared, and up to `max_shared_optin` if its launch asks for them; each
    block costs `reserved_shared` more.
    """

    language: Language
    device: str  # its name, part of database keys
    arch: str  # "sm_86", "gfx90a"; "" where the compiler of the device need not be told
    warp: int
    multiprocessors: int
    clock: float  # Hz, under load

    max_threads: int  # of a block
    max_registers: int  # of a thread
    max_shared: int  # of a block
    max_shared_optin: int
    resident_threads: int  # of a multiprocessor, at most
    resident_blocks: int
    registers: int
    shared: int
    reserved_shared: int  # taken by the system from the share of each block
    register_unit: int  # a warp gets a multiple of so many registers
    shared_unit: int  # a block gets a multiple of so many bytes

    issues: int  # instructions of warps a clock and multiprocessor
    load_units: int  # threads a clock whose loads or stores are worked on
    rates: tuple[tuple[str, float], ...]
    latency_arithmetic: int  # clocks until a result can be used
    latency_shared: int
    latency_l2: int
    latency_dram: int

    banks: int  # of shared memory, each `bank_bytes` wide
    bank_bytes: int
    l1: int  # of a multiprocessor; shared memory is taken from it where `unified`
    l1_bytes: int  # bytes a clock and multiprocessor from L1
    unified: bool
    l2: int
    l2_bandwidth: float  # bytes a second, of the whole device
    dram_bandwidth: float
    sector: int = 32
    line: int = 128
    vector_bytes: int = 16  # the widest load or store of a thread
    launch_seconds: float = 3e-6  # until an empty kernel has run
    max_private: int = 1 << 40  # bytes that the threads of a block have for themselves, together
    asynchronous: bool = False  # copies to shared memory without registers, which threads need not wait for
    # What compilers for it make of loads: how many values of unrolled loops they load ahead, how many loads
    # from shared memory are on their way at once (AMD's return in no order with scalar loads, so that all are
    # waited for), and the clocks of a multiprocessor that a load in a branch of its own takes (0: it is
    # predicated).
    load_ahead: int = 16
    shared_ahead: int = 8
    branch_clocks: float = 0.0

    @property
    def shared_bytes(self) -> int:
        """Bytes a clock and multiprocessor from shared memory without conflicts."""
        return self.banks * self.bank_bytes

    def rate(self, what: str) -> float:
        """Results a clock and multiprocessor of a dtype or an instruction; of what is not listed, the
        nearest.

        >>> from metaschedule.target import resolve
        >>> gpu = resolve("cuda:sm_80").gpu
        >>> gpu.rate("float32"), gpu.rate("mma.float16"), gpu.rate("uint32")
        (64.0, 1024.0, 64.0)
        """
        rates = dict(self.rates)
        if what in rates:
            return float(rates[what])
        if what.startswith(("mma.", "dot.")):
            return 0.0  # no such instruction
        if what in ("int64", "uint64"):
            return rates["int32"] / 4
        if what.startswith(("int", "uint", "bool")):
            return float(rates["int32"])
        if what.startswith("complex"):
            return rates["float64" if what == "complex128" else "float32"] / 4
        return float(rates["float32"])

    def seconds(self, clocks: float) -> float:
        return clocks / self.clock

    def peak(self, what: str) -> float:
        """Operations a second of the whole device, a multiplication and an addition being two."""
        return 2 * self.rate(what) * self.multiprocessors * self.clock

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"rates": [list(pair) for pair in self.rates]}

    @staticmethod
    def from_json(values: Any) -> Gpu:
        """The GPU that `to_json` wrote."""
        known = {f.name for f in fields(Gpu)}
        if not isinstance(values, dict) or not set(values) <= known:
            raise ValueError(f"not a GPU: {values!r:.200}")
        try:
            rates = tuple((str(name), float(rate)) for name, rate in values["rates"])
            arguments: dict[str, Any] = values | {"rates": rates}
            return Gpu(**arguments)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a complete GPU: {error}") from error

    def __str__(self) -> str:
        return (
            f"{self.device}, {self.multiprocessors} multiprocessors at {self.clock / 1e9:.2f} GHz, "
            f"{self.dram_bandwidth / 1e9:.0f} GB/s"
        )
