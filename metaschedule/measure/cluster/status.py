"""What a cluster is doing, for somebody who only looks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from ...target import Target
from ..outcome import one_line
from ..workers import WorkerNode
from .connection import RUNNER, Connection

log = logging.getLogger("metaschedule")
SECONDS = 30.0  # for a node to say what it is
NAMESPACE = "metaschedule"


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster: its `cores` for builders, and what its runners do; `is_runner` if it may have
    any. `error` says why it could not be asked."""

    name: str
    cores: int
    is_runner: bool
    about: WorkerNode | None
    runners: tuple[WorkerNode, ...] = ()
    error: str = ""


def cluster_status(address: str = "ray") -> list[ClusterNode]:
    """The nodes of a cluster that runs already; `address` as of `RayWorkers`."""
    connection = Connection(address, join=True)
    try:
        return look(connection.ray)
    finally:
        connection.close()


def look(ray: Any) -> list[ClusterNode]:
    from ray.util import list_named_actors
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from .node import probe
    from .runners import as_fields

    nodes = [n for n in ray.nodes() if n["Alive"]]
    task = ray.remote(num_cpus=0, max_retries=0)(probe)
    strategies = {n["NodeID"]: NodeAffinitySchedulingStrategy(n["NodeID"], soft=False) for n in nodes}
    asked = {ray.submit(task.options(scheduling_strategy=s)): key for key, s in strategies.items()}
    doing: dict[str, list[dict[str, Any]]] = {}
    named: Any = list_named_actors(all_namespaces=True)
    for found in named:
        if found["namespace"] == NAMESPACE:
            try:
                actor = ray.get_actor(found["name"], namespace=NAMESPACE)
                key = found["name"].split("-")[2]
                doing.setdefault(key, []).append(ray.get(ray.submit(actor.look), timeout=SECONDS))
            except Exception:  # it ended meanwhile, or hangs, which is its driver's to find out
                log.debug("%s does not answer", found["name"], exc_info=True)
                continue
    done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=SECONDS)
    answers: dict[str, Any] = {}
    errors = dict.fromkeys(strategies, f"no answer in {SECONDS:g} s")
    for reference in done:
        try:
            answers[asked[reference]] = ray.get(reference, timeout=1.0)
        except Exception as error:
            log.debug("a node does not answer", exc_info=True)
            errors[asked[reference]] = one_line(error)
    return [describe(n, answers.get(n["NodeID"]), doing, errors, as_fields) for n in nodes]


def describe(n: Any, answer: Any, doing: Any, errors: dict[str, str], as_fields: Any) -> ClusterNode:
    key, resources = n["NodeID"], n["Resources"]
    name = f"{n['NodeManagerHostname']}-{key[:4]}"
    cores, is_runner = int(resources.get("CPU", 0)), bool(resources.get(RUNNER))
    if answer is None:
        return ClusterNode(name, cores, is_runner, None, (), errors[key])
    about = WorkerNode(name, Target.from_json(answer["target"]), answer["version"])
    runners = tuple(replace(about, **as_fields(status)) for status in doing.get(key, []))
    return ClusterNode(name, cores, is_runner, about, runners)
