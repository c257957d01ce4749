"""For the tests and for the examples in docstrings."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def forgetful_dynamo() -> Iterator[None]:
    """Dynamo gives up on code that it has compiled often, `nn.Sequential.forward` for one: no test should
    depend on which others the same process has run."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
