"""Threads: how many, whose pool, and calls from several Python threads at once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from handmade_kernels import parallel, scratch

from metaschedule.runtime import Executable, get_num_threads, set_num_threads, threads
from metaschedule.target import native

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def kernel() -> Executable:
    return Executable(parallel())


def run(script: str) -> str:
    """What a fresh process prints; it has our kernels at hand and treats warnings as errors."""
    setup = f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent.parent)!r}]\n"
    command = [sys.executable, "-W", "error", "-c", setup + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_parallel_kernel(kernel: Executable) -> None:
    a = np.arange(1000, dtype=np.float32)
    c = kernel(a)
    np.testing.assert_array_equal(c[:-1], a + 1)
    assert 1 <= c[-1] <= get_num_threads()


def test_number_of_threads(kernel: Executable) -> None:
    a = np.zeros(1000, np.float32)
    before = get_num_threads()
    try:
        set_num_threads(2)
        assert kernel(a)[-1] == 2
        set_num_threads(1)
        assert get_num_threads() == 1
        assert kernel(a)[-1] == 1
        set_num_threads(8)
        one = Executable(parallel(cores=1))
        assert one(a)[-1] == 1  # what its target has
        one.threads = 2
        assert one(a)[-1] == 2  # unless told
        set_num_threads(1)
        three = Executable(parallel(max_threads=3), threads=8)
        assert three(a)[-1] == 3
        three.threads = 2
        assert three(a)[-1] == 2
        three.threads = None
        assert three(a)[-1] == 1
    finally:
        set_num_threads(before)
    for wrong in (0, -1, 2.0, True, "2"):
        with pytest.raises((TypeError, ValueError), match="must be (from 1 to 4096|an integer)"):
            set_num_threads(wrong)  # pyright: ignore[reportArgumentType]
        with pytest.raises((TypeError, ValueError), match="must be (from 1 to 4096|an integer)"):
            Executable(parallel(), threads=wrong)  # pyright: ignore[reportArgumentType]


def test_the_default_is_the_cores() -> None:
    assert run("from metaschedule.runtime import *; print(get_num_threads())") == str(native().cores)


def test_concurrent_calls_have_workspaces_of_their_own() -> None:
    exe = Executable(scratch(pause=2000))
    failures: list[str] = []

    def work(seed: int) -> None:
        a = np.full(100, seed, np.float32)
        for _ in range(20):
            if not (exe(a) == 2 * seed).all():
                failures.append(f"thread {seed} got another's data")

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_concurrent_parallel_calls(kernel: Executable) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        a = np.full(1000, seed, np.float32)
        for _ in range(50):
            if not (kernel(a)[:-1] == seed + 1).all():
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize("path", ["native", "python"])
def test_other_threads_run_meanwhile(path: str) -> None:
    """A kernel that sleeps with the GIL would let nobody count."""
    exe = Executable(scratch(pause=300_000))
    a = np.zeros(100, np.float32)
    if path == "python":
        a = a.view(np.dtype("f4", metadata={"another": "dtype object"}))
    counted, done = 0, threading.Event()

    def call() -> None:
        exe(a)
        done.set()

    worker = threading.Thread(target=call)
    worker.start()
    while not done.is_set():
        time.sleep(0.001)
        counted += 1
    worker.join()
    assert counted > 10


def test_the_pool_is_found_without_torch() -> None:
    source = run(
        "import numpy as np\n"
        "from handmade_kernels import parallel\n"
        "from metaschedule.runtime import Executable, threads\n"
        "assert threads.THREADS.source is None\n"
        "Executable(parallel())(np.zeros(1000, np.float32))\n"
        "print(threads.THREADS.source, threads.THREADS.settled)\n"
    )
    assert source in ("xgboost False", "system False")


def test_a_pool_already_in_the_process_is_used() -> None:
    assert (
        run(
            "import ctypes\n"
            "try:\n"
            "    ctypes.CDLL('libgomp.so.1')\n"
            "except OSError:\n"
            "    print('loaded'); raise SystemExit\n"
            "from metaschedule.runtime import threads\n"
            "threads.THREADS.refresh()\n"
            "print(threads.THREADS.source)\n"
        )
        == "loaded"
    )


def test_without_any_pool_kernels_are_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "candidates", lambda: iter([("system", "libnone.so.1")]))
    monkeypatch.setattr(threads, "torch_library", lambda: None)
    for name in ("gomp_parallel", "thread_num", "num_threads"):
        monkeypatch.setattr(threads.PROCESS, name, None)
    fresh = threads.Threads()
    with pytest.warns(RuntimeWarning, match="no OpenMP library found"):
        fresh.refresh()
    fresh.refresh()  # says so once
    exe = Executable(parallel())
    monkeypatch.setattr(exe, "_check", False)
    assert exe(np.zeros(1000, np.float32))[-1] == 1


def test_torch_imported_later_takes_over() -> None:
    pytest.importorskip("torch")
    assert (
        run(
            "import numpy as np\n"
            "from handmade_kernels import parallel\n"
            "from metaschedule.runtime import Executable, threads\n"
            "exe = Executable(parallel(), threads=2)\n"
            "a = np.zeros(1000, np.float32)\n"
            "exe(a)\n"
            "before = threads.THREADS.source\n"
            "import torch\n"
            "assert exe(a)[-1] == 2\n"
            "assert before != 'torch'\n"
            "print(threads.THREADS.source, threads.THREADS.settled)\n"
        )
        == "torch True"
    )


def test_a_torch_that_is_none() -> None:
    """A module of that name without libraries: kernels use what there is, and stop asking."""
    printed = run(
        "import types\n"
        "sys.modules['torch'] = types.ModuleType('torch')\n"
        "import numpy as np\n"
        "from handmade_kernels import parallel\n"
        "from metaschedule.runtime import Executable, threads\n"
        "a = np.zeros(1000, np.float32)\n"
        "exe = Executable(parallel())\n"
        "exe(a); exe(a)\n"
        "print(threads.THREADS.source, threads.THREADS.settled)\n"
    )
    assert printed in ("xgboost True", "system True")
