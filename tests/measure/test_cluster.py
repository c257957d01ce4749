"""A Ray cluster whose nodes die, hang and differ; each fault is a real one, of a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import metaschedule as ms
from metaschedule import database, te
from metaschedule.cli import app
from metaschedule.measure import Limits, Measurer, Outcome, WorkersError
from metaschedule.measure.cluster import RayWorkers
from metaschedule.measure.cluster.connection import is_installed
from metaschedule.measure.cluster.runners import RemoteRunner
from metaschedule.schedule import Schedule
from metaschedule.target import resolve
from tests.measure import faulty_kernels as faulty
from tests.measure.processes import alive, descendants, eventually

if not is_installed():
    pytest.skip('Ray is not installed: pip install "metaschedule[ray]"', allow_module_level=True)
if "METASCHEDULE_APART" not in os.environ:
    pytest.skip("test_cluster_apart.py runs it in a process of its own", allow_module_level=True)

from tests.measure.clusters import TestCluster, kill_raylet, running_cluster, wait_until

LONG = replace(faulty.SLEEPS_LONGER)  # 0.8 s a call
ROUNDS = [0, *[pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20)]]
TUNES = """
import sys
import metaschedule as ms
print("begun", flush=True)
result = ms.tune(ms.workloads.create("GMM", b=1, n=24, m=24, k=24), trials=int(sys.argv[2]),
                 database=sys.argv[1], workers="ray")
print(len(result.records), result.stopped, flush=True)
sys.exit(1 if result.failed else 0)
"""
CLOSES = """
import time
from metaschedule.measure.cluster import RayWorkers
for _ in range(3):
    with RayWorkers("ray") as workers:
        workers.discard(workers.runners.alive[0], "so that another is started")
        while not workers._starting:
            time.sleep(0.01)
    time.sleep(1)
print("still here")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    with running_cluster(2) as found:
        yield found


@pytest.fixture
def workers(cluster: TestCluster) -> Iterator[RayWorkers]:
    while len(cluster.nodes) < 2:
        cluster.add()
    with RayWorkers("ray", patience=90.0) as found:
        yield found


def measure_in_thread(workers: RayWorkers, candidates: list[Any], **limits: Any) -> Any:
    """A measurement that goes on; call the result for its outcomes."""
    outcomes: list[list[Outcome]] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            with Measurer(faulty.program(), limits=Limits(**limits), workers=workers) as m:
                outcomes.append(m.measure(candidates))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> list[Outcome]:
        thread.join(180)
        assert not thread.is_alive(), "it hangs"
        assert not errors, errors
        return outcomes[0]

    return wait


def busy(workers: RayWorkers) -> list[RemoteRunner]:
    return [r for r in workers.runners.alive if r.status.get("state") == "run"]


def stuck(cluster: TestCluster, workers: RayWorkers) -> list[RemoteRunner]:
    """Those, on nodes that live, that run something which does not end."""
    living = {node.node_id for node in cluster.nodes}
    still = [r for r in busy(workers) if r.is_busy and time.monotonic() - r.moved > 4]
    return [runner for runner in still if runner.key in living]


def node_of(cluster: TestCluster, runner: RemoteRunner) -> Any:
    (found,) = [node for node in cluster.nodes if node.node_id == runner.key]
    return found


@pytest.mark.parametrize("round", ROUNDS)
def test_what_was_on_a_node_that_died_goes_to_another(
    cluster: TestCluster, workers: RayWorkers, round: int
) -> None:
    wait = measure_in_thread(workers, [LONG, faulty.GOOD, faulty.SUBTRACTS])
    wait_until(lambda: busy(workers))
    cluster.kill(node_of(cluster, busy(workers)[0]))
    assert [o.kind for o in wait()] == ["ok", "ok", "wrong result"]


def test_runners_need_nothing_of_the_node_that_the_driver_is_attached_to(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs of 400 KB would be stored there, and a runner that has not got them yet would wait for them."""
    from ray._private import services

    while len(cluster.nodes) < 2:
        cluster.add()
    x = te.placeholder((100_000,), name="x")
    program = te.program([x], [te.compute((100_000,), lambda i: x[i] + 1.0, name="y")])
    entry = cluster.add_without_runner()
    with monkeypatch.context() as patch:
        patch.setattr(services, "find_node_ids", lambda: [entry.node_id])
        workers = RayWorkers("ray", patience=90.0)
    with workers, Measurer(program, inputs=[np.ones(100_000, np.float32)], workers=workers) as m:
        assert workers.ray.get_runtime_context().get_node_id() == entry.node_id
        assert m.measure([Schedule(program).program])[0].ok
        first: Any = m._runner.home  # pyright: ignore
        kill_raylet(entry)
        workers.discard(first, "so that another runs it")
        assert m.confirm([m._kept[0][1]])[0].ok  # pyright: ignore
        assert {runner.died for runner in workers.runners.known if runner is not first} == {""}


@pytest.mark.parametrize("round", ROUNDS)
def test_a_process_outlives_workers_that_are_closed_while_a_runner_starts(
    cluster: TestCluster, round: int
) -> None:
    """A call of Ray after its end, in any thread, would end the process."""
    while not cluster.nodes:
        cluster.add()
    done = subprocess.run([sys.executable, "-c", CLOSES], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("still here\n")  # before it Ray may say which nodes died


@pytest.mark.parametrize("round", ROUNDS)
def test_a_candidate_that_was_on_two_dying_nodes_is_a_crash(
    cluster: TestCluster, workers: RayWorkers, round: int
) -> None:
    cluster.add()  # where the others go
    wait = measure_in_thread(workers, [faulty.LOOPS_FOR_EVER, faulty.GOOD], run_seconds=200)
    for _ in range(2):
        wait_until(lambda: stuck(cluster, workers), 120)
        cluster.kill(node_of(cluster, stuck(cluster, workers)[0]))
    crashed, good = wait()
    assert crashed.kind == "crash"
    assert "2 nodes died" in crashed.detail
    assert good.ok, good.detail


@pytest.mark.parametrize("round", ROUNDS)
def test_a_runner_that_hangs_is_replaced(cluster: TestCluster, workers: RayWorkers, round: int) -> None:
    workers.patience = 20.0
    wait = measure_in_thread(workers, [LONG, faulty.GOOD])
    wait_until(lambda: busy(workers))
    runner = busy(workers)[0]
    pids = [pid for node in cluster.nodes for pid in descendants(node.all_processes["raylet"][0].process.pid)]
    (pid,) = [pid for pid in pids if pid == workers.ray.get(runner.actor.status.remote(), timeout=20)["pid"]]
    os.kill(pid, signal.SIGSTOP)
    assert [o.kind for o in wait()] == ["ok", "ok"]
    assert runner.died
    assert eventually(lambda: not alive(pid), 30)


@pytest.mark.parametrize("round", ROUNDS)
def test_a_run_whose_nodes_die_records_every_trial_once(
    cluster: TestCluster, workers: RayWorkers, tmp_path: Path, round: int
) -> None:
    path, killed = tmp_path / "tuning.db", threading.Event()

    def kill_one_at_work() -> None:
        while not killed.is_set():
            if has_records(path) and (working := busy(workers)):
                cluster.kill(node_of(cluster, working[0]))
                killed.set()
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one_at_work)
    killer.start()
    try:
        result = ms.tune(gmm(), trials=32, database=str(path), workers=workers)
    finally:
        was_killed = killed.is_set()
        killed.set()
        killer.join()
    assert was_killed
    assert not result.failed
    assert sum(result.outcomes.values()) == result.outcomes["ok"] == 32
    with database.open(path, readonly=True) as db:
        trials = [record for record in db.records() if not record.confirmed]
    assert [record.trial for record in trials] == list(range(32))
    assert len({(record.sketch, record.decisions) for record in trials}) == 32


@pytest.mark.parametrize("end", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
@pytest.mark.parametrize("round", ROUNDS)
def test_a_driver_that_is_ended_loses_nothing_and_leaves_nobody(
    cluster: TestCluster, workers: RayWorkers, tmp_path: Path, round: int, end: signal.Signals
) -> None:
    path = tmp_path / "tuning.db"
    driver = subprocess.Popen([sys.executable, "-c", TUNES, path, "400"], stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: has_records(path), 180)
        driver.send_signal(end)
        driver.wait(60)
    finally:
        driver.kill()
        printed, _ = driver.communicate()
    if end == signal.SIGINT:
        assert printed.endswith(" interrupted\n")
        assert driver.returncode == 0
    before = stored(path)
    mine = {f"runner-{workers._name}"}
    wait_until(lambda: {name.rsplit("-", 2)[0] for name in actors(workers)} <= mine)
    result = ms.tune(gmm(), trials=len(before) + 4, database=str(path), workers=workers)
    after = stored(path)
    assert after[: len(before)] == before
    assert len(after) == len(set(after))
    assert result.outcomes["ok"] > 0


def gmm() -> ms.Program:
    return ms.workloads.create("GMM", b=1, n=24, m=24, k=24)


def stored(path: Path) -> list[str]:
    with database.open(path, readonly=True) as db:
        return [record.uid for record in db.records()]


def has_records(path: Path) -> bool:
    try:
        return len(stored(path)) >= 4
    except database.DatabaseError:  # not there yet
        return False


def actors(workers: RayWorkers) -> list[str]:
    from ray.util import list_named_actors

    named: Any = list_named_actors(all_namespaces=True)
    return [actor["name"] for actor in named]


@pytest.mark.parametrize("round", ROUNDS)
def test_when_the_head_dies_tune_ends_with_what_it_has(tmp_path: Path, round: int) -> None:
    path = tmp_path / "tuning.db"
    with running_cluster(1) as doomed:
        driver = subprocess.Popen(
            [sys.executable, "-c", TUNES, path, "400"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            wait_until(lambda: has_records(path), 180)
            doomed.kill_head()
            printed, errors = driver.communicate(timeout=120)
        finally:
            driver.kill()
            driver.communicate()
    assert driver.returncode == 1, errors
    assert "head of the Ray cluster does not answer" in printed + errors
    assert len(stored(path)) >= 4


def test_machines_of_several_kinds_are_never_mixed(cluster: TestCluster) -> None:
    other, kinds = cluster.add(METASCHEDULE_TARGET="x86-64-v2"), [resolve("native").cpu, "x86-64-v2"]
    try:
        with RayWorkers("ray") as workers:
            with pytest.raises(ValueError, match=r"2 kinds of machines: .*x86-64-v2"):
                workers.resolve("native")
            results: Any = ms.tune(gmm(), trials=4, workers=workers, target=kinds)
            eventually(lambda: sum(node.trials for node in workers.nodes()) >= 8)
            ran = {cpu: sum(n.trials for n in workers.nodes() if n.target.cpu == cpu) for cpu in kinds}
        assert [r.target.cpu for r in results] == kinds
        assert list(ran.values()) == [4, 4]
        assert {r.target for result in results for r in result.records} == {r.target.key for r in results}
    finally:
        cluster.kill(other)


def test_cluster_status(workers: RayWorkers) -> None:
    ms.tune(gmm(), trials=4, workers=workers)
    result = CliRunner().invoke(app, ["cluster", "status", "--json"])
    nodes = json.loads(result.output)
    assert result.exit_code == 0
    assert sorted(node["is_runner"] for node in nodes) == [False, *[True] * (len(nodes) - 1)]
    assert {node["cpu"] for node in nodes} == {resolve("native").cpu}
    runners = [runner for node in nodes for runner in node["runners"]]
    assert sum(runner["trials"] for runner in runners) == 4
    table = CliRunner().invoke(app, ["cluster", "status"], env={"COLUMNS": "200"}).output
    assert resolve("native").cpu in table


def test_another_version_is_refused(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    while not cluster.nodes:
        cluster.add()
    monkeypatch.setattr("metaschedule.measure.cluster.workers.__version__", "9.9.9")
    with pytest.raises(WorkersError, match=rf"has metaschedule {ms.__version__}.*driver has 9\.9\.9"):
        RayWorkers("ray")


def test_an_address_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkersError, match="nothing answers at ray://127.0.0.1:1 .*token"):
        RayWorkers("ray://127.0.0.1:1")
