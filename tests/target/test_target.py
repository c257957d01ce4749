from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from metaschedule.target import KNOWN, Target, detect, missing_features, native, resolve
from metaschedule.target.detect import caches, cores, cpu_quota, vectors


@pytest.fixture
def no_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("METASCHEDULE_TARGET", raising=False)


@pytest.mark.usefixtures("no_assumption")
def test_native_describes_this_machine() -> None:
    target = resolve("native")
    assert target is native()
    assert target.cores <= len(os.sched_getaffinity(0))
    assert target.vector_bytes in (8, 16, 32, 64)
    assert target.l1 <= target.l2 <= target.l3
    assert target.line >= 16
    assert missing_features(target) == []


def test_tiles_that_the_system_does_not_give_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Features:
        def flatten(self) -> str:
            return "+amx-int8,+amx-tile,+avx2,-sse4a"

    monkeypatch.setattr(detect.llvm, "get_host_cpu_features", Features)
    for given, sign in ((True, "+"), (False, "-")):
        monkeypatch.setattr(detect, "ask_for_tiles", lambda given=given: given)
        features = detect.host_features.__wrapped__()
        assert features == (f"{sign}amx-int8", f"{sign}amx-tile", "+avx2", "-sse4a")


def test_the_environment_says_what_native_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASCHEDULE_TARGET", "x86-64-v4,cores=3")
    assert resolve("native") == resolve("x86-64-v4,cores=3")
    assert resolve("native,cores=2") == resolve("x86-64-v4,cores=2")
    assert resolve("aarch64").name == "aarch64"
    monkeypatch.setenv("METASCHEDULE_TARGET", "native,cores=1")
    assert resolve("native") == native().with_cores(1)
    monkeypatch.setenv("METASCHEDULE_TARGET", "")
    assert resolve("native") is native()
    monkeypatch.setenv("METASCHEDULE_TARGET", "pdp-11")
    with pytest.raises(ValueError, match="variable METASCHEDULE_TARGET: unknown target 'pdp-11'"):
        resolve("native")


@pytest.mark.usefixtures("no_assumption")
@pytest.mark.parametrize("name", KNOWN)
def test_targets_are_data(name: str) -> None:
    target = resolve(name)
    assert Target.from_json(json.dumps(target.to_json())) == target
    assert pickle.loads(pickle.dumps(target)) == target
    assert hash(resolve(name)) == hash(target)
    assert str(target).startswith(name)
    assert len(str(target)) < 120


@pytest.mark.parametrize(
    ("name", "width", "registers"),
    [
        ("x86-64", 16, 16),
        ("x86-64-v2", 16, 16),
        ("x86-64-v3", 32, 16),
        ("x86-64-v4", 64, 32),
        ("aarch64", 16, 32),
        ("riscv64", 16, 32),
        ("riscv64,vector_bytes=32", 32, 32),
        ("riscv64,vlen=512", 64, 32),
        ("aarch64,sve=128", 16, 32),
        ("aarch64,sve=256", 32, 32),
        ("x86-64-v4,vector_bytes=32", 32, 32),
    ],
)
def test_vectors_of_known_targets(name: str, width: int, registers: int) -> None:
    target = resolve(name)
    assert (target.vector_bytes, target.vector_registers) == (width, registers)
    assert target.lanes("float32") == width // 4
    assert target.lanes("bfloat16") == width // 2


def test_wide_vectors_are_never_assumed() -> None:
    assert vectors("x86_64", ("+avx512f", "+avx2")) == (32, 16)  # Knights Landing: no bw, dq, vl
    assert vectors("x86_64", ("-avx512f", "+avx2")) == (32, 16)
    assert vectors("x86_64", ()) == (16, 16)
    assert vectors("riscv64", ()) == (8, 32)


def test_options() -> None:
    target = resolve("native, cores=1, l2=1048576")
    assert (target.cores, target.l2) == (1, 1 << 20)
    assert target.key != resolve("native,cores=2").key
    assert resolve(target) is target
    assert resolve("x86-64-v3").with_cores(3).key.endswith(":c3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu", "unknown target 'gpu'; known are native, x86-64"),
        ("native,threads=2", "unknown target option 'threads=2'; known are cores=N"),
        ("native,cores", "unknown target option 'cores'"),
        ("native,cores=0", "'cores' must be a positive integer, got '0'"),
        ("native,cores=two", "'cores' must be a positive integer, got 'two'"),
        ("x86-64-v3,vector_bytes=64", "has vectors of 32 bytes, not 64"),
        ("riscv64,vector_bytes=24", "must be a power of two, got 24"),
        ("riscv64,vlen=64", "'vlen' must be a power of two from 128 to 2048, got 64"),
        ("aarch64,sve=384", "'sve' must be a power of two from 128 to 2048, got 384"),
        ("aarch64,vlen=256", "'vlen' is for riscv64, not aarch64"),
        ("aarch64,vector_bytes=32", "has vectors of 16 bytes, not 32: sve=N gives the bits of SVE"),
    ],
)
def test_mistakes_are_explained(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(text)


def test_a_target_must_be_text_or_target() -> None:
    with pytest.raises(TypeError, match="got 3"):
        resolve(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="not a target"):
        Target.from_json({"name": "x", "colour": "red"})
    with pytest.raises(ValueError, match="not a complete target"):
        Target.from_json({"name": "x"})


def test_code_for_another_machine_does_not_run_here() -> None:
    other = "aarch64" if native().arch == "x86_64" else "x86-64-v3"
    assert "architecture" in missing_features(resolve(other))[0]


def write_cache(root: Path, index: int, level: int, kind: str, size: str) -> None:
    first = min(os.sched_getaffinity(0))
    folder = root / f"cpu{first}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (
        ("level", str(level)),
        ("type", kind),
        ("size", size),
        ("coherency_line_size", "128"),
    ):
        (folder / name).write_text(text + "\n")


def test_caches_from_sys(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, 1, "Data", "48K")
    write_cache(tmp_path, 1, 1, "Instruction", "32K")
    write_cache(tmp_path, 2, 2, "Unified", "2M")
    assert caches(tmp_path) == {"l1": 48 << 10, "l2": 2 << 20, "l3": 2 << 20, "line": 128}


def test_caches_without_sys_still_have_sizes(tmp_path: Path) -> None:
    found = caches(tmp_path)
    assert set(found) == {"l1", "l2", "l3", "line"}
    assert all(value > 0 for value in found.values())


def test_cpu_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_quota(tmp_path) is None
    assert cores() >= 1


def test_cpu_quota_of_the_first_version(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert cpu_quota(tmp_path) is None
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("200000")
    assert cpu_quota(tmp_path) == 2.0
