"""GPUs by name: architectures (limits of a block and rates of a multiprocessor) and devices of each (how many
multiprocessors, clocks, bandwidths).

Figures are the vendors' (programming guides, white papers, instruction set manuals); latencies and
bandwidths of caches are those that published microbenchmarks agree on. "cuda:sm_86" is a typical device of
the architecture; a device is "cuda:rtx-a4000"; figures of another are options:
"cuda:sm_86,multiprocessors=84,dram_bandwidth=768e9".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .gpu import Gpu

KIB = 1 << 10
MIB = 1 << 20


def rates(float32: float, **others: float) -> tuple[tuple[str, float], ...]:
    """Results a clock; a name has `_` where a rate has `.`."""
    named = {name.replace("_", "."): float(value) for name, value in others.items()}
    return tuple(sorted({"float32": float(float32), **named}.items()))


# What all of NVIDIA's since Volta share. Four schedulers issue one instruction of a warp each a clock.
NVIDIA: dict[str, Any] = {
    "language": "cuda",
    "warp": 32,
    "max_threads": 1024,
    "max_registers": 255,
    "max_shared": 48 * KIB,
    "registers": 64 * KIB,
    "register_unit": 256,
    "issues": 4,
    "banks": 32,
    "bank_bytes": 4,
    "l1_bytes": 128,
    "unified": True,
    "latency_arithmetic": 4,
    "latency_shared": 24,
}
SM: dict[str, dict[str, Any]] = {
    "sm_70": {
        "load_units": 32,
        "max_shared_optin": 96 * KIB,
        "shared": 96 * KIB,
        "reserved_shared": 0,
        "shared_unit": 256,
        "resident_threads": 2048,
        "resident_blocks": 32,
        "l1": 128 * KIB,
        "latency_l2": 193,
        "latency_dram": 450,
        "rates": rates(64, float64=32, float16=128, int32=64, special=16, dot_int8=256, mma_float16=512),
    },
    "sm_75": {
        "load_units": 16,
        "max_shared_optin": 64 * KIB,
        "shared": 64 * KIB,
        "reserved_shared": 0,
        "shared_unit": 256,
        "resident_threads": 1024,
        "resident_blocks": 16,
        "l1": 96 * KIB,
        "latency_l2": 188,
        "latency_dram": 430,
        "rates": rates(
            64, float64=2, float16=128, int32=64, special=16, dot_int8=256, mma_float16=512, mma_int8=1024
        ),
    },
    "sm_80": {
        "asynchronous": True,
        "load_units": 32,
        "max_shared_optin": 163 * KIB,
        "shared": 164 * KIB,
        "reserved_shared": KIB,
        "shared_unit": 128,
        "resident_threads": 2048,
        "resident_blocks": 32,
        "l1": 192 * KIB,
        "latency_l2": 200,
        "latency_dram": 470,
        "rates": rates(
            64,
            float64=32,
            float16=256,
            bfloat16=128,
            int32=64,
            special=16,
            dot_int8=256,
            mma_float16=1024,
            mma_bfloat16=1024,
            mma_tf32=512,
            mma_float64=64,
            mma_int8=2048,
        ),
    },
    "sm_86": {
        "asynchronous": True,
        "load_units": 16,
        "max_shared_optin": 99 * KIB,
        "shared": 100 * KIB,
        "reserved_shared": KIB,
        "shared_unit": 128,
        "resident_threads": 1536,
        "resident_blocks": 16,
        "l1": 128 * KIB,
        "latency_l2": 215,
        "latency_dram": 480,
        "rates": rates(
            128,
            float64=2,
            float16=128,
            bfloat16=128,
            int32=64,
            special=16,
            dot_int8=256,
            mma_float16=512,
            mma_bfloat16=512,
            mma_tf32=256,
            mma_int8=1024,
        ),
    },
    "sm_89": {
        "asynchronous": True,
        "load_units": 16,
        "max_shared_optin": 99 * KIB,
        "shared": 100 * KIB,
        "reserved_shared": KIB,
        "shared_unit": 128,
        "resident_threads": 1536,
        "resident_blocks": 24,
        "l1": 128 * KIB,
        "latency_l2": 270,
        "latency_dram": 540,
        "rates": rates(
            128,
            float64=2,
            float16=128,
            bfloat16=128,
            int32=64,
            special=16,
            dot_int8=256,
            mma_float16=512,
            mma_bfloat16=512,
            mma_tf32=256,
            mma_int8=1024,
        ),
    },
    "sm_90": {
        "asynchronous": True,
        "load_units": 32,
        "max_shared_optin": 227 * KIB,
        "shared": 228 * KIB,
        "reserved_shared": KIB,
        "shared_unit": 128,
        "resident_threads": 2048,
        "resident_blocks": 32,
        "l1": 256 * KIB,
        "latency_l2": 260,
        "latency_dram": 560,
        "rates": rates(
            128,
            float64=64,
            float16=256,
            bfloat16=256,
            int32=64,
            special=16,
            dot_int8=256,
            mma_float16=2048,
            mma_bfloat16=2048,
            mma_tf32=1024,
            mma_float64=128,
            mma_int8=4096,
        ),
    },
}
# AMD's `branch_clocks` are read off measured convolutions: 104 on gfx90a, 120 on gfx1032. Each stands here
# with the other's, so that what is predicted for it does not come from its own measurements; gfx1100 has the
# mean. AMD's compute units. gfx90a (CDNA 2): wavefronts of 64 on four vector units of 16 lanes, four clocks
# an instruction, 512 registers a lane; gfx1032, gfx1100 (RDNA 2, 3): wavefronts of 32 on two (RDNA 3: twice
# as wide for some instructions) vector units of 32 lanes, 1024 (RDNA 3: 1536) registers a lane. LDS is apart
# from the cache.
AMD: dict[str, Any] = {
    "language": "opencl",
    "max_threads": 1024,
    "max_registers": 256,
    "max_shared": 64 * KIB,
    "max_shared_optin": 64 * KIB,
    "shared": 64 * KIB,
    "reserved_shared": 0,
    "shared_unit": 512,
    "load_units": 32,
    "load_ahead": 128,
    "shared_ahead": 1,
    "banks": 32,
    "bank_bytes": 4,
    "unified": False,
}
GFX: dict[str, dict[str, Any]] = {
    "gfx90a": {
        "branch_clocks": 120.0,
        "warp": 64,
        "resident_threads": 2048,
        "resident_blocks": 32,
        "registers": 128 * KIB,
        "register_unit": 512,
        "issues": 1,
        "l1": 16 * KIB,
        "l1_bytes": 64,
        "line": 128,
        "sector": 64,
        "latency_arithmetic": 4,
        "latency_shared": 64,
        "latency_l2": 300,
        "latency_dram": 700,
        "rates": rates(64, float64=64, float16=128, int32=64, special=16, dot_int8=256, mma_float16=512),
    },
    "gfx1032": {
        "branch_clocks": 104.0,
        "warp": 32,
        "resident_threads": 1024,
        "resident_blocks": 16,
        "registers": 64 * KIB,
        "register_unit": 256,
        "issues": 2,
        "l1": 16 * KIB,
        "l1_bytes": 128,
        "line": 128,
        "sector": 64,
        "latency_arithmetic": 5,
        "latency_shared": 40,
        "latency_l2": 200,
        "latency_dram": 500,
        "rates": rates(64, float64=4, float16=128, int32=64, special=16, dot_int8=256),
    },
    "gfx1100": {
        "branch_clocks": 112.0,
        "warp": 32,
        "resident_threads": 1024,
        "resident_blocks": 16,
        "registers": 96 * KIB,
        "register_unit": 256,
        "issues": 2,
        "l1": 32 * KIB,
        "l1_bytes": 128,
        "line": 128,
        "sector": 64,
        "latency_arithmetic": 5,
        "latency_shared": 40,
        "latency_l2": 220,
        "latency_dram": 550,
        "rates": rates(96, float64=4, float16=192, int32=64, special=16, dot_int8=256, mma_float16=256),
    },
}
# Device: architecture, name, multiprocessors, clock in GHz (boost), L2 in MiB, bandwidth of L2 and of DRAM
# in GB/s. The large last-level caches of RDNA stand before DRAM and are left out: 32 to 96 MiB that few
# working sets fit.
DEVICES: dict[str, tuple[str, str, int, float, float, float, float]] = {
    "v100": ("sm_70", "Tesla V100-SXM2-16GB", 80, 1.53, 6, 2500, 900),
    "t4": ("sm_75", "Tesla T4", 40, 1.59, 4, 1270, 320),
    "rtx-2080-ti": ("sm_75", "GeForce RTX 2080 Ti", 68, 1.545, 5.5, 1800, 616),
    "a100": ("sm_80", "NVIDIA A100-PCIE-40GB", 108, 1.41, 40, 5500, 1555),
    "a100-80gb": ("sm_80", "NVIDIA A100-SXM4-80GB", 108, 1.41, 40, 5500, 2039),
    "rtx-3090": ("sm_86", "NVIDIA GeForce RTX 3090", 82, 1.695, 6, 2900, 936),
    "rtx-a4000": ("sm_86", "NVIDIA RTX A4000", 48, 1.56, 4, 1700, 448),
    "rtx-a6000": ("sm_86", "NVIDIA RTX A6000", 84, 1.80, 6, 3000, 768),
    "a10": ("sm_86", "NVIDIA A10", 72, 1.695, 6, 2600, 600),
    "rtx-4090": ("sm_89", "NVIDIA GeForce RTX 4090", 128, 2.52, 72, 5000, 1008),
    "l4": ("sm_89", "NVIDIA L4", 58, 2.04, 48, 2200, 300),
    "l40": ("sm_89", "NVIDIA L40", 142, 2.49, 96, 5000, 864),
    "h100": ("sm_90", "NVIDIA H100 SXM5 80GB", 132, 1.83, 50, 7000, 3350),
    "h100-pcie": ("sm_90", "NVIDIA H100 PCIe", 114, 1.755, 50, 5500, 2039),
    "mi250x": ("gfx90a", "AMD Instinct MI250X", 110, 1.7, 8, 6900, 1638),  # one of its two dies
    "mi210": ("gfx90a", "AMD Instinct MI210", 104, 1.7, 8, 6500, 1638),
    "w6600": ("gfx1032", "AMD Radeon PRO W6600", 28, 2.9, 2, 1480, 224),
    "w7800": ("gfx1100", "AMD Radeon PRO W7800", 70, 2.5, 6, 3800, 576),
    "w7900": ("gfx1100", "AMD Radeon PRO W7900", 96, 2.5, 6, 4900, 864),
}
TYPICAL = {
    "sm_70": "v100",
    "sm_75": "t4",
    "sm_80": "a100",
    "sm_86": "rtx-3090",
    "sm_89": "rtx-4090",
    "sm_90": "h100",
}
# Figures that options of a target change; a whole number unless said so in the second.
OPTIONS = (
    "multiprocessors",
    "max_threads",
    "max_registers",
    "max_shared",
    "max_shared_optin",
    "resident_threads",
    "resident_blocks",
    "registers",
    "shared",
    "l1",
    "l2",
    "warp",
)
REAL_OPTIONS = ("clock", "dram_bandwidth", "l2_bandwidth")


def describe(device: str) -> Gpu:
    """A device of the table by its key."""
    arch, name, count, ghz, l2, l2_bandwidth, dram_bandwidth = DEVICES[device]
    common = NVIDIA | SM[arch] if arch in SM else AMD | GFX[arch]
    return Gpu(
        device=name,
        arch=arch,
        multiprocessors=count,
        clock=ghz * 1e9,
        l2=int(l2 * MIB),
        l2_bandwidth=l2_bandwidth * 1e9,
        dram_bandwidth=dram_bandwidth * 1e9,
        **common,
    )


def assume_architecture(major: int, minor: int) -> Gpu:
    """A typical device of the newest architecture in the table that is no newer than a compute capability.

    >>> assume_architecture(8, 7).arch, assume_architecture(12, 0).arch
    ('sm_86', 'sm_90')
    """
    number = 10 * major + minor
    known = sorted((int(arch[3:]), arch) for arch in SM)
    nearest = [arch for value, arch in known if value <= number] or [known[0][1]]
    return describe(TYPICAL[nearest[-1]])


def with_figures(gpu: Gpu, changes: dict[str, float]) -> Gpu:
    """A GPU some of whose figures are others."""
    return replace(gpu, **{k: v if k in REAL_OPTIONS else int(v) for k, v in changes.items()})
