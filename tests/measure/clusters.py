"""A real Ray cluster on this machine: a head that builds, nodes that only run candidates. All on loopback."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metaschedule.measure.cluster.connection import LOOPBACK, RUNNER, import_ray

STORE = 100 << 20


class TestCluster:
    """`nodes` are those that run candidates."""

    __test__ = False

    def __init__(self) -> None:
        import_ray()  # which sets what Ray reads when it is imported
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "include_dashboard": False, **self._options()}
        self._cluster: Any = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        return self._cluster.address

    @staticmethod
    def _options() -> dict[str, Any]:
        return {"node_ip_address": LOOPBACK, "object_store_memory": STORE}

    def add(self, **variables: str) -> Any:
        """A node that runs candidates, with these variables in its environment."""
        options = {"num_cpus": 0, "resources": {RUNNER: 1}, "env_vars": variables or None, **self._options()}
        node = patiently(lambda: self._cluster.add_node(**options))
        self.nodes.append(node)
        return node

    def add_without_runner(self) -> Any:
        """A node that a driver may be attached to."""
        return patiently(lambda: self._cluster.add_node(num_cpus=0, **self._options()))

    def kill(self, node: Any) -> None:
        """The raylet's process, which Ray sees once it is reaped; its workers end with it."""
        self.nodes.remove(node)
        kill_raylet(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        for kind in ("gcs_server", "raylet"):
            for process in self._cluster.head_node.all_processes[kind]:
                os.kill(process.process.pid, signal.SIGKILL)
                process.process.wait(20)

    def close(self) -> None:
        self._cluster.shutdown()


def patiently(start: Any) -> Any:
    """On a busy machine Ray gives a node up that needs more than 30 s to start."""
    for _ in range(2):
        try:
            return start()
        except Exception as error:
            if "timed out" not in str(error):
                raise
    return start()


def kill_raylet(node: Any) -> None:
    process = node.all_processes["raylet"][0].process
    os.kill(process.pid, signal.SIGKILL)
    process.wait(20)


@contextmanager
def running_cluster(nodes: int) -> Iterator[TestCluster]:
    """A cluster that RAY_ADDRESS names meanwhile."""
    cluster = TestCluster()
    try:
        for _ in range(nodes):
            cluster.add()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_ADDRESS", cluster.address)
            yield cluster
    finally:
        cluster.close()


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
