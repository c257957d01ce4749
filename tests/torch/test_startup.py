"""`options={"startup": "eager"}`: eager runs until kernels are compiled in the background."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule.torch  # noqa: E402
from metaschedule.torch.background import wait_for_all  # noqa: E402
from metaschedule.torch.fallback import REASONS  # noqa: E402

backend = importlib.import_module("metaschedule.torch.backend")
nn = torch.nn


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("METASCHEDULE_CACHE", str(tmp_path / "cache"))
    with torch.no_grad():
        yield


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is fused until it is set."""
    opened = threading.Event()
    inner = backend.fuse_graph

    def wait(graph: Any) -> Any:
        assert opened.wait(60)
        return inner(graph)

    monkeypatch.setattr(backend, "fuse_graph", wait)
    return opened


def compile_eagerly(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="metaschedule", options={"startup": "eager", **options})


def specialised(model: Any) -> Any:
    own = {id(p) for p in model.parameters()}
    found = [s for s in backend.EVERY if s.weights and any(id(t) in own for t in s.weights.tensors)]
    assert len(found) == 1
    return found[0]


def test_eager_runs_until_kernels_are_there(gate: threading.Event) -> None:
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU()).eval()
    run, x = compile_eagerly(model), torch.randn(4, 24)
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x), rtol=0, atol=0)
    gate.set()
    wait_for_all()
    one = specialised(model)
    (known,) = one.known.values()
    assert known.runner is not None
    before = known.used
    for _ in range(3):  # weights that were looked at while eager used them are looked at again
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        wait_for_all()
    assert known.used > before


def test_weights_that_change_meanwhile_are_used(gate: threading.Event) -> None:
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU()).eval()
    run, x = compile_eagerly(model), torch.randn(4, 24)
    run(x)
    model[0].weight.mul_(2)
    gate.set()
    wait_for_all()
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        wait_for_all()


def test_a_fork_while_kernels_are_compiled(gate: threading.Event) -> None:
    """The child, which has no such thread, compiles what it needs. (Products of torch may hang there.)"""
    model = nn.PReLU(24).eval()
    run, x = compile_eagerly(model), torch.randn(4, 24)
    want = run(x)
    child = os.fork()
    if child == 0:
        gate.set()
        wait_for_all()
        again = run(x)
        wait_for_all()
        (known,) = specialised(model).known.values()
        metaschedule.torch.refresh(model)
        same = all(torch.allclose(y, want, rtol=1e-4, atol=1e-5) for y in (again, run(x)))
        os._exit(0 if same and known.runner is not None else 3)
    gate.set()
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = -1
    wait_for_all()
    assert status == 0


@pytest.mark.falls_back
def test_an_error_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError("no luck today")

    monkeypatch.setattr(backend, "fuse_graph", fail)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU()).eval()
    run, x = compile_eagerly(model), torch.randn(4, 24)
    before = REASONS.total()
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x), rtol=0, atol=0)
        wait_for_all()
    assert caplog.text.count("a graph runs in eager: RuntimeError: no luck today") == 1
    assert REASONS.total() == before + 1


def test_a_strict_error_is_raised_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError("no luck today")

    monkeypatch.setattr(backend, "fuse_graph", fail)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU()).eval()
    run, x = compile_eagerly(model, strict=True), torch.randn(4, 24)
    run(x)
    wait_for_all()
    with pytest.raises(RuntimeError, match="no luck today"):
        run(x)


def test_a_wrong_value_is_refused() -> None:
    with pytest.raises(Exception, match='startup must be "wait" or "eager", got \'later\''):
        torch.compile(nn.Linear(2, 2), backend="metaschedule", options={"startup": "later"})(torch.ones(1, 2))


ENDS = """
import torch, metaschedule.torch
layers = [torch.nn.Sequential(torch.nn.Linear(40 + n, 41 + n), torch.nn.ReLU()) for n in range(12)]
model = torch.nn.Sequential(*layers).eval()
with torch.no_grad():
    torch.compile(model, backend="metaschedule", options={"startup": "eager"})(torch.randn(3, 40))
print("done")
"""


def test_a_process_that_ends_meanwhile_ends_well() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
