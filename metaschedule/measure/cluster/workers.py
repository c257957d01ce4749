"""`RayWorkers`: builders are tasks of a Ray cluster, runners are actors, one on each node with the resource.

    ray start --head --resources '{"metaschedule_runner": 1}'

Every wait has an end: Ray does not always say that somebody died, and never that somebody hangs.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from ... import __version__
from ...target import Target, known
from ..frames import Frame
from ..outcome import MeasureError, WorkersError, one_line
from ..pool import Job
from ..workers import WorkerNode
from ..workload import MeasuredWorkload
from . import gate
from .connection import RUNNER, Connection
from .status import NAMESPACE

log = logging.getLogger("metaschedule")
SHARE = 0.001  # of the resource, for each runner: several runs may have one on a node, which take turns
HEARTBEAT = 2.0  # seconds
LEASE = 60.0  # seconds after which a runner ends that has not heard of its driver
PATIENCE = 30.0  # seconds without an answer, after which a runner hangs, or a node does not come back
START = 120.0  # seconds for an actor or a task to begin: its process imports the package
LOST_HEAD = 3  # heartbeats without a head
LOST = "the head of the Ray cluster does not answer any more; what was recorded is kept, so run it again"
MOST_STARTS = 5  # of runners on a node, one after the other, that do nothing


class RayWorkers:
    """`address` is "ray" (the cluster of RAY_ADDRESS, or else a Ray on this machine that ends with this) or
    "ray://host:10001"."""

    def __init__(self, address: str = "ray", *, patience: float = PATIENCE, lease: float = LEASE) -> None:
        self.patience, self._lease = patience, lease
        self._connection = Connection(address)
        from . import batch, node  # they import Ray
        from .builders import Builders
        from .runners import Runners

        self.ray = self._connection.ray
        self.runners = Runners()
        self._open_runner = batch.RayRunner
        self._builders = Builders(self.ray, node.build, self.check, patience)
        self._actor_class = self.ray.remote(
            num_cpus=0, resources={RUNNER: SHARE}, max_restarts=0, max_task_retries=0,
            concurrency_groups={"control": 2},
        )(node.RunnerActor)  # fmt: skip
        self._name, self._numbers = uuid.uuid4().hex[:8], itertools.count()
        self._failure: WorkersError | None = None
        self._is_closed = threading.Event()
        self._starts: Counter[str] = Counter()  # of runners that did nothing yet, by node
        self._starting: set[str] = set()  # nodes
        self._has_news = threading.Event()  # a runner was given up: its node may have another
        try:
            self._builders.prepare()
            self._find_first_runners()
        except BaseException:
            self.close()
            raise
        for forever in (self._listen, self._watch_head):
            threading.Thread(target=forever, daemon=True).start()

    def __enter__(self) -> RayWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def slots(self) -> int:
        """While some are timed, as many others are built."""
        return 2 * max(1, len(self.runners.alive))

    def nodes(self) -> list[WorkerNode]:
        return [runner.snapshot() for runner in list(self.runners.known)]

    def resolve(self, target: Target | str) -> Target:
        """The machine of the runners is "native", if they are of one kind; a kind has the name that LLVM has
        for its CPU."""
        self._wait_for_runners()
        kinds = {runner.node.target.key: runner.node.target for runner in self.runners.alive}
        described = ", ".join(kind.cpu for kind in kinds.values())
        if isinstance(target, str):
            if len(kinds) > 1 and target.partition(",")[0].strip() == "native":
                raise ValueError(
                    f"the cluster has {len(kinds)} kinds of machines: {described}; ask for one by target=, "
                    "or for several by a list"
                )
            names: dict[str, Any] = {kind.cpu: (lambda kind=kind: kind) for kind in kinds.values()}
            names["native"] = lambda: next(iter(kinds.values()))
            target = known.find(target, known.KNOWN | names)
        if not self.runners.fitting(target, None):
            raise ValueError(
                f"no runner can run code for {target.name}: the cluster has {described or 'none'}"
            )
        return target

    def _wait_for_runners(self) -> None:
        """Others may be starting, for some that were given up."""
        deadline = time.monotonic() + self.patience
        while not self.runners.alive:
            self.check()
            if not self._starting and time.monotonic() > deadline:
                raise WorkersError("no runner is left; see the log, and `metaschedule cluster status`")
            time.sleep(0.2)

    def computing(self) -> AbstractContextManager[object]:
        """A runner may be on this machine."""
        return gate.computing()

    def open(self, workload: MeasuredWorkload) -> Any:
        return self._open_runner(self, workload, f"{self._name}.{next(self._numbers)}")

    def close(self) -> None:
        """End the runners, and Ray if it was started here."""
        self._is_closed.set()
        if self._failure is None:
            for runner in self.runners.alive:
                self.discard(runner, "closed")
        self._connection.close()

    def build(self, jobs: Iterable[Job], memory: int) -> Iterator[tuple[Job, Frame]]:
        return self._builders.build(jobs, memory)

    # --- runners ---

    def check(self, runner: Any = None) -> None:
        """Raise what ends waiting: the cluster is gone, nobody wants the result any more, or no machine that
        can run it came back."""
        if self._failure is not None:
            raise self._failure
        if self._is_closed.is_set() or (runner is not None and runner.is_closed):
            raise WorkersError("closed")
        if runner is None or self._starting or self.runners.fitting(runner.target, runner.home):
            return
        if time.monotonic() - max((r.ended for r in self.runners.known), default=0.0) > self.patience:
            kind = WorkersError if not self.runners.alive else MeasureError
            raise kind(
                f"no runner is left for {runner.name} ({runner.target.name}): "
                + "; ".join(f"{r.node.name}: {r.died}" for r in self.runners.known if r.died)[:300]
            )

    def check_head(self) -> None:
        """Raise if there is no cluster any more: then it is nobody's fault that runners died."""
        if not self._connection.is_head_alive():
            self._fail(LOST)
        self.check()

    def discard(self, runner: Any, why: str) -> None:
        """Never use a runner again; its process ends, if it has not."""
        if not self.runners.bury(runner, why):
            return
        if self._failure is None:
            try:
                self.ray.kill(runner.actor)
            except Exception as error:
                log.info("a runner could not be ended: %s", one_line(error), exc_info=True)
        if not self._is_closed.is_set():
            log.warning("runner %s is given up: %s", runner.node.name, why)
            self._has_news.set()

    def drop(self, used: Iterable[Any], key: str) -> None:
        """Let runners forget a workload."""
        for runner in used:
            if not runner.died and self._failure is None and not self._is_closed.is_set():
                self.ray.submit(runner.actor.drop, key)

    def _find_first_runners(self) -> None:
        deadline = time.monotonic() + START
        names = self._runner_nodes()
        if not names:
            raise WorkersError(
                "no node of the cluster times candidates: start some with "
                f"ray start --address=HEAD:6379 --resources '{{\"{RUNNER}\": 1}}'"
            )
        self._add_runners(names, deadline)
        if not self.runners.alive:
            raise WorkersError("no runner answers; see the log, and `ray status`")

    def _runner_nodes(self) -> dict[str, str]:
        """Names of live nodes that may run candidates, by identity."""
        found = [n for n in self.ray.nodes() if n["Alive"] and n["Resources"].get(RUNNER)]
        return {n["NodeID"]: f"{n['NodeManagerHostname']}-{n['NodeID'][:4]}" for n in found}

    def _add_runners(self, names: dict[str, str], deadline: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from .runners import RemoteRunner

        started: dict[Any, tuple[str, Any]] = {}
        for key in names:
            self._starts[key] += 1
            placed = self._actor_class.options(
                name=f"runner-{self._name}-{key}-{next(self._numbers)}", namespace=NAMESPACE,
                scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False),
            )  # fmt: skip
            actor = self.ray.submit(placed, self._lease)
            started[self.ray.submit(actor.describe)] = key, actor
        while started and time.monotonic() < deadline and not self._is_closed.is_set():
            done, _ = self.ray.wait(list(started), num_returns=1, timeout=1.0)
            for reference in done:
                key, actor = started.pop(reference)
                try:
                    about = self.ray.get(reference, timeout=10.0)
                except Exception as error:
                    log.warning("the runner of %s does not start: %s", names[key], one_line(error))
                    log.debug("it failed with", exc_info=True)
                    continue
                if about["version"] != __version__:
                    self.ray.kill(actor)
                    raise WorkersError(
                        f"node {names[key]} has metaschedule {about['version']}, and the driver has "
                        f"{__version__}: install one of them on both"
                    )
                target = Target.from_json(about["target"])
                self.runners.add(
                    RemoteRunner(key, actor, WorkerNode(names[key], target, about["version"], about["peak"]))
                )
            if not done and not self._connection.is_head_alive():
                raise WorkersError(LOST)
        for key, actor in started.values():
            self.ray.kill(actor)
            log.warning("the runner of %s does not answer in %g s", names[key], START)

    # --- what becomes of them ---

    def _watch_head(self) -> None:
        """In a thread that asks Ray nothing: its calls wait for a dead head until, after 60 s, it ends the
        process."""
        missed = 0
        while not self._is_closed.wait(HEARTBEAT):
            missed = 0 if self._connection.is_head_alive() else missed + 1
            if missed >= LOST_HEAD:
                self._fail(LOST)
                return

    def _listen(self) -> None:
        """Hear of the runners and let them hear of this process, until that ends."""
        asked: dict[Any, Any] = {}
        looked = time.monotonic()
        while not self._is_closed.wait(HEARTBEAT) and self._failure is None:
            try:
                waiting = set(asked.values())
                for runner in self.runners.alive:
                    if runner not in waiting:
                        asked[self.ray.submit(runner.actor.status)] = runner
                done, _ = (
                    self.ray.wait(list(asked), num_returns=len(asked), timeout=0.5) if asked else ([], [])
                )
                for reference in done:
                    self._hear(asked.pop(reference), reference)
                for runner in self.runners.alive:
                    if time.monotonic() - runner.heard > self.patience:
                        self.discard(runner, f"no answer for {self.patience:g} s")
                asked = {r: runner for r, runner in asked.items() if not runner.died}
                is_time = self._has_news.is_set() or time.monotonic() - looked > self.patience / 3
                if is_time and self._connection.is_head_alive():  # else it would be asked for a minute
                    self._has_news.clear()
                    looked = time.monotonic()
                    self._builders.count_cores()
                    self._look_for_nodes()
            except BaseException as error:  # Ray's SystemExit, if it is shut down meanwhile
                if self._is_closed.is_set():
                    return
                log.info("Ray: %s", one_line(error), exc_info=True)

    def _hear(self, runner: Any, reference: Any) -> None:
        try:
            runner.hear(self.ray.get(reference, timeout=1.0))
            if runner.status["trials"]:
                self._starts[runner.key] = 0
        except Exception as error:
            if not self._is_closed.is_set() and self._connection.is_head_alive():
                log.debug("%s does not say how it is", runner.node.name, exc_info=True)
                self.discard(runner, one_line(error))

    def _look_for_nodes(self) -> None:
        """Start runners on nodes that have none: those that came, and those whose runner was given up, unless
        that was so several times."""
        served = {runner.key for runner in self.runners.alive} | self._starting
        for key, name in self._runner_nodes().items():
            if key not in served and self._starts[key] < MOST_STARTS:
                self._starting.add(key)
                threading.Thread(target=self._start_runner, args=(key, name), daemon=True).start()

    def _start_runner(self, key: str, name: str) -> None:
        try:
            self._add_runners({key: name}, time.monotonic() + START)
        except BaseException as error:  # Ray's SystemExit, if it is shut down meanwhile
            if not self._is_closed.is_set():
                log.warning("the runner of %s cannot be used: %s", name, one_line(error))
                log.debug("it failed with", exc_info=True)
            self._starts[key] = MOST_STARTS
        finally:
            self._starting.discard(key)

    def _fail(self, why: str) -> None:
        self._failure = WorkersError(why)
        for runner in self.runners.alive:
            self.runners.bury(runner, why)
