"""Traces of programs of the same structure as first candidates."""

from __future__ import annotations

import random
from functools import partial

import pytest

import metaschedule as ms
from metaschedule.schedule.distribution import Categorical, Distribution, PerfectTile, Tile
from metaschedule.search import Evolutionary
from metaschedule.search.relatives import Relatives, adapt
from metaschedule.space.untuned import default_space
from metaschedule.target import resolve
from tests.search.examples import small
from tests.search.runners import Synthetic

TARGET = resolve("x86-64-v3,cores=2")
tune = partial(
    ms.tune, strategy=partial(Evolutionary, chains=16, generations=2), measurer=Synthetic, target=TARGET
)


@pytest.mark.parametrize(
    ("site", "decision", "nearest"),
    [
        (PerfectTile(24, 2), [4, 4], [6, 4]),
        (PerfectTile(24, 3, 4), [2, 2, 8], [3, 2, 4]),
        (Tile(24, 2, 8), [3, 6], [4, 6]),
        (Categorical((1, 2, 4), (0.5, 0.5, 0.0)), 2, 1),
    ],
)
def test_the_nearest_valid_decision(site: Distribution, decision: object, nearest: object) -> None:
    assert not site.valid(decision)
    assert site.valid(site.nearest(decision))
    assert site.nearest(decision) == nearest


def test_a_trace_fits_other_sizes() -> None:
    space = default_space(TARGET)
    rng = random.Random(1)
    for other in (small(25), small(7), small(64)):
        for _ in range(3):
            trace = space.sample(small(), rng).trace
            made = adapt(trace, other)
            assert made.program.params[0].shape == other.params[0].shape
            assert len(made.trace) == len(trace)


def test_relatives_are_those_of_the_same_structure_the_nearest_first() -> None:
    db = ms.database.open(None)
    for n in (20, 48, 200):
        tune(small(n), trials=4, database=db)
    tune(ms.workloads.create("SFM", shape=(8, 8)), trials=4, database=db)
    found = list(Relatives(db).records(small(24), TARGET))
    assert [r.workload for r in found] == [ms.structural_hash(small(n)) for n in (20, 48, 200)]
    assert not list(Relatives(db).records(small(24), resolve("x86-64-v2,cores=2")))


def test_a_program_begins_with_what_its_relatives_run_by() -> None:
    db = ms.database.open(None)
    best = tune(small(48), trials=16, database=db)
    first = tune(small(24), trials=4, database=db).records[1]  # after the untuned default
    assert first.trace is not None
    assert first.trace.decisions == adapt(best.trace, small(24)).trace.decisions
