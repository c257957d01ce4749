"""Directories on which something fails: full ones, read-only ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, options: str) -> Iterator[Path]:
    """A small file system in memory; the test is skipped where this user may not mount one."""
    directory.mkdir(exist_ok=True)
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root mounts file systems")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@contextmanager
def read_only(directory: Path) -> Iterator[Path]:
    """A directory in which nothing can be written: for root, whom permissions do not stop, a mounted one."""
    directory.mkdir(exist_ok=True)
    if os.getuid() == 0:
        with mounted(directory, "ro,size=1m") as made:
            yield made
        return
    directory.chmod(0o500)
    try:
        yield directory
    finally:
        directory.chmod(0o700)
