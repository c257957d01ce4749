"""Where candidates are built and run: the tests of what becomes of them hold for all places."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from metaschedule.measure import Workers, open_workers
from metaschedule.measure.cluster.connection import is_installed

NEEDS_RAY = pytest.mark.skipif(
    not is_installed(), reason='Ray is not installed: pip install "metaschedule[ray]"'
)


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=NEEDS_RAY)])
def place(request: pytest.FixtureRequest, monkeypatch_module: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch_module.delenv("RAY_ADDRESS", raising=False)
    with open_workers(request.param) as workers:
        yield workers


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch
