"""The dashboard at its limits: a huge database, a live run, and what an open page costs the tuner.

python benchmarks/dashboard.py [--records 100000] [--trials 64] [--rounds 8] [--parts first,live]

| part | figure |
|---|---|
| `first` | seconds from the address to the list of runs, and to the largest run; memory of the page |
| `live` | seconds from the commit of a trial to its dot on an open page |
| `beside` | seconds of `ms.tune(GMM)` without and with an open page, by turns; their CPU time |
| `report` | bytes of a report on 1,000 trials |

It needs Debian's chromium and `pip install "metaschedule[dashboard]" playwright`.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import metaschedule as ms
from metaschedule.database import Record, TuningRun

CANDIDATES = 40  # different ones in a made-up database
TUNES = """
import sys, time
import metaschedule as ms
start = time.perf_counter()
ms.tune(ms.workloads.create("GMM", 0), trials=int(sys.argv[2]), database=sys.argv[1], seed=int(sys.argv[3]))
print(time.perf_counter() - start)
"""
OPEN_RUN = """() => {
  const link = document.querySelector('main a[href^="#/run/"]');
  if (link) location.hash = link.getAttribute("href");
  return link !== null;
}"""
DOTS = "(document.querySelector('.plot')?.querySelectorAll('.scatterlayer .points path').length ?? 0)"


def fill(path: Path, count: int, runs: int = 20) -> str:
    """`count` records of some candidates, in some runs of which the last has a fifth; its name."""
    program, target, space = ms.workloads.create("GMM", 0), ms.target.resolve("native"), ms.space.default()
    with ms.database.open(path) as db:
        workload = db.add_program(program)
        kinds = ["crash" if n % 10 == 9 else "ok" for n in range(CANDIDATES)]
        known = [
            Record.of(
                workload, target, space.sample(program, n).trace, kind, latency=1.0 if kind == "ok" else None
            )
            for n, kind in enumerate(kinds)
        ]
        sizes = [int(0.8 * count / (runs - 1))] * (runs - 1)
        for r, size in enumerate([*sizes, count - sum(sizes)]):
            begin = 1e9 + 1e6 * r
            run = TuningRun(
                f"run{r}", workload, target.key, "cpu", r, f"call{r}", f"run {r}", trials=size, started=begin,
                updated=begin + size, seconds={"run": 1.0}, stopped="",
            )  # fmt: skip
            trials = [
                replace(known[n % CANDIDATES], trial=n, run=run.uid, uid=f"{r}.{n}") for n in range(size)
            ]
            db.add_all([with_time(one, begin, size) for one in trials], run)
    return f"run{runs - 1}"


def with_time(record: Record, begin: float, size: int) -> Record:
    """Later trials are faster, more or less."""
    n = record.trial or 0
    latency = 1e-4 * (1.2 - n / size + 0.5 * (n * 7919 % 1000) / 1000)
    return replace(
        record, latency=latency if record.outcome == "ok" else None, elapsed=float(n), created=begin + n,
        predicted=latency * 1.1,
    )  # fmt: skip


@contextmanager
def serve(path: Path) -> Iterator[tuple[str, int]]:
    """Its address and its process."""
    command = [
        sys.executable,
        "-u",
        "-m",
        "metaschedule",
        "dashboard",
        str(path),
        "--port",
        "0",
        "--no-browser",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield re.findall(r"http://\S+", server.stdout.readline())[0], server.pid
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        server.stdout.close()


@contextmanager
def open_browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--enable-precise-memory-info"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        yield browser
        browser.close()


def wait_until(page: Any, condition: str, seconds: float = 60) -> float:
    start = time.perf_counter()
    while not page.evaluate(condition):
        if time.perf_counter() - start > seconds:
            raise TimeoutError(condition)
        time.sleep(0.01)
    return time.perf_counter() - start


def memory_of(page: Any) -> float:
    """MB of the process that draws the page: what it holds that no other process does, by the kernel."""
    session = page.context.browser.new_browser_cdp_session()
    drawing = [
        p["id"] for p in session.send("SystemInfo.getProcessInfo")["processInfo"] if p["type"] == "renderer"
    ]
    sizes = []
    for pid in drawing:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        sizes.append(sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE))) / 1024)
    return max(sizes)


def measure_first(directory: Path, count: int) -> None:
    path = directory / "huge.db"
    run = fill(path, count)
    print(f"{count} records, {path.stat().st_size / 1e6:.0f} MB")
    with serve(path) as (address, _), open_browser() as browser:
        for name, place, drawn in (
            ("runs", "", "document.querySelectorAll('main table tbody tr').length > 5"),
            ("a run", f"#/run/{run}", f"{DOTS} > 100"),
        ):
            page = browser.new_page()
            start = time.perf_counter()
            page.goto(address + place)
            wait_until(page, drawn)
            print(f"{name}: {time.perf_counter() - start:.2f} s, {memory_of(page):.0f} MB")
            page.close()


def measure_live(directory: Path) -> None:
    path = directory / "live.db"
    run = fill(path, 200, 2)
    waits: list[float] = []
    with serve(path) as (address, _), open_browser() as browser:
        page = browser.new_page()
        page.goto(f"{address}#/run/{run}")
        wait_until(page, f"{DOTS} > 10")
        wait_until(page, "document.getElementById('state').textContent === 'live'")
        for n in range(10):
            before = page.evaluate(DOTS)
            with ms.database.open(path) as db:
                last = next(r for r in db.records(run=run) if r.outcome == "ok")
                row = next(r for r in db.runs() if r.uid == run)
                added = replace(last, uid=f"new.{n}", trial=10_000 + n, latency=1e-5)
                db.add_all([added], replace(row, updated=time.time(), stopped=None))
                committed = time.perf_counter()
            wait_until(page, f"{DOTS} > {before}", 20)
            waits.append(time.perf_counter() - committed)
            time.sleep(0.37)
    print(f"dot after commit: median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s")


def measure_beside(directory: Path, trials: int, rounds: int) -> None:
    """Pairs of one seed, the order changing by turns. One run differs from the next by some percent, because
    it is led by what it measures: hence the mean over pairs with its standard error, and beside it the CPU
    time that the page takes from a tuner that needs all cores, which is nearly free of noise."""
    ratios: list[float] = []
    shares: list[float] = []
    time_tuning(directory / "warm.db", trials, 0, None)
    for n in range(rounds):
        seconds: dict[str, float] = {}
        for kind in ("without", "with") if n % 2 == 0 else ("with", "without"):
            path = directory / f"{kind}{n}.db"
            ms.database.open(path).close()
            if kind == "without":
                seconds[kind] = time_tuning(path, trials, n, None)
                continue
            with serve(path) as (address, server), open_browser() as browser:
                page = browser.new_page()
                page.goto(address)
                page.wait_for_selector("h1")
                before = cpu_seconds(browser, server)
                seconds[kind] = time_tuning(path, trials, n, page)
                used = [
                    after - known for after, known in zip(cpu_seconds(browser, server), before, strict=True)
                ]
                shares.append(sum(used) / (seconds[kind] * (os.cpu_count() or 1)))
        ratios.append(seconds["with"] / seconds["without"] - 1)
        print(
            f"without {seconds['without']:.2f} s, with a page {seconds['with']:.2f} s: {ratios[-1]:+.1%}",
            flush=True,
        )
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else math.nan
    mean, middle, share = statistics.mean(ratios), statistics.median(ratios), statistics.mean(shares)
    print(
        f"{trials} trials beside a page: {mean:+.1%} +- {error:.1%} (median {middle:+.1%}); "
        f"server and browser take {share:.1%} of the cores"
    )


def cpu_seconds(browser: Any, server: int) -> tuple[float, float]:
    """Of the page's server, and of all processes of the browser."""
    user, system = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[11:13]
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), sum(p["cpuTime"] for p in processes)


def time_tuning(path: Path, trials: int, seed: int, page: Any) -> float:
    """Seconds of `ms.tune` in a process of its own; a page opens its run as soon as there is one, as a person
    would."""
    child = subprocess.Popen(
        [sys.executable, "-c", TUNES, str(path), str(trials), str(seed)], stdout=subprocess.PIPE, text=True
    )
    is_open = page is None
    while child.poll() is None:
        time.sleep(0.25)
        if not is_open:
            is_open = page.evaluate(OPEN_RUN)
    assert child.stdout is not None
    return float(child.stdout.read())


def measure_report(directory: Path) -> None:
    from metaschedule.dashboard.report import make_page

    path = directory / "report.db"
    fill(path, 1000, 2)
    with ms.database.open(path, readonly=True) as db:
        print(f"report on a run of 1,000 records: {len(make_page(db).encode()) / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--parts", default="first,live,report,beside")
    options = parser.parse_args()
    parts = options.parts.split(",")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if "first" in parts:
            measure_first(directory, options.records)
        if "live" in parts:
            measure_live(directory)
        if "report" in parts:
            measure_report(directory)
        if "beside" in parts:
            measure_beside(directory, options.trials, options.rounds)


if __name__ == "__main__":
    main()
