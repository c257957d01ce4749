"""Where the cache is, how large it may become, and whether it can be trusted.

What it holds is native code that will be run, so its directory must be this user's and closed to all others.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

ENTRIES = "entries"  # the directory of entries in that of the cache; beside it are the runtime's C libraries
SIZE = 4 << 30  # bytes, unless METASCHEDULE_CACHE_SIZE says otherwise
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def cache_directory() -> Path:
    """`$METASCHEDULE_CACHE`, else `$XDG_CACHE_HOME/metaschedule` or `~/.cache/metaschedule`."""
    if directory := os.environ.get("METASCHEDULE_CACHE"):
        return Path(directory)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "metaschedule")


def size_bound() -> int:
    """How many bytes entries may take; 0 switches the cache off."""
    given = os.environ.get("METASCHEDULE_CACHE_SIZE")
    return SIZE if given is None else parse_size(given)


def parse_size(text: str) -> int:
    """
    >>> parse_size("0"), parse_size("512M"), parse_size("1.5 g")
    (0, 536870912, 1610612736)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if found is None:
        raise ValueError(f"METASCHEDULE_CACHE_SIZE must be a number of bytes like 512M or 4G, got {text!r}")
    return int(float(found[1]) * UNITS[found[2]])


def is_private(directory: Path) -> bool:
    """Whether nobody else can have put a file there: anybody can make a directory among temporary files."""
    found = directory.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def make_private(directory: Path) -> None:
    """Create a directory that is open to this user alone, or close one of his. OSError if it is not his."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{directory} is not a directory of this user")
    if found.st_mode & 0o077:
        directory.chmod(0o700)
