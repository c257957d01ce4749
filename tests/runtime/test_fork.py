"""Calls in forked processes. Each script has a time limit: a hang is a failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT = 120  # seconds; a script takes one or two

SETUP = f"""
import os, sys, threading
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent.parent)!r}]
import numpy as np
from handmade_kernels import parallel
from metaschedule.runtime import Executable, load, set_num_threads
from metaschedule.runtime.threads import THREADS

a = np.arange(1000, dtype="float32")

def check(exe, threads=2):
    c = exe(a)
    assert (c[:-1] == a + 1).all()
    assert c[-1] == threads, (c[-1], THREADS.source)

def forked(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print("in a child:", repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def join(*pids):
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0

set_num_threads(2)
exe = Executable(parallel(cores=2))
"""


def run(script: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SETUP + script)
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr


def test_a_child_and_its_child(tmp_path: Path) -> None:
    run("""
check(exe)
def child():
    check(exe)
    join(forked(lambda: check(exe)))
    check(exe)
join(forked(child))
check(exe)
assert THREADS.source != "copy"
""", tmp_path)  # fmt: skip


def test_a_child_of_a_parent_that_has_not_called(tmp_path: Path) -> None:
    run("join(forked(lambda: check(exe)))\ncheck(exe)", tmp_path)


def test_workers_of_a_server(tmp_path: Path) -> None:
    """The parent loads, warms up and forks; the children serve, some of them with threads of their own."""
    run("""
check(exe)
def serve():
    for _ in range(20):
        check(exe)
    threads = [threading.Thread(target=check, args=(exe,)) for _ in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    exe.benchmark(a, repeats=1)
    check(Executable(parallel(cores=2)))
    set_num_threads(1)
    check(exe, 1)
join(*[forked(serve) for _ in range(3)])
check(exe)
""", tmp_path)  # fmt: skip


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    run(f"""
import multiprocessing
def work(n):
    check(exe)
    return n
if __name__ == "__main__":
    check(exe)
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(work, range(6)) == list(range(6))
    check(exe)
""", tmp_path)  # fmt: skip


def test_while_other_threads_call_and_compile(tmp_path: Path) -> None:
    run("""
done = threading.Event()
def call():
    while not done.is_set():
        check(exe)
def compile():
    while not done.is_set():
        Executable(parallel(cores=2))
threads = [threading.Thread(target=call), threading.Thread(target=compile)]
for t in threads: t.start()
def child():
    check(exe)
    check(Executable(parallel(cores=2)))
try:
    for _ in range(4):
        join(forked(child))
finally:
    done.set()
for t in threads: t.join()
""", tmp_path)  # fmt: skip


def test_a_sequence(tmp_path: Path) -> None:
    run("""
from metaschedule.runtime.sequence import KernelCall, Place, Sequence
c = np.zeros(1001, "float32")
steps = Sequence([KernelCall(exe, (Place(1, 0), Place(2, 0)), Place(0, 0))], bases=2)
def call():
    steps(2, a.ctypes.data, c.ctypes.data)
    assert (c[:-1] == a + 1).all() and c[-1] == 2
call()
join(forked(call))
call()
""", tmp_path)  # fmt: skip


def test_after_torch_has_used_its_pool(tmp_path: Path) -> None:
    """torch's own operators hang in such a child unless they use one thread."""
    pytest.importorskip("torch")
    run("""
import torch
torch.set_num_threads(2)
torch.randn(1 << 20).exp_()
check(exe)
assert THREADS.source == "torch"
def child():
    check(exe)
    x = torch.arange(1000, dtype=torch.float32)
    assert (exe(x)[:-1].numpy() == a + 1).all()
join(forked(child))
check(exe)
""", tmp_path)  # fmt: skip


def test_workers_of_a_data_loader(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run("""
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, n):
        return torch.from_numpy(exe(a + np.float32(n))[:4])
if __name__ == "__main__":
    check(exe)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2)
    got = torch.cat(list(loader)).numpy()
    assert (got == np.arange(8)[:, None] + np.arange(4) + 1).all()
    check(exe)
""", tmp_path)  # fmt: skip
