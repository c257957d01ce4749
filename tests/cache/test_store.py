"""Entries on disk: found again, replaced, removed; and everything that can happen to files."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from metaschedule.cache import Store, digest_of, identify
from metaschedule.cache.directory import make_private, parse_size
from metaschedule.cache.entry import HEAD
from metaschedule.target import resolve
from tests.cache.disks import mounted, read_only

KEY, WHO = digest_of("an entry"), "0123456789abcdef"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "entries", 1 << 20)


def write(store: Store, key: str = KEY, size: int = 1000) -> Path:
    assert store.write("kernels", key, WHO, {"name": "gmm"}, [b"a" * size, b"", b"b"])
    return store.path("kernels", key, WHO)


def test_what_is_written_is_read(store: Store) -> None:
    assert store.read("kernels", KEY, WHO) is None
    write(store)
    entry = store.read("kernels", KEY, WHO)
    assert entry is not None
    assert entry.data == {"name": "gmm"}
    assert [bytes(part) for part in entry.parts] == [b"a" * 1000, b"", b"b"]
    assert store.counts == Counter({"kernels missing": 1, "kernels written": 1, "kernels found": 1})


def test_only_this_user_can_write(store: Store) -> None:
    os.umask(os.umask(0))  # whatever it is
    path = write(store)
    assert store.directory.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_open_directory_is_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    make_private(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives directories away")
def test_another_users_directory_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "entries").mkdir()
    os.chown(tmp_path / "entries", 12345, 12345)
    store = Store(tmp_path / "entries", 1 << 20)
    assert not store.write("kernels", KEY, WHO, {}, [])
    assert not list(store.files())


@pytest.mark.parametrize("damage", ["truncated", "empty", "one bit", "other content"])
def test_a_damaged_file_is_removed_and_counted(
    store: Store, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(store)
    whole = bytearray(path.read_bytes())
    whole[-80] ^= 1
    content = {"truncated": whole[:200], "empty": b"", "one bit": whole, "other content": b"x" * 500}
    path.write_bytes(content[damage])
    assert store.read("kernels", KEY, WHO) is None
    assert store.counts["kernels damaged"] == 1
    assert str(path) in caplog.text
    assert not path.exists()


def test_links_and_files_that_others_may_write_are_refused(store: Store, tmp_path: Path) -> None:
    path = write(store)
    path.chmod(0o666)
    assert store.read("kernels", KEY, WHO) is None
    path = write(store)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert store.read("kernels", KEY, WHO) is None
    assert store.counts["kernels damaged"] == 2


def test_entries_of_other_versions_and_machines_are_left_alone_and_counted(store: Store) -> None:
    path = write(store)
    assert store.read("kernels", KEY, "f" * 16) is None
    path.rename(store.path("kernels", KEY, "f" * 16))  # whatever its name says
    assert store.read("kernels", KEY, "f" * 16) is None
    other = store.path("kernels", KEY, WHO)
    head = bytearray(store.path("kernels", KEY, "f" * 16).read_bytes())
    head[8] += 1  # of a later format
    other.write_bytes(head)
    other.chmod(0o600)
    assert store.read("kernels", KEY, WHO) is None
    assert store.counts == Counter({"kernels written": 1, "kernels foreign": 3})
    assert len(list(store.files())) == 2


def test_targets_and_versions_have_identities(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (identify(resolve(name).to_json()) for name in ("x86-64-v2", "x86-64-v3"))
    assert one != two
    monkeypatch.setattr("metaschedule.cache.identity.versions", lambda: ("other code", "", ""))
    assert identify(resolve("x86-64-v2").to_json()) != one


def test_what_was_used_least_recently_goes(tmp_path: Path) -> None:
    store = Store(tmp_path, 10_000)
    keys = [digest_of(n) for n in range(12)]
    for n, key in enumerate(keys[:7]):
        os.utime(write(store, key), (n, n))
    assert store.read("kernels", keys[0], WHO) is not None  # used now
    abandoned = store.path("kernels", keys[0], WHO).with_suffix(".12.part")
    abandoned.write_bytes(b"")
    os.utime(abandoned, (0, 0))
    for key in keys[7:]:
        write(store, key)
    left = {f.path.name.partition(".")[0] for f in store.files()}
    assert sum(f.size for f in store.files()) <= 10_000
    assert {keys[0], keys[11]} <= left
    assert not {keys[1], keys[2]} & left
    assert not abandoned.exists()


def test_what_is_larger_than_half_of_the_bound_is_not_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "entries", 1000)
    assert not store.write("kernels", KEY, WHO, {}, [b"a" * 501])
    off = Store(tmp_path / "entries", 0)
    assert not off.write("kernels", KEY, WHO, {}, [b"a"])
    assert off.read("kernels", KEY, WHO) is None
    assert not (tmp_path / "entries").exists()


def test_a_full_disk_is_done_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        store = Store(disk / "entries", 1 << 20)
        for n in range(8):
            store.write("kernels", digest_of(n), WHO, {}, [bytes(20_000)])
        kept = sum(store.read("kernels", digest_of(n), WHO) is not None for n in range(8))
        assert 0 < kept == store.counts["kernels written"] < 8
        assert store.counts["not written"] == 8 - kept
        assert caplog.text.count("not kept") == 1
        assert all(f.path.suffix != ".part" for f in store.files())


def test_a_quota_is_done_without(store: Store) -> None:
    """Of a file's size: what a full disk is like for who may not mount one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        assert not store.write("kernels", KEY, WHO, {}, [bytes(20_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(store.files())
    write(store)


def test_a_read_only_directory_is_done_without(tmp_path: Path) -> None:
    with read_only(tmp_path / "disk") as disk:
        store = Store(disk / "entries", 1 << 20)
        assert not store.write("kernels", KEY, WHO, {}, [b"a"])
        assert store.read("kernels", KEY, WHO) is None
        assert store.counts["not written"] == 1
        assert store.clear() == (0, 0)


WRITER = """
import sys
from pathlib import Path
from metaschedule.cache import Store, digest_of
store = Store(Path(sys.argv[1]), 60_000)
for turn in range(40):
    for n in range(8):
        part = bytes([n]) * 5_000
        entry = store.read("kernels", digest_of(n), "who")
        assert entry is None or bytes(entry.parts[0]) == part, n
        assert store.write("kernels", digest_of(n), "who", {"n": n}, [part, str(turn).encode()])
assert not [what for what in store.counts if "damaged" in what], store.counts
"""


def test_processes_that_write_at_once_see_whole_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "entries")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for one in running:
        _, error = one.communicate(timeout=120)
        assert one.returncode == 0, error
    assert all(f.path.suffix != ".part" for f in Store(tmp_path / "entries", 1).files())


def test_clearing_removes_everything(store: Store) -> None:
    sizes = [write(store, digest_of(n)).stat().st_size for n in range(3)]
    assert store.clear() == (3, sum(sizes))
    assert not list(store.files())


@pytest.mark.parametrize("text", ["", "much", "-1", "4 elephants"])
def test_a_wrong_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="METASCHEDULE_CACHE_SIZE must be"):
        parse_size(text)


def test_parts_begin_at_multiples_of_64(store: Store) -> None:
    path = write(store)
    assert HEAD.size == 64
    content = path.read_bytes()
    assert content.index(b"aaaa") % 64 == 0
    assert len(content) % 64 == 0
