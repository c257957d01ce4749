"""This machine as a `Target`: instruction set from LLVM, caches from the kernel, cores from the
scheduler.

Every source has a stated fall-back, so detection never fails; it never assumes a vector extension
that LLVM did not find.
"""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from ..validation import check_arguments
from .detect_gpu import detect_cuda, detect_opencl
from .gpu import NoDevice
from .target import Target

CPU = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")
# Where neither /sys nor getconf knows: small sizes, so that tiles chosen for them fit anywhere.
FALLBACK_CACHES = {"l1": 32 << 10, "l2": 256 << 10, "l3": 4 << 20, "line": 64}


@cache
def native() -> Target:
    """The CPU this process runs on. Looked up once."""
    features = host_features()
    triple = llvm.get_default_triple()
    width, registers = vectors(triple.partition("-")[0], features)
    return Target(
        name="native",
        triple=triple,
        cpu=llvm.get_host_cpu_name(),
        features=features,
        vector_bytes=width,
        vector_registers=registers,
        cores=cores(),
        **caches(),
    )


@cache
def host_features() -> tuple[str, ...]:
    """LLVM's features of this CPU, each with its sign; empty where LLVM cannot tell. Those of AMX are had by
    processes that may use them."""
    try:
        flat = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        return ()
    features = tuple(sorted(flat.split(","))) if flat else ()
    if "+amx-tile" in features and not ask_for_tiles():
        return tuple([f.replace("+amx-", "-amx-") for f in features])
    return features


@cache
def ask_for_tiles() -> bool:
    """Whether this process may use tiles. Linux gives them to those who ask, for their threads and forks:
    arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA). Without, their first use is an illegal instruction."""
    libc = ctypes.CDLL(None)
    return hasattr(libc, "syscall") and libc.syscall(158, 0x1023, 18) == 0


@check_arguments
def missing_features(target: Target) -> list[str]:
    """Why code for `target` cannot run here: its architecture, or features this machine lacks."""
    if target.gpu:
        return missing_device(target)
    here = native()
    if target.arch != here.arch:
        return [f"architecture {target.arch} (this is {here.arch})"]
    if not here.features:  # LLVM could not tell: let it run
        return []
    have = set(here.features)
    return [f for f in target.features if f[0] == "+" and f not in have]


def missing_device(target: Target) -> list[str]:
    """Why a kernel for a GPU cannot run here: there is no such device."""
    try:
        here = detect_cuda() if target.kind == "cuda" else detect_opencl()
    except NoDevice as error:
        return [str(error)]
    if target.gpu and target.gpu.arch != here.arch:
        return [f"architecture {target.gpu.arch} (here is {here.device}, {here.arch or 'OpenCL'})"]
    return []


def vectors(arch: str, features: tuple[str, ...]) -> tuple[int, int]:
    """Bytes of a vector register and their number.

    >>> vectors("x86_64", ("+avx2", "-avx512f")), vectors("aarch64", ())
    ((32, 16), (16, 32))
    """
    have = {f[1:] for f in features if f[0] == "+"}
    if arch in ("x86_64", "amd64"):
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= have:
            return 64, 32
        return (32, 16) if "avx2" in have or "avx" in have else (16, 16)
    if arch.startswith("riscv"):
        widths = [int(m[1]) // 8 for f in have if (m := re.fullmatch(r"zvl(\d+)b", f))]
        # The V extension promises at least 128 bits; without it there are only scalars.
        return (max([16, *widths]), 32) if "v" in have else (8, 32)
    return 16, 32  # NEON is part of AArch64; fixed-length code does not use wider SVE registers


def cores() -> int:
    """Cores this process may use: its affinity, capped by a cgroup's CPU quota."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        count = os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, count if quota is None else min(count, int(quota + 0.5)))


def cpu_quota(root: Path = CGROUP) -> float | None:
    """CPUs' worth of time the control group allows, if it sets a limit (version 2, then version
    1)."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period = int((root / "cpu/cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return limit / period if limit > 0 and period > 0 else None


def caches(root: Path = CPU) -> dict[str, Any]:
    """Data cache sizes: from /sys, else `getconf`'s values, else FALLBACK_CACHES, each on its own.

    A machine without a third level gets its second as the last one, so that l3 >= l2 always.
    """
    found = sys_caches(root) or conf_caches()
    sizes = FALLBACK_CACHES | found
    if found and "l3" not in found:
        sizes["l3"] = sizes["l2"]
    return sizes


def sys_caches(root: Path) -> dict[str, int]:
    """Caches of the first core this process may use.

    A level that several cores share counts whole: hyper-threads and clusters differ too much for
    more.
    """
    try:
        first = min(os.sched_getaffinity(0))
    except AttributeError:
        first = 0
    found: dict[str, int] = {}
    for index in sorted((root / f"cpu{first}" / "cache").glob("index[0-9]*")):
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            line = int((index / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", text)
        if kind == "Instruction" or level not in (1, 2, 3) or match is None:
            continue
        found[f"l{level}"] = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
        if level == 1 and line > 0:
            found["line"] = line
    return {name: value for name, value in found.items() if value > 0}


def conf_caches() -> dict[str, int]:
    """What the C library knows (`getconf -a`); it says 0 where it does not."""
    names = {
        "l1": "SC_LEVEL1_DCACHE_SIZE",
        "l2": "SC_LEVEL2_CACHE_SIZE",
        "l3": "SC_LEVEL3_CACHE_SIZE",
        "line": "SC_LEVEL1_DCACHE_LINESIZE",
    }
    found: dict[str, int] = {}
    for field, name in names.items():
        try:
            value = os.sysconf(name)
        except (ValueError, OSError, AttributeError):
            continue
        if value > 0:
            found[field] = value
    return found
