"""Several programs: who gets trials, and when there are enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import pytest

import metaschedule as ms
from metaschedule.measure import MeasureError
from metaschedule.search import Evolutionary, Progress
from metaschedule.search.run import PATIENCE, is_out_of_patience, left_to_win
from metaschedule.search.scheduler import gradient, round_robin
from metaschedule.target import Target
from tests.search.examples import small
from tests.search.runners import Synthetic

tune = partial(ms.tune, strategy=partial(Evolutionary, chains=16, generations=2), measurer=Synthetic)


@dataclass
class Tuned:
    weight: float | None = 1.0
    trials: int = 0
    course: list[tuple[int, float]] = field(default_factory=list)
    stopped: str = ""


def after(trials: int, *latencies: float, weight: float | None = 1.0) -> Tuned:
    """Latencies after steps of 16."""
    steps = range(trials - 16 * (len(latencies) - 1), trials + 1, 16)
    return Tuned(weight, trials, list(zip(steps, latencies)))


def test_everyone_has_a_first_turn() -> None:
    assert gradient([after(16, 9.0), Tuned(), Tuned()]) == 1
    assert round_robin([after(16, 9.0), Tuned(), Tuned()]) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (after(64, 9.0, 7.0, 5.0), after(64, 5.0, 5.0, 5.0)),  # progress
        (after(16, 5.0), after(64, 5.0, 5.0, 5.0)),  # few trials
        (after(64, 5.0, 5.0), after(64, 1.0, 1.0)),  # much to win
        (after(64, 2.0, 2.0, weight=9), after(64, 5.0, 5.0)),  # called often
        (after(32, 2.0, weight=None), after(64, 90.0, weight=None)),  # a larger share of its own latency
        (after(64, 5.0, 5.0), after(64)),  # nothing works in the other
    ],
)
def test_trials_go_where_most_can_be_won(one: Tuned, other: Tuned) -> None:
    assert gradient([one, other]) == 0
    assert gradient([other, one]) == 1


def test_patience() -> None:
    flat = [(n, 1.0) for n in range(0, PATIENCE + 16, 16)]
    assert is_out_of_patience(flat)
    assert not is_out_of_patience(flat[:-2])
    assert not is_out_of_patience([*flat, (PATIENCE + 16, 0.9)])
    assert not is_out_of_patience([])


def test_several_programs_share_the_budget_and_equal_ones_are_one() -> None:
    steps: list[Progress] = []
    programs = [small(24), small(48), small(24)]
    results = tune(programs, trials=12, progress=steps.append)
    assert isinstance(results, list)
    assert [r.program.inputs[0].shape for r in results] == [(1, 24, 16), (1, 48, 16), (1, 24, 16)]
    assert results[0].records is results[2].records
    assert len(results[0].records) + len(results[1].records) == 24
    assert {s.programs for s in steps} == {2}
    assert Counter(s.number for s in steps if s.event == "confirmed") == {0: 1, 1: 1}


def test_round_robin() -> None:
    results = tune([small(24), small(48)], trials=8, scheduler="round robin", weights=[100, 1])
    assert [len(r.records) for r in results] == [8, 8]


def test_a_program_that_cannot_be_measured_does_not_stop_the_others() -> None:
    def picky(program: ms.Program, target: Target) -> Synthetic:
        if program.inputs[0].shape[1] == 48:
            raise MeasureError("GMM cannot be run as written")
        return Synthetic(program, target)

    good, bad = tune([small(24), small(48)], trials=8, measurer=picky)
    assert len(good.records) == 16
    assert bad.latency is None
    assert bad.stopped == "GMM cannot be run as written"
    with pytest.raises(MeasureError):
        tune(small(48), measurer=picky)


def test_a_long_run_begins_as_a_short_one_does() -> None:
    short, long = (tune(small(24), trials=trials).records for trials in (64, 96))
    assert [(r.sketch, r.decisions) for r in long[:64]] == [(r.sketch, r.decisions) for r in short]


def test_a_run_ends_when_little_is_left_to_win() -> None:
    result = tune(small(), minutes=5, enough=0.5)
    assert "left to win" in result.stopped
    assert result.latency is not None


def test_what_is_left_is_what_the_later_half_has_won() -> None:
    task = after(64, 9.0, 8.0, 5.0)
    assert left_to_win(task) == pytest.approx(9.0 - 5.0)
    assert left_to_win(after(16, 5.0, weight=2.0)) == pytest.approx(1.0)


def test_the_audience_hears_what_the_whole_takes() -> None:
    heard: list[Progress] = []
    tune([small(), small(32)], weights=[3, 1], trials=8, progress=heard.append)
    last = heard[-1]
    assert 0 < (last.whole or 0) <= (last.whole_untuned or 0)
