"""The comparison of search spaces: what a row says; that seeds are independent and runs go on."""

from __future__ import annotations

import math
from typing import Any

import pytest

from metaschedule import database
from metaschedule.report.case import cases
from metaschedule.report.spaces import (
    Band,
    Clock,
    Course,
    SpacesRow,
    compare_spaces,
    presets_of,
)
from metaschedule.target import resolve


def row(**latencies: list[float]) -> SpacesRow:
    courses = [
        Course(space, seed, [math.inf, seconds], seconds, 2)
        for space, found in latencies.items()
        for seed, seconds in enumerate(found)
    ]
    return SpacesRow("GMM", 2, courses)


def test_bands_are_of_the_seeds() -> None:
    found = row(loops=[5.0, 4.0, 9.0], ansor=[2.0, 1.0, 3.0])
    assert found.latency("loops") == Band(4.0, 5.0, 9.0)
    assert found.course("ansor")[1] == Band(1.0, 2.0, 3.0)
    assert found.gain("loops", "ansor") == 2.5
    assert found.as_data()["runs"][0]["best"] == [None, 5.0]  # JSON knows no infinity


def test_a_richer_space_that_is_worse_is_named() -> None:
    assert not row(loops=[1.0], autotvm=[1.04], ansor=[0.5]).failures
    (failure,) = row(loops=[1.0], autotvm=[0.5], ansor=[1.0]).failures
    assert failure == "GMM: ansor is 2.00 times as slow as autotvm"


def test_time_left_is_that_of_the_runs_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("metaschedule.report.spaces.time.monotonic", lambda: now[0])
    clock = Clock(4)
    assert clock.left() == ""
    assert clock.left(3.0) == ", about 12 s left"
    now[0], clock.done = 110.0, 1
    assert clock.left() == ", about 30 s left"
    assert clock.left(4.0) == ", about 24 s left"


def test_seeds_do_not_learn_from_each_other_and_runs_go_on() -> None:
    target, subjects = resolve("native"), cases(["GMM:n=8,m=16,k=4"])
    said: list[str] = []
    with database.open(None) as db:
        found: Any = None
        for _ in range(2):
            (found,) = compare_spaces(
                subjects,
                lambda _: presets_of(["loops", "ansor"], target),
                range(2),
                2,
                db,
                target,
                said.append,
            )
        records = [r for r in db.records(subjects[0].program, target) if not r.confirmed]
    assert [(c.space, c.seed) for c in found.courses] == [
        ("loops", 0), ("loops", 1), ("ansor", 0), ("ansor", 1)
    ]  # fmt: skip
    assert {r.space for r in records} == {f"{name}, seed {n}" for name in ("loops", "ansor") for n in (0, 1)}
    assert len(records) == 2 * 2 * 2  # the second time nothing was left to try
    assert all(len(c.best) == 2 and c.best[1] <= c.best[0] for c in found.courses)
    assert any("of 4 runs done" in text for text in said)
