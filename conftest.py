"""For the tests and for the examples in docstrings."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """A cache of this run and its processes alone."""
    if "METASCHEDULE_TEST_CACHE" not in os.environ:
        made = tempfile.mkdtemp(prefix="metaschedule-cache-")
        os.environ["METASCHEDULE_TEST_CACHE"] = os.environ["METASCHEDULE_CACHE"] = made
        config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))


@pytest.fixture(autouse=True)
def forgetful_dynamo() -> Iterator[None]:
    """Dynamo gives up on code that it has compiled often, `nn.Sequential.forward` for one: no test should
    depend on which others the same process has run."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
