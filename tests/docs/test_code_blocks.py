"""Every Python block of README.md and docs/ runs, every command has the options it is shown with."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from metaschedule.cli.app import app
from tests.codegen.gpu.schedules import opencl
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
NEEDS = {  # packages that the blocks of a page import
    "README.md": ["torch"],
    "docs/start.md": ["torch"],
    "docs/models.md": ["torch"],
    "docs/deployment.md": ["torch"],
    "docs/onnx.md": ["torch", "onnx"],
    "docs/gpu.md": ["pyopencl", "nvidia.cuda_nvrtc"],
}
NOT_RUN = {"docs/cluster.md": 3}  # blocks with a marker that says why
COMMANDS = ["README.md", "CONTRIBUTING.md", *PAGES[1:]]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    if not any(b.language == "python" and b.reason is None for b in blocks_of(ROOT / page)):
        pytest.skip("no Python on this page")
    for package in NEEDS.get(page, ()):
        pytest.importorskip(package)
    if page == "docs/gpu.md":
        opencl()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.docs.blocks", str(ROOT / page)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_blocks_that_are_not_run_are_counted() -> None:
    marked = {page: sum(b.reason is not None for b in blocks_of(ROOT / page)) for page in PAGES}
    assert {page: count for page, count in marked.items() if count} == NOT_RUN


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_exist_with_their_options(page: str) -> None:
    for block in blocks_of(ROOT / page):
        if block.language == "sh":
            for line in block.code.splitlines():
                check_command(line)


def check_command(line: str) -> None:
    """Of `... && .venv/bin/metaschedule tune GMM --trials 4  # why`: that click can parse it."""
    words = shlex.split(line, comments=True)
    for n, word in enumerate(words):
        if word.rpartition("/")[2] == "metaschedule" and (n == 0 or words[n - 1] == "&&"):
            parse(get_command(app), "metaschedule", words[n + 1 :])


def parse(command: Any, name: str, arguments: list[str]) -> None:
    """Raises click's error for what the command, or one of its own, does not take."""
    context = command.make_context(name, list(arguments), resilient_parsing=True)
    if hasattr(command, "commands"):
        rest = [word for word in arguments if not word.startswith("-")]
        assert rest, f"{name} needs the name of a command"
        inner = command.get_command(context, rest[0])
        assert inner is not None, f"no command {name} {rest[0]}"
        parse(inner, rest[0], arguments[arguments.index(rest[0]) + 1 :])
