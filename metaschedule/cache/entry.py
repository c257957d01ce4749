"""A file of the cache: a head with a digest of all that follows, a JSON header, and parts of raw bytes.

Reading executes nothing: no pickle, no import by name. Parts begin at multiples of 64 bytes, so that tensors
can be where they were read.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

MAGIC = b"\x93mscach\n"
FORMAT = 1
HEAD = struct.Struct("<8sII32s16x")  # magic, format, length of the header, digest; 64 bytes
ALIGNMENT = 64
HUGE = 2 << 20  # bytes from which large pages are worth asking for


class Damaged(ValueError):
    """A file that is not what its head says, or not this user's."""


class Foreign(ValueError):
    """A whole file, of another format or made by another version or for another machine."""


@dataclass(frozen=True)
class Entry:
    """`data` is plain values; `parts` are bytes, in memory of their own."""

    data: Mapping[str, Any]
    parts: Sequence[memoryview]


def write_entry(
    file: IO[bytes], identity: str, data: Mapping[str, Any], parts: Sequence[memoryview | bytes]
) -> int:
    """Gives the number of bytes written."""
    header = json.dumps({"identity": identity, "data": data, "sizes": [len(part) for part in parts]}).encode()
    header += b" " * (-len(header) % ALIGNMENT)
    whole = hashlib.sha256(header)
    padded = [(part, b"\0" * (-len(part) % ALIGNMENT)) for part in parts]
    for part, padding in padded:
        whole.update(part)
        whole.update(padding)
    file.write(HEAD.pack(MAGIC, FORMAT, len(header), whole.digest()))
    file.write(header)
    for part, padding in padded:
        file.write(part)
        file.write(padding)
    return file.tell()


def read_entry(path: Path, identity: str) -> Entry:
    """FileNotFoundError, Damaged or Foreign if there is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb", buffering=0) as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise Damaged(f"{path} is not a file that this user alone can write")
        content = read_bytes(file, found.st_size)
    if len(content) < HEAD.size:
        raise Damaged(f"{path} is truncated")
    magic, form, size, expected = HEAD.unpack_from(content)
    if magic != MAGIC:
        raise Damaged(f"{path} is no entry of a cache")
    if form != FORMAT:
        raise Foreign(f"{path} has format {form}")
    if hashlib.sha256(content[HEAD.size :]).digest() != expected:
        raise Damaged(f"{path} is truncated or damaged: its content is not what its digest says")
    header = json.loads(bytes(content[HEAD.size : HEAD.size + size]))
    if header["identity"] != identity:
        raise Foreign(f"{path} was made by another version or for another machine")
    parts: list[memoryview] = []
    at = HEAD.size + size
    for size in header["sizes"]:
        parts.append(content[at : at + size])
        at += size + -size % ALIGNMENT
    return Entry(header["data"], parts)


def read_bytes(file: IO[bytes], size: int) -> memoryview:
    """The content in memory of its own that begins at a page."""
    if not size:
        return memoryview(b"")
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    content = memoryview(memory)
    at = 0
    while at < size:
        count = file.readinto(content[at:])  # pyright: ignore[reportAttributeAccessIssue]
        if not count:
            break
        at += count
    return content[:at]
