"""`metaschedule cache`: what is there, and its removal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metaschedule import workloads
from metaschedule.cache import Store, store
from metaschedule.cli.app import app
from metaschedule.measure.build import AS_WRITTEN, BuildJob, build_all
from metaschedule.target import resolve
from tests.cache.disks import read_only


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASCHEDULE_CACHE", str(tmp_path / "cache"))


def run(*command: str) -> str:
    done = CliRunner().invoke(app, ["cache", *command])
    assert done.exit_code == 0, done.output
    return done.output


def test_kernels_are_kept_shown_and_removed(tmp_path: Path) -> None:
    empty = json.loads(run("info", "--json"))
    assert (empty["bytes"], empty["directory"]) == (0, str(tmp_path / "cache"))
    job = BuildJob(workloads.create("GMM", b=1, n=3, m=5, k=7), AS_WRITTEN)
    targets = [resolve("native"), resolve("x86-64-v2,cores=1")]
    made = [build_all([job], target) for target in targets]
    assert [build_all([job], target) for target in targets] == made
    assert store().counts["kernels found"] == 2
    assert store().counts["kernels foreign"] == 1  # for the other machine
    found = json.loads(run("info", "--json"))
    assert found["kinds"]["kernels"]["entries"] == 2
    assert found["others"] == 1
    assert found["bytes"] == sum(f.size for f in store().files()) > 0
    assert "of other versions or machines" in run("info")
    assert json.loads(run("clear", "--json")) == {"removed": 2, "bytes": found["bytes"], "left": 0}
    assert run("clear") == "0 entries removed, 0.0 MB\n"


def test_other_programs_and_ways_are_other_kernels() -> None:
    gmm = workloads.create("GMM", b=1, n=3, m=5, k=7)
    jobs = [BuildJob(gmm, AS_WRITTEN), BuildJob(gmm, "untuned")]
    jobs.append(BuildJob(workloads.create("GMM", b=1, n=3, m=5, k=8), AS_WRITTEN))
    for job in jobs:
        build_all([job], resolve("native"))
    build_all(jobs[:1], resolve("native"), bounds="unchecked")
    assert store().counts["kernels written"] == 4


def test_a_wrong_size_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASCHEDULE_CACHE_SIZE", "large")
    done = CliRunner().invoke(app, ["cache", "info"])
    assert done.exit_code == 2
    assert "METASCHEDULE_CACHE_SIZE" in done.output


def test_what_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with read_only(tmp_path / "disk") as disk:
        monkeypatch.setenv("METASCHEDULE_CACHE", str(disk))
        assert run("clear") == "0 entries removed, 0.0 MB\n"
        monkeypatch.setattr(Store, "files", lambda _: iter([object()]))
        monkeypatch.setattr(Store, "clear", lambda _: (0, 0))
        assert CliRunner().invoke(app, ["cache", "clear"]).exit_code == 1
