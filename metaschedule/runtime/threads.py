"""Which OpenMP, and how many threads.

Kernels call GOMP_parallel through pointers that are kept here. Two thread pools in one process ruin
each other (a torch operator alternated with a kernel on a second libgomp takes 180 times as long),
so the order is: the library torch uses, if torch is imported, also when that happens later; else a
libgomp that is already in the process; else the one bundled with xgboost, which tuning will load;
else the system's. With none of them kernels run on one thread, and say so once.

A forked process has the pools of its parent but not their threads, and a pool waits for them for ever. So the
child gets a pool of its own: a second copy of the library, which has never started a thread.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from metaschedule.target import native
from metaschedule.validation import Threads as ThreadCount
from metaschedule.validation import check_arguments

from .native import PROCESS

FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


class Threads:
    """The process's one choice. `source` says where the pool came from (None: not looked for yet).

    `settled` becomes true when no later import can change the choice.
    """

    def __init__(self) -> None:
        self.source: str | None = None
        self.settled = False
        self.forked = False  # the pools that are in the process have no threads
        self._libraries: list[ctypes.CDLL] = []  # keeps what the pointers point into

    def refresh(self) -> None:
        """Find the pool to use. Cheap, and called before every parallel kernel until `settled`."""
        if self.forked and (stale := find_mapped_library("libgomp")) is not None:
            self.settled = True
            if not self._adopt("copy", stale, copied=True):
                self._do_without("no copy of OpenMP could be loaded after a fork: kernels run on one thread")
            return
        torch = sys.modules.get("torch")
        if torch is not None:
            if self._adopt("torch", torch_library()):
                self.settled = True
                return
            # Half imported: its libraries are still to come. Otherwise it has no GOMP_parallel for
            # us.
            spec = getattr(torch, "__spec__", None)
            self.settled = not getattr(spec, "_initializing", False)
        if self.source is not None:
            return
        for source, path in candidates():
            if self._adopt(source, path):
                return
        self._do_without(
            "no OpenMP library found (libgomp): kernels run on one thread; "
            "install libgomp1 or xgboost-cpu, or import torch"
        )

    def forget(self) -> None:
        """Kernels run on one thread, in this forked process, until `refresh` has found a pool."""
        PROCESS.gomp_parallel = PROCESS.thread_num = PROCESS.num_threads = None
        self.source, self.settled, self.forked = None, False, True

    def _do_without(self, why: str) -> None:
        self.source = "none"
        warnings.warn(why, RuntimeWarning, stacklevel=4)

    def _adopt(self, source: str, path: str | None, copied: bool = False) -> bool:
        """Point kernels at the pool of the library at `path`, or at the one that library uses."""
        if path is None:
            return False
        try:
            library = load_copy(path) if copied else ctypes.CDLL(path)
            addresses = [ctypes.cast(getattr(library, f), ctypes.c_void_p).value for f in FUNCTIONS]
        except (OSError, AttributeError):
            return False
        self._libraries.append(library)
        PROCESS.gomp_parallel, PROCESS.thread_num, PROCESS.num_threads = addresses
        self.source = source
        return True


def candidates() -> Iterator[tuple[str, str | None]]:
    """Pools to consider where torch is not imported, best first."""
    yield "loaded", find_mapped_library("libgomp")
    yield "xgboost", find_bundled("xgboost")
    yield "system", "libgomp.so.1"


def torch_library() -> str | None:
    """The library torch's operators live in; looking a symbol up there finds the OpenMP they
    use."""
    return find_mapped_library("libtorch_cpu.") or find_mapped_library("libtorch.")


def find_mapped_library(prefix: str) -> str | None:
    """Path of a shared library in this process whose file name begins with `prefix`."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for line in maps.splitlines():
        path = line.partition("/")[2]
        if ".so" in path and path.rpartition("/")[2].startswith(prefix):
            return "/" + path
    return None


def load_copy(path: str) -> ctypes.CDLL:
    """A library once more, with variables of its own: the system tells them by their file."""
    file = os.memfd_create(Path(path).name)
    try:
        os.write(file, Path(path).read_bytes())
        # By the process's number: a path that the parent has loaded already would be the parent's copy.
        return ctypes.CDLL(f"/proc/{os.getpid()}/fd/{file}", mode=os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    finally:
        os.close(file)


def find_bundled(package: str) -> str | None:
    """The libgomp that a wheel brought along, in the directory `<package>*.libs` beside the
    package."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    site = Path(spec.origin).parent.parent
    return next((str(p) for p in sorted(site.glob(f"{package}*.libs/libgomp*"))), None)


def rest(threads: int, seconds: float) -> None:
    """Let the threads of kernels sleep, all for as long, so that they wake up together.

    Beside a busy process each thread has its core for some milliseconds by turns. One that wakes up another,
    as the first of a team does, has waited for it when its own turn ends, and so on; threads that wake up
    by themselves at the same time have their turns at the same time.
    """
    if threads > 1 and not THREADS.settled:
        THREADS.refresh()
    if threads == 1 or not PROCESS.gomp_parallel:
        time.sleep(seconds)
        return
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value
    parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    parallel(PROCESS.gomp_parallel)(sleep, round(1e6 * seconds), threads, 0)


@check_arguments
def set_num_threads(n: ThreadCount) -> None:
    """How many threads kernels use from now on, unless an executable says otherwise."""
    PROCESS.default_threads = n


def get_num_threads() -> int:
    """How many threads kernels use: the cores of this process, or what `set_num_threads` said."""
    return PROCESS.default_threads


THREADS = Threads()
os.register_at_fork(after_in_child=THREADS.forget)
PROCESS.default_threads = native().cores
