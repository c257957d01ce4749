"""Compiled code in a file: object bytes, the kernel's description, bound constants.

Layout: magic, version, length of the header, digest of all that follows; then the header (JSON) and
the blobs it lists, one after the other. Reading one executes nothing: no pickle, no import by name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from metaschedule.ir import numpy_dtype

from .kernel import Kernel

MAGIC = b"\x93msched\n"
VERSION = 2
HEAD = struct.Struct("<8sIQ16s")


class StorageError(ValueError):
    """A file that holds no executable of this version, or only part of one."""


@dataclass(frozen=True)
class Stored:
    """What a file holds."""

    kernel: Kernel
    code: bytes
    constants: dict[str, np.ndarray]
    script: str
    threads: int | None


def write(path: str | os.PathLike[str], stored: Stored) -> None:
    """Write a file whole or not at all."""
    blobs = {"code": stored.code} | {f"constant {n}": a.tobytes() for n, a in stored.constants.items()}
    header = json.dumps(
        {
            "kernel": stored.kernel.to_json(),
            "script": stored.script,
            "threads": stored.threads,
            "constants": list(stored.constants),
            "blobs": {name: len(blob) for name, blob in blobs.items()},
        }
    ).encode()
    body = b"".join((header, *blobs.values()))
    head = HEAD.pack(MAGIC, VERSION, len(header), digest(body))
    with write_atomically(path) as file:
        file.write(head + body)


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that replaces the one at `path` once all is written, and not if that fails."""
    destination = Path(path)
    if not destination.name:  # "" and "."
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = destination.with_name(f"{destination.name[:100]}.{secrets.token_hex(8)}")
    with open(temporary, "xb") as file:  # not by `tempfile`, whose files nobody else may read
        try:
            yield file
            file.close()
            os.replace(temporary, destination)
        except BaseException:
            os.unlink(temporary)
            raise


def read(path: str | os.PathLike[str]) -> Stored:
    """The content of a file, or a StorageError that says what is wrong with it."""
    data = Path(path).read_bytes()
    if len(data) < HEAD.size or data[:8] != MAGIC:
        raise StorageError(f"{path}: not a saved executable")
    _, version, header_size, expected = HEAD.unpack_from(data)
    if version != VERSION:
        raise StorageError(
            f"{path}: saved with format {version}, this version reads {VERSION}; save it again"
        )
    body = data[HEAD.size :]
    if digest(body) != expected:
        raise StorageError(f"{path}: truncated or damaged: its checksum does not match")
    try:
        header = json.loads(body[:header_size])
        blobs = split(body, header_size, header["blobs"])
        kernel = Kernel.from_json(header["kernel"])
        specs = {spec.name: spec for spec in kernel.inputs}
        constants = {
            name: np.frombuffer(blobs[f"constant {name}"], numpy_dtype(specs[name].dtype)).reshape(
                specs[name].shape
            )
            for name in header["constants"]
        }
        return Stored(kernel, blobs["code"], constants, header["script"], header["threads"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StorageError(f"{path}: not a saved executable: {error}") from error


def split(body: bytes, at: int, sizes: Mapping[str, int]) -> dict[str, bytes]:
    blobs: dict[str, bytes] = {}
    for name, size in sizes.items():
        blobs[name] = body[at : at + size]
        at += size
    return blobs


def digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()
