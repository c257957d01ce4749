"""Targets by name, and `resolve`, which every public `target=` argument goes through.

A named target describes a class of machines, so its caches are typical of that class and its
`cores` are those of this process; options after the name change both:
"x86-64-v4,cores=8,l2=2097152". Features that it has besides, or lacks, are options too, by LLVM's names:
"x86-64-v4,+avx512vnni".

GPUs are "cuda" and "opencl", the first such device of this machine, "cuda:sm_86", a typical device of an
architecture, and "cuda:rtx-a4000", a device (`gpus.py`); their options are the figures of a `Gpu`:
"cuda:sm_86,multiprocessors=84".

The environment variable METASCHEDULE_TARGET says what "native" stands for, for kernels that other machines
are to run and for tests of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..validation import check_arguments
from . import detect, detect_gpu, gpus
from .gpu import Gpu
from .target import Target

V1 = "64bit cmov cx8 fxsr mmx sse sse2"
V2 = V1 + " cx16 popcnt sahf sse3 sse4.1 sse4.2 ssse3"
V3 = V2 + " avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
V4 = V3 + " avx512bw avx512cd avx512dq avx512f avx512vl"
NEON = "fp-armv8 neon"
# Vectors whose length is the machine's own: code is of a fixed length, so one must be assumed. 128 bits is
# the least that RISC-V's V and Arm's SVE allow; "riscv64,vlen=256" and "aarch64,sve=256" assume more.
RVV = "64bit a c d f m v zicsr zvl128b"
LINUX = "unknown-linux-gnu"
VARIABLE = "METASCHEDULE_TARGET"
OPTIONS = ("cores", "vector_bytes", "vector_registers", "l1", "l2", "l3", "line")
VECTOR_BITS = {"vlen": "riscv64", "sve": "aarch64"}  # options that give the assumed length in bits


def define_target(
    name: str, arch: str, cpu: str, features: str, l1: int = 32, l2: int = 512, l3: int = 8192
) -> Callable[[], Target]:
    """A target to make when asked for, because `cores` is this process's; cache sizes in KiB."""
    signed = tuple("+" + f for f in features.split())
    width, registers = detect.vectors(arch, signed)

    def make() -> Target:
        sizes: dict[str, Any] = {"l1": l1 << 10, "l2": l2 << 10, "l3": l3 << 10}
        triple = f"{arch}-{LINUX}"
        return Target(name, triple, cpu, signed, width, registers, detect.cores(), **sizes)

    return make


def assume_target() -> Target:
    """This machine, or what METASCHEDULE_TARGET says is to be taken for it."""
    if not (text := os.environ.get(VARIABLE)):
        return detect.native()
    try:
        return find(text, KNOWN | {"native": detect.native})
    except ValueError as error:
        raise ValueError(f"the environment variable {VARIABLE}: {error}") from error


KNOWN: dict[str, Callable[[], Target]] = {
    "native": assume_target,
    "x86-64": define_target("x86-64", "x86_64", "x86-64", V1, l2=256),
    "x86-64-v2": define_target("x86-64-v2", "x86_64", "x86-64-v2", V2, l2=256),
    "x86-64-v3": define_target("x86-64-v3", "x86_64", "x86-64-v3", V3),
    "x86-64-v4": define_target("x86-64-v4", "x86_64", "x86-64-v4", V4, l2=1024),
    "aarch64": define_target("aarch64", "aarch64", "generic", NEON, l1=64),
    "riscv64": define_target("riscv64", "riscv64", "generic-rv64", RVV, l3=1024),
}


def define_gpu(name: str, device: str) -> Callable[[], Target]:
    return lambda: make_gpu_target(name, gpus.describe(device))


def make_gpu_target(name: str, gpu: Gpu) -> Target:
    """A target around the figures of a GPU."""
    return Target(
        name=name,
        triple="nvptx64-nvidia-cuda" if gpu.language == "cuda" else "spir64-unknown-unknown",
        cpu=gpu.arch,
        features=(),
        vector_bytes=gpu.vector_bytes,
        vector_registers=gpu.max_registers,
        cores=gpu.multiprocessors,
        l1=gpu.l1,
        l2=gpu.l2,
        l3=gpu.l2,
        line=gpu.line,
        gpu=gpu,
    )


KNOWN |= {f"cuda:{arch}": define_gpu(f"cuda:{arch}", device) for arch, device in gpus.TYPICAL.items()}
DEVICES: dict[str, Callable[[], Target]] = {
    name: define_gpu(name, device)
    for device, (arch, *_) in gpus.DEVICES.items()
    for name in [f"{'cuda' if arch in gpus.SM else 'opencl'}:{device}"]
}
# The first device of this machine; whoever asks where there is none is told what is missing.
DETECTED: dict[str, Callable[[], Target]] = {
    "cuda": lambda: make_gpu_target("cuda", detect_gpu.detect_cuda()),
    "opencl": lambda: make_gpu_target("opencl", detect_gpu.detect_opencl()),
}


@check_arguments
def resolve(target: str | Target = "native") -> Target:
    """A target from a name with options, or from a target (which is returned as it is).

    >>> resolve("x86-64-v4").vector_bytes, resolve("riscv64,vlen=256").lanes("float32")
    (64, 8)
    >>> resolve("native,cores=1").cores
    1
    >>> resolve("aarch64,+dotprod").has("dotprod")
    True
    >>> resolve("cuda:sm_86").gpu.max_threads, resolve("opencl:mi250x").gpu.warp
    (1024, 64)
    """
    if isinstance(target, Target):
        return target
    if not isinstance(target, str):
        raise TypeError(f"target must be a name or a Target, got {type(target).__name__}")
    return find(target, KNOWN)


def find(text: str, known: Mapping[str, Callable[[], Target]]) -> Target:
    name, *options = (part.strip() for part in text.split(","))
    makers = {**known, **DETECTED, **DEVICES}
    if name not in makers:
        raise ValueError(f"unknown target {name!r}; known are {', '.join(makers)}")
    found = makers[name]()
    if found.gpu:
        return with_gpu_options(found, found.gpu, options)
    return with_options(found, options) if options else found


def with_gpu_options(target: Target, gpu: Gpu, options: list[str]) -> Target:
    """A GPU's target with other figures than the name stands for."""
    changes: dict[str, float] = {}
    for option in options:
        key, equals, text = (part.strip() for part in option.partition("="))
        if not equals or key not in (*gpus.OPTIONS, *gpus.REAL_OPTIONS):
            known = ", ".join(f"{o}=N" for o in (*gpus.OPTIONS, *gpus.REAL_OPTIONS))
            raise ValueError(f"unknown option {option!r} of a GPU; known are {known}")
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 1 <= value < float("inf") or (key in gpus.OPTIONS and value != int(value)):
            raise ValueError(f"target option {key!r} must be a positive number, got {text!r}")
        changes[key] = value
    if not changes:
        return target
    other = gpus.with_figures(gpu, changes)
    named = replace(other, device=f"{gpu.device} with {', '.join(options)}")
    return make_gpu_target(target.name, named)


def with_options(target: Target, options: list[str]) -> Target:
    changes: dict[str, int] = {}
    signed = [option for option in options if option[:1] in ("+", "-")]
    for option in signed:
        target = with_feature(target, option)
    for option in options:
        if option in signed:
            continue
        key, equals, text = (part.strip() for part in option.partition("="))
        if not equals or key not in (*OPTIONS, *VECTOR_BITS):
            known = ", ".join(f"{o}=N" for o in (*OPTIONS, *VECTOR_BITS))
            raise ValueError(f"unknown target option {option!r}; known are {known}, +FEATURE, -FEATURE")
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"target option {key!r} must be a positive integer, got {text!r}")
        if key in VECTOR_BITS:
            target = with_vector_bits(target, key, int(text))
        else:
            changes[key] = int(text)
    width = changes.get("vector_bytes", target.vector_bytes)
    if width & (width - 1):
        raise ValueError(f"target option 'vector_bytes' must be a power of two, got {width}")
    if width > target.vector_bytes:
        if target.arch != "riscv64":
            more = ": sve=N gives the bits of SVE" if target.arch == "aarch64" else ""
            raise ValueError(
                f"target {target.name!r} has vectors of {target.vector_bytes} bytes, not {width}{more}"
            )
        target = with_vector_bits(target, "vlen", 8 * width)
    return replace(target, **changes)


def with_vector_bits(target: Target, option: str, bits: int) -> Target:
    """A target whose vectors of no fixed length are assumed to have so many bits, or more."""
    if target.arch != VECTOR_BITS[option]:
        raise ValueError(f"target option {option!r} is for {VECTOR_BITS[option]}, not {target.arch}")
    if bits & (bits - 1) or not 128 <= bits <= 2048:
        raise ValueError(f"target option {option!r} must be a power of two from 128 to 2048, got {bits}")
    target = replace(target, vector_bytes=bits // 8)
    return with_feature(target, "+sve" if option == "sve" else f"+zvl{bits}b")


def with_feature(target: Target, signed: str) -> Target:
    """A target that has a feature (+avx512vnni) or lacks it (-fma)."""
    name = signed[1:]
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise ValueError(f"target option {signed!r} is no feature of LLVM's, as +avx512vnni is")
    others = [f for f in target.features if f[1:] != name]
    return replace(target, features=(*others, signed))
