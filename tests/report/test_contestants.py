"""Contestants that are missing or fail say so; TVM's side is played by a script."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metaschedule.report.case import cases
from metaschedule.report.contestants import ContestantError, opponents
from metaschedule.report.contestants.tvm import TVM, contestant, environment
from metaschedule.target import resolve

TARGET = resolve("x86-64-v3,cores=2")
(CASE,) = cases(["NRM:m=4,n=8"])

SERVER = """
import json, os, sys
import numpy as np
for line in sys.stdin:
    request = json.loads(line)
    threads = os.environ.get("TVM_NUM_THREADS")
    print(json.dumps(request | {"threads": threads}), file=sys.stderr, flush=True)
    answer = {"ok": 2.5}
    if request["do"] == "tune" and request["trials"] == 13:
        answer = {"error": "thirteen"}
    if request["do"] == "tune" and request["trials"] == 14:
        sys.exit(3)
    if request["do"] == "load":
        assert np.isnan(np.load(request["output"])).all()
        x = np.load(request["inputs"] + "/00.npy")
        np.save(request["output"], np.sqrt((x * x).sum((1, 2))))
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    monkeypatch.setattr(contestant, "SERVER", server)
    monkeypatch.setattr(contestant, "interpreter", lambda directory: sys.executable)
    return tmp_path


def requests(cache: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (cache / "log.txt").read_text().splitlines()]


def test_tvm_tunes_once_then_takes_its_records(cache: Path) -> None:
    for _ in range(2):
        tvm = TVM(TARGET, 12, 0, cache)
        assert tvm.prepare(CASE) == 2.5
        (variant,) = tvm.variants(CASE)
        assert variant.native
        assert variant.seconds() == 2.5
        np.testing.assert_allclose(variant.output(), np.linalg.norm(CASE.arrays[0]), rtol=1e-5)
        tvm.close()
    asked = requests(cache)
    assert [request["do"] for request in asked] == ["tune", "load", "measure", "load", "measure"]
    assert asked[0]["target"] == {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}
    assert asked[0]["directory"] == asked[1]["directory"]


def test_tvm_by_default_takes_the_same_kernels_and_chooses_its_threads(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "7")
    both = opponents(["tvm", "tvm-default"], TARGET, 12, cache, 0)
    for tvm in both:
        tvm.prepare(CASE)
        assert [variant.contestant for variant in tvm.variants(CASE)] == [tvm.name]
        tvm.close()
    asked = requests(cache)
    found = [(request["do"], request["threads"]) for request in asked]
    assert found == [("tune", "2"), ("load", "2"), ("load", None)]
    assert len({request["directory"] for request in asked}) == 1


def test_another_budget_has_records_of_its_own(cache: Path) -> None:
    for trials in (12, 24):
        tvm = TVM(TARGET, trials, 0, cache)
        tvm.prepare(CASE)
        tvm.close()
    directories = {request["directory"] for request in requests(cache)}
    assert len(directories) == 2


@pytest.mark.parametrize(("trials", "message"), [(13, "TVM: thirteen; see"), (14, "ended with exit code 3")])
def test_tvm_that_fails_is_not_taken_for_tuned(cache: Path, trials: int, message: str) -> None:
    tvm = TVM(TARGET, trials, 0, cache)
    with pytest.raises(ContestantError, match=message):
        tvm.prepare(CASE)
    tvm.close()
    assert not list(cache.rglob("seconds.json"))


def test_tvm_takes_no_part_where_weights_are_constant(cache: Path) -> None:
    (case,) = cases(["GMM"], constant=True)
    tvm = TVM(TARGET, 12, 0, cache)
    assert tvm.prepare(case) is None
    assert not list(tvm.variants(case))
    tvm.close()


def test_an_environment_that_cannot_be_made_says_why() -> None:
    with pytest.raises(ContestantError, match=r"could not be installed: .*\nno such package"):
        environment.run(sys.executable, "-c", "raise SystemExit('no such package')")


def test_missing_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("metaschedule.report.contestants.")]:
        if module.endswith(("pytorch", "torch_operators")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ContestantError, match="pip install torch"):
        opponents(["torch"], TARGET, 1, Path(), 0)
