"""What Ray costs on one machine, and how far one driver reaches.

    .venv/bin/python benchmarks/cluster.py overhead [--trials 64] [--program GMM] [--rounds 3]
    .venv/bin/python benchmarks/cluster.py scaling [--nodes 1 2 4 8 16 32] [--seconds 10] [--search]

`overhead` tunes a program by local workers and by a Ray of this machine, and says what Ray's start takes.

`scaling` is a simulation, of machines that are not there: candidates are built and timed once, by this
machine, and nodes then wait for as long as that took instead of doing it. All else is real: Ray, actors (a
process for each node), frames, queues, the driver. It shows trials a minute over the number of nodes, and the
milliseconds of the driver's CPU for each trial, which is what limits in the end. Without `--search` batches
are prepared beforehand, so that it is the cost of placing work; with it, `ms.tune` tunes programs, search and
model included.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from dataclasses import asdict
from typing import Any

import metaschedule as ms
from metaschedule import __version__
from metaschedule.ir import Program
from metaschedule.measure import Measurer, Outcome, WorkerNode
from metaschedule.measure.build import BuildJob
from metaschedule.measure.cluster import RayWorkers
from metaschedule.measure.cluster.connection import import_ray
from metaschedule.measure.cluster.runners import RemoteRunner
from metaschedule.measure.frames import pack
from metaschedule.space.untuned import default_space
from metaschedule.target import resolve

BATCH = 16


def overhead(name: str, trials: int, rounds: int) -> None:
    """By turns, after a run that counts for nobody: it imports and compiles what both need."""
    program = ms.workloads.create(name, 0)
    ms.tune(program, trials=4, seed=rounds)
    print("local, s   Ray, s   ratio   Ray's start, s   local, us   Ray, us")
    for seed in range(rounds):
        begin = time.perf_counter()
        local = ms.tune(program, trials=trials, seed=seed)
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        with RayWorkers("ray") as workers:
            start = time.perf_counter() - begin
            begin = time.perf_counter()
            remote = ms.tune(program, trials=trials, seed=seed, workers=workers)
            elsewhere = time.perf_counter() - begin
        found = [1e6 * (result.latency or 0) for result in (local, remote)]
        times = f"{seconds:8.1f} {elsewhere:8.1f} {elsewhere / seconds:7.2f} {start:16.1f}"
        print(f"{times} {found[0]:11.1f} {found[1]:9.1f}", flush=True)


# --- simulated nodes ---


class SimulatedRunner:
    """A node that waits. `seconds` are those of real trials, by turns."""

    def __init__(self, seconds: list[float], target: dict[str, Any]) -> None:
        self.seconds, self.target, self.trials = seconds, target, 0

    async def status(self) -> dict[str, Any]:
        return {"state": "idle", "program": "", "done": 0, "of": 0, "progress": self.trials, "rate": 0,
                "trials": self.trials, "disturbed": 0}  # fmt: skip

    async def drop(self, key: str) -> None:
        pass

    async def run(self, version: str, key: str, best: float | None, confirm: bool, sizes: list[int],
                  *pieces: bytes) -> bytes:  # fmt: skip
        outcomes: list[Outcome] = []
        for _ in sizes[2:]:  # after the workload and its reference
            wait = self.seconds[self.trials % len(self.seconds)]
            self.trials += 1
            latency = 1e-4 * (1 + self.trials % 7 / 100)
            outcomes.append(Outcome("ok", latency, (latency,), run_seconds=wait))
        await asyncio.sleep(sum(o.run_seconds for o in outcomes))
        return pack({"outcomes": [asdict(o) for o in outcomes], "constraint": ""})


class SimulatedBuilders:
    """As many builders as are asked, which wait and give what was built before."""

    def __init__(self, seconds: list[float], answer: bytes) -> None:
        self.seconds, self.answer, self.built = seconds, answer, 0

    async def build(
        self, version: str, memory: int, limits: list[float], requests: list[bytes]
    ) -> list[bytes]:
        waits = [self.seconds[(self.built + n) % len(self.seconds)] for n in range(len(requests))]
        self.built += len(requests)
        await asyncio.sleep(sum(waits))
        return [self.answer] * len(requests)


class SimulatedWorkers(RayWorkers):
    def __init__(self, count: int, recorded: list[Outcome], answer: bytes) -> None:
        self.count, self.recorded, self.answer = count, recorded, answer
        super().__init__("ray", patience=120.0)
        ray: Any = self.ray
        builder = ray.remote(num_cpus=0, max_concurrency=1000)(SimulatedBuilders)
        handle = builder.remote([o.build_seconds for o in recorded], answer)
        self._builders._task = handle.build
        self._builders.cores, self._builders.count_cores = 16 * count, lambda: None

    def _find_first_runners(self) -> None:
        ray: Any = self.ray
        target = resolve("native")
        actor_class = ray.remote(num_cpus=0, max_concurrency=4)(SimulatedRunner)
        seconds = [o.run_seconds for o in self.recorded]
        actors = [actor_class.remote(seconds, target.to_json()) for _ in range(self.count)]
        ray.get([actor.status.remote() for actor in actors], timeout=120)
        for n, actor in enumerate(actors):
            self.runners.add(
                RemoteRunner(f"node-{n}", actor, WorkerNode(f"node-{n}", target, __version__, 100.0))
            )

    def _look_for_nodes(self) -> None:
        """None come."""


def program_number(n: int) -> Program:
    return ms.workloads.create("GMM", b=1, n=64 + 2 * n, m=64, k=64)


def record_trials() -> tuple[list[Outcome], list[Program], bytes]:
    """Real trials of a program, and an answer of a builder."""
    program = program_number(0)
    space = default_space(resolve("native"))
    candidates = [space.sample(program, n).program for n in range(BATCH)]
    with Measurer(program) as m:
        outcomes = [o for o in m.measure(candidates) if o.ok]
        built: Any = m._compile([BuildJob(candidates[0])])[0]
    header, code = built.pack()
    return outcomes, candidates, pack(header | {"kind": "ok", "seconds": 0.1}, code)


def scaling(counts: list[int], seconds: float, search: bool) -> None:
    os.environ["METASCHEDULE_GATE"] = tempfile.mkdtemp()  # the simulated machines do not share our cores
    import_ray()
    recorded, candidates, answer = record_trials()
    build = sum(o.build_seconds for o in recorded) / len(recorded)
    run = sum(o.run_seconds for o in recorded) / len(recorded)
    print(f"recorded: {1e3 * build:.0f} ms to build, {1e3 * run:.0f} ms to run a trial")
    print("nodes   trials a minute   of linear   driver's ms a trial   driver's CPU")
    first = 0.0
    for count in counts:
        simulated: Any = SimulatedWorkers(count, recorded, answer)
        with simulated as workers:
            measure = with_search if search else without_search
            trials, elapsed, cpu = measure(workers, candidates, seconds)
        rate = 60 * trials / elapsed
        first = first or rate / count
        linear, each = rate / count / first, 1e3 * cpu / trials
        print(f"{count:5d} {rate:17.0f} {linear:11.2f} {each:21.2f} {cpu / elapsed:14.0%}", flush=True)


def without_search(workers: Any, candidates: list[Program], seconds: float) -> tuple[int, float, float]:
    """Prepared batches, as many programs at a time as a run would have."""
    done: list[int] = []
    measurers = [Measurer(candidates_program(), workers=workers) for _ in range(workers.slots)]
    for m in measurers:
        m._has_reference = True
        m._runner.establish(Outcome("build error"))
    begin, cpu = time.perf_counter(), time.process_time()

    def work(m: Measurer) -> None:
        while time.perf_counter() - begin < seconds:
            done.append(len(m.measure(candidates)))

    threads = [threading.Thread(target=work, args=(m,)) for m in measurers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done), time.perf_counter() - begin, time.process_time() - cpu


def candidates_program() -> Program:
    return program_number(0)


def with_search(workers: SimulatedWorkers, _: list[Program], seconds: float) -> tuple[int, float, float]:
    programs = [program_number(n) for n in range(workers.slots)]
    begin, cpu = time.perf_counter(), time.process_time()
    results = ms.tune(programs, minutes=seconds / 60, workers=workers)
    trials = sum(len(result.records) for result in results)
    return trials, time.perf_counter() - begin, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("overhead")
    one.add_argument("--trials", type=int, default=64)
    one.add_argument("--program", default="GMM")
    one.add_argument("--rounds", type=int, default=3)
    many = commands.add_parser("scaling")
    many.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    many.add_argument("--seconds", type=float, default=10.0)
    many.add_argument("--search", action="store_true")
    options = parser.parse_args()
    if options.command == "overhead":
        overhead(options.program, options.trials, options.rounds)
    else:
        scaling(options.nodes, options.seconds, options.search)


if __name__ == "__main__":
    main()
