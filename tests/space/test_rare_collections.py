"""Thresholds of the collector while something is scheduled, and what they are afterwards."""

from __future__ import annotations

import gc

import pytest

from metaschedule import workloads
from metaschedule.schedule import BlockRV, Schedule
from metaschedule.space import default
from metaschedule.space.rare_collections import RARER, rare_collections
from metaschedule.target import Target


def test_uses_within_uses_change_nothing_more() -> None:
    before = gc.get_threshold()
    rare = (*before[:2], before[2] * RARER)
    with rare_collections():
        with rare_collections():
            assert gc.get_threshold() == rare
        assert gc.get_threshold() == rare
    assert gc.get_threshold() == before


def test_thresholds_come_back_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), rare_collections():
        raise KeyError
    assert gc.get_threshold() == before


def test_a_space_is_explored_with_few_collections() -> None:
    before, seen = gc.get_threshold(), list[int]()

    def look(sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        seen.append(gc.get_threshold()[2])
        return [sch]

    (default() + look).sketches(workloads.create("GMM", b=1, n=8, m=8, k=8))
    assert set(seen) == {before[2] * RARER}
    assert gc.get_threshold() == before
