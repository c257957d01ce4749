"""The structures of the default space, workload by workload.

`sketches.txt` pins them; UPDATE_GOLDENS=1 writes it anew.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

import metaschedule as ms
from metaschedule.space import default
from metaschedule.space.outline import outline

GOLDEN = Path(__file__).with_name("sketches.txt")
TWELVE = [name for name in ms.workloads.names() if name not in ("CAP", "FDENSE")]


@cache
def outlines(name: str) -> list[str]:
    """Of the sketches for a fixed machine, one a line."""
    return [outline(s) for s in default("x86-64-v3,cores=2").sketches(ms.workloads.create(name))]


def test_sketches_are_pinned() -> None:
    found = "\n".join(line for name in ms.workloads.names() for line in (f"# {name}", *outlines(name), ""))
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


@pytest.mark.parametrize("name", [name for name in TWELVE if name not in ("NRM", "SFM")])
def test_tvm_tilings_are_contained(name: str) -> None:
    """SSRSRS without a copy of the result, with one (or the epilogue) at the first level, at the second."""
    tiled = [line for line in outlines(name) if re.search(r"\bSSRSRS\b", line)]
    places = {m[1] if (m := re.search(r"follow with \S+ at loop (\d+) of", line)) else None for line in tiled}
    assert len(places) == 3
    assert None in places


@pytest.mark.parametrize("name", ["NRM", "SFM"])
def test_tvm_reductions_are_contained(name: str) -> None:
    """Every reduction as it is, and factored; the factored parts of the inner and of the outer loop."""
    lines = outlines(name)
    assert any("factor" not in line for line in lines)
    for block in {"NRM": ["squares"], "SFM": ["max", "sum"]}[name]:
        assert len([line for line in lines if f"factor {block}" in line]) >= 2
