"""OpenCL devices of this machine: which there are, and the first that compiles a kernel.

A device that is listed may be of no use: PoCL 3.0, the newest on PyPI, compiles nothing for a CPU that is
younger than its LLVM 14. So a device is asked for a small kernel before it is chosen.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .gpu import NoDevice

INSTALL = "pip install 'metaschedule[opencl]' (pyopencl; on x86 also Intel's OpenCL, which runs on the CPU)"
PROBE = "__kernel void probe(__global int* x) { *x = 1; }"
# Where a loader is told to look for platforms; who has set one of them has chosen.
CHOSEN = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")


def import_pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise NoDevice(f"OpenCL needs the package pyopencl: {INSTALL}") from error
    return pyopencl


@cache
def find_opencl() -> Any:
    """The first device that compiles a kernel, GPUs before others."""
    cl = import_pyopencl()
    try:
        devices = [device for platform in list_platforms(cl) for device in platform.get_devices()]
    except cl.Error as error:
        raise NoDevice(f"OpenCL has no platform here ({error}): {INSTALL}") from error
    if not devices:
        raise NoDevice(f"OpenCL has no device here: {INSTALL}")
    devices.sort(key=lambda device: bool(device.type & cl.device_type.CPU))
    complaints = []
    for device in devices:
        complaint = why_useless(device)
        if complaint is None:
            return device
        complaints.append(complaint)
    raise NoDevice(f"{'; '.join(complaints)}; {INSTALL}, or a newer version of it, is needed")


def why_useless(device: Any) -> str | None:
    """What the compiler of a device says that compiles nothing."""
    cl = import_pyopencl()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # compilers are talkative
            cl.Program(cl.Context([device]), PROBE).build(devices=[device], cache_dir=False)
    except cl.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if "error:" in line]
        return (
            f"the OpenCL compiler of {device.name} ({device.platform.version.strip()}) compiles nothing"
            f"{': ' if lines else ''}{'; '.join(lines)}"
        )
    return None


def list_platforms(cl: Any) -> list[Any]:
    """The platforms of this machine, and Intel's if pip installed it.

    Its package installs the library, but no loader finds it: the file that should name it has the path of the
    machine that built it. Loaders read such files once, when they are first asked.
    """
    library = find_intel_library()
    if library is None or any(os.environ.get(name) for name in CHOSEN):
        return cl.get_platforms()
    with TemporaryDirectory(prefix="metaschedule-opencl-") as vendors:
        for file in list_vendor_files():
            named = file.read_text().strip()
            beside = file.parent / named
            Path(vendors, file.name).write_text(f"{beside if beside.exists() else named}\n")
        Path(vendors, "intel-of-pip.icd").write_text(f"{library}\n")
        os.environ[CHOSEN[0]] = vendors
        try:
            return cl.get_platforms()
        finally:
            del os.environ[CHOSEN[0]]


def list_vendor_files() -> list[Path]:
    """The files that name the libraries of other platforms, of the system and of conda's environments; the
    loader of pyopencl's wheel finds the PoCL beside it in any case."""
    places = (Path("/etc/OpenCL/vendors"), Path(sys.prefix, "etc/OpenCL/vendors"))
    return [file for place in places for file in sorted(place.glob("*.icd"))]


def find_intel_library() -> Path | None:
    try:
        files = metadata.files("intel-opencl-rt") or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())).resolve() for file in files if file.name == "libintelocl.so")
    return next((file for file in found if file.exists()), None)
