"""C files are compiled once, by whoever comes first, and never half."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from metaschedule.runtime import native, toolchain
from metaschedule.runtime.toolchain import ToolchainError, load_library

ANSWER = '#include "number.h"\n__attribute__((visibility("default"))) int answer(void) { return NUMBER; }\n'

SCRIPT = (
    "import sys; from pathlib import Path; from metaschedule.runtime.toolchain import load_library;"
    "print(load_library('answer', [Path(sys.argv[1])], {'number.h': '#define NUMBER 7\\n'}).answer())"
)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A C file, with a cache and temporary files of its own."""
    for name in ("kept", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("METASCHEDULE_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(toolchain.tempfile, "tempdir", str(tmp_path / "temporary"))
    path = tmp_path / "answer.c"
    path.write_text(ANSWER)
    return path


def answer(source: Path, number: int = 42) -> int:
    return load_library("answer", [source], {"number.h": f"#define NUMBER {number}\n"}).answer()


def libraries(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchain, "COMPILERS", ("no-such-compiler",))


def test_a_library_is_compiled_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(source) == 42
    assert len(libraries(source.parent / "kept")) == 1
    without_compiler(monkeypatch)
    assert answer(source) == 42


def test_every_change_is_another_library(source: Path) -> None:
    assert [answer(source), answer(source, 43)] == [42, 43]
    source.write_text('#include "offset.h"\n' + ANSWER.replace("NUMBER;", "NUMBER + OFFSET;"))
    for offset in (1, 2):
        (source.parent / "offset.h").write_text(f"#define OFFSET {offset}\n")
        assert answer(source) == 42 + offset
    assert len(libraries(source.parent / "kept")) == 4


def test_without_a_compiler_it_says_what_to_install(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    with pytest.raises(ToolchainError, match="install gcc or clang"):
        answer(source)
    monkeypatch.setenv("CC", "not-there -O1")
    with pytest.raises(ToolchainError, match="CC is 'not-there -O1', which is not there"):
        answer(source)


def test_what_the_compiler_says_is_shown(source: Path) -> None:
    source.write_text("int answer(void) { return oops; }")
    with pytest.raises(ToolchainError, match=r"answer\.c[\s\S]*oops"):
        answer(source)
    assert libraries(source.parent / "kept") == []


def test_a_cache_that_cannot_be_written(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then libraries are kept among temporary files, in a directory that nobody else can write."""
    kept = source.parent / "kept"
    kept.rmdir()
    kept.write_text("a file")
    assert answer(source) == 42
    own = source.parent / "temporary" / f"metaschedule-{os.getuid()}"
    assert len(libraries(own)) == 1
    without_compiler(monkeypatch)
    assert answer(source) == 42


def test_a_user_without_a_home(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("METASCHEDULE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(toolchain.Path, "home", no_home)
    assert answer(source) == 42
    assert len(libraries(source.parent / "temporary" / f"metaschedule-{os.getuid()}")) == 1


def test_a_directory_that_others_can_write_is_not_trusted(source: Path) -> None:
    kept = source.parent / "kept"
    kept.rmdir()
    kept.write_text("a file")
    own = source.parent / "temporary" / f"metaschedule-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    assert answer(source) == 42
    assert libraries(own) == []


def test_a_damaged_library_is_compiled_again(source: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(source)]
    for _ in range(2):
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "7\n"
        (library,) = libraries(source.parent / "kept")
        library.write_bytes(library.read_bytes()[:100])


def test_processes_that_compile_at_once(source: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(source)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate()[0] for process in started] == ["7\n"] * 4
    assert len(libraries(source.parent / "kept")) == 1


def test_sources_are_part_of_the_package() -> None:
    root = Path(native.__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["metaschedule.runtime"]
    for path in native.SOURCES[0].parent.iterdir():
        assert any(fnmatch.fnmatch(f"c/{path.name}", pattern) for pattern in patterns), path
