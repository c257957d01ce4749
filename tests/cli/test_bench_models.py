"""`metaschedule bench models`: each model in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

BROKEN = """
import os
from torch import nn

class Broken(nn.Module):
    def forward(self, x):
        os._exit(7)

def make():
    import torch
    return Broken(), (torch.ones(2),)
"""


def test_a_contestant_that_takes_its_process_down_costs_one_row(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    command = [sys.executable, "-m", "metaschedule", "bench", "models", "nbeats", "--small"]
    command += ["--against", "eager", "--seconds", "0.01", "--models", f"{tmp_path}/broken.py:make"]
    run = subprocess.run(
        [*command, "--json", str(tmp_path / "report.json")], capture_output=True, text=True, timeout=500
    )
    good, broken = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert {"eager", "untuned", "optimized"} <= good["latencies"].keys()
    assert broken["absent"] == {"untuned": "its process ended with status 7"}
    assert run.returncode == 1
