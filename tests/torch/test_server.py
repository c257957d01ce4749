"""What a server needs: threads, several models, memory that does not grow, signals, forks."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from tests.conftest import LONG  # noqa: E402

kernels = importlib.import_module("metaschedule.torch.kernels")
nn = torch.nn
THREADS = 8
ROUNDS = 5


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Perceptron(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 64), nn.Linear(64, 8)

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.norm(self.convolution(x))).mean((2, 3))


class Ranked(nn.Module):
    """With a node that torch computes."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvalsh(torch.exp(x) @ torch.exp(x).transpose(-1, -2))


def test_many_calls_of_several_models_by_eight_threads() -> None:
    torch.manual_seed(0)
    calls = 10_000 if LONG["long"] else 600
    models = [Perceptron(24).eval(), Image().eval(), Ranked().eval(), Perceptron(40).eval()]
    inputs = [
        [torch.randn(n, 24) for n in (1, 5)],
        [torch.randn(2, 3, 9, 9)],
        [torch.randn(3, 4, 4)],
        [torch.randn(n, 40) for n in (1, 7)],
    ]
    with torch.no_grad():
        wanted = [[model(x) for x in some] for model, some in zip(models, inputs)]
    runs: list[Any] = [torch.compile(model, backend="metaschedule", dynamic=False) for model in models[:3]]
    runs.append(ms.torch.optimize(models[3], (inputs[3][0],)))
    wrong: list[str] = []

    def call(n: int) -> None:
        which = n % len(models)
        at = n // len(models) % len(inputs[which])
        with torch.no_grad():
            found = runs[which](inputs[which][at])
        if not torch.allclose(found, wanted[which][at], rtol=1e-3, atol=1e-3):
            wrong.append(f"call {n} of model {which}")

    with ThreadPoolExecutor(THREADS) as pool:
        for n in range(8):  # shapes are compiled one by one: Dynamo counts how often it has to
            pool.submit(call, n).result()
        list(pool.map(call, range(200)))
        sizes: list[int] = []
        for _ in range(ROUNDS):
            list(pool.map(call, range(calls // ROUNDS)))
            gc.collect()
            sizes.append(resident())
    assert not wrong
    # What calls keep grows in every round; what the allocator takes for its threads does not.
    assert min(after - before for before, after in zip(sizes, sizes[1:])) < 256 << 10, sizes


def test_the_first_calls_of_several_threads_compile_once() -> None:
    model, x = Perceptron(33).eval(), torch.randn(3, 33)
    with torch.no_grad():
        wanted = model(x)
    run = torch.compile(model, backend="metaschedule")
    barrier = threading.Barrier(4)

    def call(_: int) -> Any:
        barrier.wait()
        with torch.no_grad():
            return run(x)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(call, range(4)):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def children() -> set[str]:
    found: set[str] = set()
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        found |= set(path.read_text().split())
    return found


def test_ctrl_c_ends_compiling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("METASCHEDULE_CACHE", str(tmp_path))
    build = kernels.build_all

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return build(*args, **kwargs)

    layers = [nn.Sequential(nn.Linear(51 + n, 52 + n), nn.ReLU()) for n in range(5)]
    model, x = nn.Sequential(*layers).eval(), torch.randn(3, 51)
    before = children()
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    with torch.no_grad():
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "build_all", interrupted)
            with pytest.raises(KeyboardInterrupt):
                run(x)
        assert children() <= before
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_forked_process_runs_the_model() -> None:
    model, x = Perceptron(128).eval(), torch.randn(64, 128)
    run = ms.torch.optimize(model, (x,), strict=True)
    wanted = run(x).numpy()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if (run(x).numpy() == wanted).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (run(x).numpy() == wanted).all()
