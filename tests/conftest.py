"""How long the property tests look: a glance by default, a long run with `pytest --long`.

Tests that start processes and measure are kept on one worker of xdist: they would disturb each other.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres import Server, running_server, unavailable

LONG = {"long": False}
MEASURING = ("cli", "measure", "search")
WAITING = ("test_cluster_apart.py", "test_ray_start.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run slow tests and long property tests")


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background leaves them deaf to Ctrl-C, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    LONG["long"] = bool(config.getoption("--long"))
    common = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
    settings.register_profile("glance", max_examples=40, derandomize=True, **common)
    settings.register_profile("long", max_examples=2000, **common)
    settings.load_profile("long" if LONG["long"] else "glance")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By directory: with pytest 9.2, which has node ids of its own, xdist 3.8 loses groups by marks."""
    from xdist.scheduler import LoadGroupScheduling

    class Scheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            is_measuring = file.parent.name in MEASURING and file.name not in WAITING
            return "measuring" if is_measuring else nodeid

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="part of the long run: pytest --long")
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def postgres_of_session() -> Iterator[Server]:
    if reason := unavailable():
        pytest.skip(reason)
    with running_server() as server:
        yield server


@pytest.fixture
def postgres(postgres_of_session: Server) -> Server:
    """A PostgreSQL server that runs; tests may stop it, and use databases of their own."""
    postgres_of_session.start()
    return postgres_of_session
