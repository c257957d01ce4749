"""Commands as processes: how they end, and what they show meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import metaschedule as ms
from metaschedule.search.display import Display, summary
from metaschedule.target import resolve
from tests.cli.test_cli import run
from tests.search.examples import small, tiled
from tests.search.runners import Synthetic

ROOT = Path(ms.__file__).parent.parent
COMMAND = [sys.executable, "-m", "metaschedule"]


def started(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_version() -> None:
    assert run("--version") == (0, f"metaschedule {ms.__version__}\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_results_that_a_full_disk_does_not_take_are_a_failure() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "show", "GMM"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["tune", "GMM", "--trials", "0"], "--trials"),
        (["tune", "GMM", "--trials", "2.5"], "--trials"),
        (["tune", "GMM", "--minutes", "nan"], "--minutes"),
        (["tune", "GMM", "--minutes", "inf"], "--minutes"),
        (["tune", "GMM", "--minutes", "-1"], "--minutes"),
        (["tune", "GMM", "--seed", str(2**64)], "--seed"),
        (["tune", "GMM", "--strategy", "best"], "--strategy"),
        (["tune", "GMM", "--target", "abacus"], "--target"),
        (["tune", "GMM", "--config", "-1"], "--config"),
        (["space", "GMM", "--draws", "-1"], "--draws"),
        (["show", "GMM", "--target", "abacus"], "--target"),
        (["bench", "operators", "GMM", "--trials", "-1"], "--trials"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(arguments: list[str], option: str) -> None:
    code, text = run(*arguments)
    assert code == 2
    assert option in text


def test_output_that_nobody_reads_to_its_end() -> None:
    process = started("show", "GMM", "program")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_ctrl_c_prints_what_was_found_and_exits_130(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text("import metaschedule as ms\nsmall = ms.workloads.create('GMM', b=1, n=12, m=16, k=5)\n")
    process = started("tune", f"{file}:small", "--trials", 4000, "--json")
    assert process.stderr is not None
    for line in process.stderr:
        if "4000 trials (" in line and " ok" in line:
            break
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    (found,) = json.loads(output)  # and nothing else: progress is elsewhere
    assert found["stopped"] == "interrupted"
    assert found["latency"] > 0
    assert found["outcomes"]["ok"] > 0


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_in_every_phase_at_every_width(width: int, terminal: bool) -> None:
    console = Console(width=width, force_terminal=terminal, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    program = small()
    with console.file, Display(console, {program.name: 1000}, resolve()) as display:
        result = ms.tune(program, trials=4, space=tiled, measurer=Synthetic, progress=display.update)
        console.print(display)
        console.print(summary([result], display, console.width))
    text = console.export_text()
    assert "4/4 trials (4 ok)" in text or "4 of 4 trials" in text
    assert "left" in text
    if not terminal:
        assert "confirming the leaders" in text
    if width == 40:
        assert "┃" not in text
        assert "untuned; 4 ok" in " ".join(text.split())


def test_quiet_and_plain_lines(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text("import metaschedule as ms\nsmall = ms.workloads.create('GMM', b=1, n=12, m=16, k=5)\n")
    code, loud = run("tune", f"{file}:small", "--trials", 2)
    assert code == 0
    assert "2/2 trials" in loud
    assert "confirming the leaders" in loud
    assert "\x1b" not in loud
    code, quiet = run("tune", f"{file}:small", "--trials", 2, "--quiet")
    assert code == 0
    assert "2/2 trials" not in quiet
    assert "peak" in quiet
