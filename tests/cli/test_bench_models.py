"""`metaschedule bench models`: each model in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from metaschedule import database
from tests.postgres import Server

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


def test_records_on_a_server(postgres: Server, tmp_path: Path) -> None:
    url, report = postgres.create_database(), tmp_path / "report.json"
    command = [sys.executable, "-m", "metaschedule", "bench", "models", "nbeats", "--small", "--trials", "2"]
    command += ["--against", "eager", "--seconds", "0.01", "--db", url, "--json", str(report)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    (row,) = json.loads(report.read_text())["rows"]
    assert "tuned" in row["latencies"]
    with database.open(url) as db:
        assert db.count(outcome="ok") > 0
