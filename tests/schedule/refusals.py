"""What a schedule says when it refuses a step: the whole text of every refusal is a golden.

`refusal(step, ...)` gives the reason and looks for the whole text (call, reason, program with the place
underlined, help) in `goldens/<primitive>.txt`. To write the goldens anew after a change of words:

    UPDATE_GOLDENS=1 pytest tests/schedule/test_every_refusal.py
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from metaschedule import ScheduleError

GOLDENS = Path(__file__).parent / "goldens"
BETWEEN = f"\n{'=' * 80}\n"
REPORT = "REFUSALS_REPORT"  # environment variable: the file to tell about refusals instead of looking them up


def refusal(step: Callable[..., Any], *operands: Any, **named: Any) -> str:
    """Why a step is refused."""
    with pytest.raises(ScheduleError) as caught:
        step(*operands, **named)
    error = caught.value
    op, text = error.call.partition("(")[0] or "no_call", str(error)
    if report := os.environ.get(REPORT):
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        with open(report, "a") as file:
            file.write(json.dumps([op, text, places]) + "\n")
    else:
        assert text in read_goldens(op), f"not in goldens/{op}.txt, see {__name__}:\n{text}"
    return error.message


def read_goldens(op: str) -> list[str]:
    path = GOLDENS / f"{op}.txt"
    return path.read_text().removesuffix("\n").split(BETWEEN) if path.exists() else []


def write_goldens(op: str, texts: Iterable[str]) -> None:
    GOLDENS.mkdir(exist_ok=True)
    (GOLDENS / f"{op}.txt").write_text(BETWEEN.join(sorted(texts)) + "\n")
