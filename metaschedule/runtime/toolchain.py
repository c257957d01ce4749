"""The C parts of the runtime (`c/`): compiled at first use, kept for the processes that follow.

A library is found by a digest of its sources and by the Python it is for, so an old one is never taken for a
new one, and to load it takes a fraction of a millisecond. It is written beside its place and renamed: of
several processes that compile at once each finds a whole file, and all files are the same.

Where it is kept: `$METASCHEDULE_CACHE`, else `$XDG_CACHE_HOME/metaschedule` or `~/.cache/metaschedule`; where
that cannot be written, or libraries there may not be loaded, a directory of this user among temporary files.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from metaschedule.cache import cache_directory, is_private

COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden")


ADVICE = (
    "install gcc or clang with the headers of the C library (Debian, Ubuntu: apt install gcc libc6-dev; "
    "Fedora: dnf install gcc glibc-devel; Alpine: apk add gcc musl-dev), or set CC"
)


class ToolchainError(RuntimeError):
    """No C compiler, or one that refused."""


def load_library(name: str, sources: Sequence[Path], headers: Mapping[str, str]) -> ctypes.CDLL:
    """The library of C files, compiled if nobody has before.

    They may include what is beside them, and `headers`: texts by name.
    """
    beside = sorted({path for source in sources for path in source.parent.glob("*.h")})
    digest = hashlib.sha256("\0".join(FLAGS).encode())
    for path in (*sources, *beside):
        digest.update(path.read_bytes() + b"\0")
    for text in headers.values():
        digest.update(text.encode() + b"\0")
    file = f"{name}-{digest.hexdigest()[:32]}{EXTENSION_SUFFIXES[0]}"
    reasons: list[str] = []
    for directory in cache_directories():
        path = directory / file
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # not there yet, or damaged
            pass
        try:
            compile_library(path, sources, headers)
            return ctypes.CDLL(str(path))
        except OSError as error:  # read-only, full, mounted without execution
            reasons.append(str(error))
    raise ToolchainError(f"the library {file} could not be kept anywhere: {'; '.join(reasons)}")


def cache_directories() -> Iterator[Path]:
    """Where to keep libraries, best first; each exists when it is given."""
    try:
        chosen = cache_directory()
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
    except (OSError, RuntimeError):  # the latter where there is no home
        pass
    own = Path(tempfile.gettempdir()) / f"metaschedule-{os.getuid()}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
        if is_private(own):
            yield own
    except OSError:
        pass
    yield Path(tempfile.mkdtemp(prefix="metaschedule-"))


def compile_library(path: Path, sources: Sequence[Path], headers: Mapping[str, str]) -> None:
    """Compile C files into a shared library that appears at `path` at once and whole."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="metaschedule-") as work:
        for name, text in headers.items():
            Path(work, name).write_text(text)
        output = Path(work, path.name)
        command = [*compiler, *FLAGS, f"-I{work}", "-o", str(output), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ToolchainError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}\n{ADVICE}")
        handle, beside = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(output.read_bytes())
                file.flush()
                os.fsync(handle)
            Path(beside).replace(path)
        except OSError:
            Path(beside).unlink(missing_ok=True)
            raise


def find_compiler() -> list[str]:
    """The command of the C compiler: `$CC`, or the first of the usual names."""
    chosen = os.environ.get("CC")
    for command in [shlex.split(chosen)] if chosen else [[name] for name in COMPILERS]:
        if command and shutil.which(command[0]):
            return command
    what = f"CC is {chosen!r}, which is not there" if chosen else f"there is none ({', '.join(COMPILERS)})"
    raise ToolchainError(f"metaschedule compiles its native part with a C compiler, and {what}; {ADVICE}")
