"""Every refusal is tested: each `raise` of a `ScheduleError` in the package is reached by a test named
`..._refuses_...` through `refusals.refusal`, and the goldens are the texts that these tests see, no more."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import metaschedule.schedule
from tests.schedule.refusals import GOLDENS, REPORT, read_goldens, write_goldens

HERE = Path(__file__).parent
PACKAGE = Path(metaschedule.schedule.__file__).parent

# Second lines of defence: no program is known that passes the checks before them.
BEHIND_OTHERS = (
    "the extent of {digit.name} is not a constant",
    "two iterators of block {self.producer.name!r} depend on one loop",
    "the loops are not around the block",
)


def refusals_in(path: Path) -> dict[tuple[str, int], str]:
    """File and line of each `raise` that does not name another error, and what it raises."""
    raises = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Raise) and n.exc]
    texts = {(str(path), n.lineno): ast.unparse(n.exc) for n in raises if n.exc}
    return {
        place: text
        for place, text in texts.items()
        if text.startswith("ScheduleError(") or not text.partition("(")[0].endswith("Error")
    }


def test_every_refusal_is_tested(tmp_path: Path) -> None:
    report = tmp_path / "refusals"
    command = [sys.executable, "-m", "pytest", "-k", "refuses", "-p", "no:cacheprovider", str(HERE)]
    run = subprocess.run(command, env={**os.environ, REPORT: str(report)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:]

    reached: set[tuple[str, int]] = set()
    texts: dict[str, set[str]] = defaultdict(set)
    for op, text, places in map(json.loads, report.read_text().splitlines()):
        texts[op].add(text)
        reached |= {(file, line) for file, line in places}

    known = {place: text for path in PACKAGE.rglob("*.py") for place, text in refusals_in(path).items()}
    missing = [f"{file}:{line} {known[file, line]:.80}" for file, line in sorted(known.keys() - reached)]
    missing = [line for line in missing if not any(text in line for text in BEHIND_OTHERS)]
    assert not missing, "no test is refused at\n" + "\n".join(missing)

    if os.environ.get("UPDATE_GOLDENS"):
        for path in GOLDENS.glob("*.txt"):
            path.unlink()
        for op, seen in texts.items():
            write_goldens(op, seen)
    assert {path.stem: set(read_goldens(path.stem)) for path in GOLDENS.glob("*.txt")} == texts
