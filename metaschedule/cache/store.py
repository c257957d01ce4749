"""`Store`: entries on disk by kind and key; those used least recently go when there are too many bytes.

Nothing that happens to the files is an error: what is missing, damaged, of another version or for another
machine is made again and counted, what cannot be written is not kept. A file appears whole, by renaming, so
that several processes may use one directory.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .directory import ENTRIES, cache_directory, make_private, size_bound
from .entry import Damaged, Entry, Foreign, read_entry, write_entry

log = logging.getLogger("metaschedule")
UNFINISHED = ".part"
ABANDONED = 3600.0  # seconds after which an unfinished file is nobody's
KEPT = 0.8  # of the bound, after others had to go
KINDS = ("kernels", "constants", "plans", "graphs")


@dataclass(frozen=True)
class File:
    """An entry as the directory shows it."""

    path: Path
    kind: str
    identity: str
    size: int
    used: float


class Store:
    """`counts` says what became of look-ups and writes in this process: "kernels found", "plans missing",
    "constants damaged", "kernels foreign", "plans written", "not written"."""

    def __init__(self, directory: Path, bound: int) -> None:
        self.directory, self.bound = directory, bound
        self.counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._size: int | None = None  # about; None until it is needed
        self._said = False

    def read(self, kind: str, key: str, identity: str) -> Entry | None:
        """The entry, if there is one that is whole and of this identity."""
        if not self.bound:
            return None
        path = self.path(kind, key, identity)
        try:
            entry = read_entry(path, identity)
        except FileNotFoundError:
            self._count(f"{kind} {'foreign' if self._has_others(path) else 'missing'}")
            return None
        except Foreign as why:
            log.info("cache: %s", why)
            self._count(f"{kind} foreign")
            return None
        except Damaged as why:
            log.warning("cache: %s; it is made again", why)
            self._count(f"{kind} damaged")
            remove(path)
            return None
        except (OSError, ValueError, LookupError, TypeError) as why:
            log.info("cache: %s cannot be read: %s", path, why)
            self._count(f"{kind} damaged")
            return None
        self._count(f"{kind} found")
        try:
            os.utime(path)  # now: it is the last to go
        except OSError:
            pass
        return entry

    def has(self, kind: str, key: str, identity: str) -> bool:
        return bool(self.bound) and self.path(kind, key, identity).exists()

    def write(
        self,
        kind: str,
        key: str,
        identity: str,
        data: Mapping[str, Any],
        parts: Sequence[memoryview | bytes] = (),
    ) -> bool:
        """Keep an entry, whole or not at all; whether it was kept."""
        if sum(map(len, parts)) > self.bound // 2:
            return False
        path = self.path(kind, key, identity)
        unfinished = path.with_name(f"{path.name}.{secrets.token_hex(4)}{UNFINISHED}")
        try:
            make_private(self.directory)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with open(handle, "wb") as file:
                    size = write_entry(file, identity, data, parts)
                os.replace(unfinished, path)
            except BaseException:
                remove(unfinished)
                raise
        except OSError as why:  # full, read-only, somebody else's
            self._count("not written")
            if not self._said:
                self._said = True
                log.warning("cache: what is compiled is not kept: %s", why)
            return False
        self._count(f"{kind} written")
        self._grow(size)
        return True

    def path(self, kind: str, key: str, identity: str) -> Path:
        return self.directory / kind / key[:2] / f"{key}.{identity}"

    def files(self) -> Iterator[File]:
        """All entries, finished or not."""
        for kind in KINDS:
            for path in (self.directory / kind).glob("*/*"):
                try:
                    found = path.stat()
                except OSError:  # gone meanwhile
                    continue
                done = path.suffix != UNFINISHED
                identity = path.name.partition(".")[2] if done else ""
                yield File(path, kind, identity, found.st_size, found.st_mtime)

    def clear(self) -> tuple[int, int]:
        """Remove all entries; how many there were, and their bytes."""
        found = list(self.files())
        removed = [one for one in found if remove(one.path)]
        self._size = None
        return len(removed), sum(one.size for one in removed)

    def _grow(self, size: int) -> None:
        with self._lock:
            self._size = sum(f.size for f in self.files()) if self._size is None else self._size + size
            if self._size > self.bound:
                self._size = self._evict()

    def _evict(self) -> int:
        """Remove what was used least recently, until there is room again; the bytes that are left."""
        now = time.time()
        found = sorted(self.files(), key=lambda one: one.used)
        left = sum(one.size for one in found)
        for one in found:
            unfinished = one.path.suffix == UNFINISHED
            goes = now - one.used > ABANDONED if unfinished else left > KEPT * self.bound
            if goes and remove(one.path):
                left -= one.size
                self._count("removed")
        return left

    def _has_others(self, path: Path) -> bool:
        """Whether there is the same of another version or for another machine."""
        key = path.name.partition(".")[0]
        try:
            return any(p.suffix != UNFINISHED for p in path.parent.glob(f"{key}.*"))
        except OSError:
            return False

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1


def remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


_STORES: dict[tuple[Path, int], Store] = {}


def store() -> Store:
    """The one that the environment says, now."""
    try:
        key = cache_directory() / ENTRIES, size_bound()
    except RuntimeError:  # no home
        key = Path(os.devnull), 0
    if key not in _STORES:
        _STORES[key] = Store(*key)
    return _STORES[key]


def release_locks() -> None:
    """In a forked process: the threads that hold them stay with the parent."""
    for one in _STORES.values():
        one._lock = threading.RLock()


os.register_at_fork(after_in_child=release_locks)
