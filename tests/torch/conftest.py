"""A graph that runs in eager because we failed is a failure of the test, unless it is marked `falls_back`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def strict(request: pytest.FixtureRequest) -> Iterator[None]:
    pytest.importorskip("torch")
    from metaschedule.torch.fallback import REASONS

    before = Counter(REASONS)
    yield
    if request.node.get_closest_marker("falls_back") is None:
        assert not REASONS - before, "graphs that run in eager"
