"""What every strategy promises, and what each is for."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

import metaschedule as ms
from metaschedule.cost import Analytical, Random
from metaschedule.errors import InternalError
from metaschedule.schedule import Schedule
from metaschedule.search import Evolutionary, Exhaustive, History, Replay
from metaschedule.search.descent import Descent
from metaschedule.search.strategy import Strategy
from metaschedule.space import Space, as_space, default
from metaschedule.target import Target, resolve
from tests.search.examples import small, tiled
from tests.search.runners import Synthetic

FEW_CHAINS = partial(Evolutionary, chains=16, generations=3)
STRATEGIES = [Replay, FEW_CHAINS, Exhaustive]
TARGET = resolve("x86-64-v3,cores=2")


def history(space: object = None) -> History:
    chosen = default(TARGET) if space is None else as_space(space)  # type: ignore[arg-type]
    return History(small(), chosen, Analytical(TARGET))


def searched(make: Callable[[History], Strategy], seed: int, steps: int = 3, space: object = None) -> History:
    """After some steps of a strategy on a synthetic machine; `asked` has all that it proposed."""
    known = history(space)
    strategy, runner = make(known), Synthetic(known.program, TARGET)
    for step in range(steps):
        found = strategy.propose(8, random.Random(f"{seed} {step}"))
        outcomes = runner.measure([c.schedule.program for c in found])
        known.learn(found, [o.latency for o in outcomes])
    return known


@pytest.mark.parametrize("make", STRATEGIES)
def test_nothing_is_proposed_twice(make: Callable[[History], Strategy]) -> None:
    known = searched(make, seed=0)
    found = [candidate for _, candidate in known.ranked]
    assert len(found) == 24
    assert len({c.key for c in found}) == len({ms.structural_hash(c.schedule.program) for c in found}) == 24


@pytest.mark.parametrize("make", STRATEGIES)
def test_same_seed_same_proposals(make: Callable[[History], Strategy]) -> None:
    first, again = (searched(make, seed=1, steps=2).ranked for _ in range(2))
    assert [(cost, c.key) for cost, c in first] == [(cost, c.key) for cost, c in again]


@pytest.mark.parametrize("make", [Replay, FEW_CHAINS])
def test_another_seed_other_proposals(make: Callable[[History], Strategy]) -> None:
    first, other = ({c.key for _, c in searched(make, seed=seed, steps=1).ranked} for seed in (1, 2))
    assert first != other


@pytest.mark.parametrize("make", STRATEGIES)
def test_a_small_space_ends(make: Callable[[History], Strategy]) -> None:
    known = searched(make, seed=0, steps=6, space=tiled)
    assert len(known.ranked) <= 16
    assert make is not Exhaustive or len(known.ranked) == 16
    assert len({c.key for _, c in known.ranked}) == len(known.ranked)


def test_exhaustive_search_finds_the_optimum() -> None:
    known = searched(Exhaustive, seed=0, steps=3, space=tiled)
    space, machine = as_space(tiled), Synthetic(known.program, TARGET).machine
    draws = [space.sample(known.program, seed).program for seed in range(200)]
    assert known.best == pytest.approx(min(machine.predict(draws)))


def test_exhaustive_search_follows_supports_that_depend_on_decisions() -> None:
    def nested(sch: Schedule) -> None:
        _, i, _, _ = sch.get_loops(sch.get_block("matmul"))
        outer, inner = sch.split(i, sch.sample_perfect_tile(i, 2))
        sch.split(inner, sch.sample_perfect_tile(inner, 2))

    known = history(nested)
    found = Exhaustive(known).propose(100, random.Random(0))
    tilings = {(a, b) for a in range(1, 25) for b in range(1, 25) if 24 % (a * b) == 0}
    assert len({c.key for c in found}) == len(tilings)


def test_evolution_beats_random_draws() -> None:
    evolved, drawn = ([searched(make, seed).best for seed in range(3)] for make in (FEW_CHAINS, Replay))
    assert sum(e < d for e, d in zip(evolved, drawn)) >= 2  # type: ignore[operator]


def test_descent_stays_around_the_fastest() -> None:
    known = searched(Replay, seed=0)
    found = Descent(known).propose(4, random.Random(0))
    assert found
    assert {c.sketch for c in found} <= {c.sketch for _, c in known.ranked[:3]}
    tried = {c.key for _, c in known.ranked}
    assert not any(c.key in tried for c in found)


def test_a_space_that_raises_gives_no_candidates_and_is_counted() -> None:
    def bug(sch: Schedule) -> None:
        raise KeyError("oops")

    known = history(bug)
    assert Evolutionary(known).propose(4, random.Random(0)) == []
    assert known.refused == {"KeyError: 'oops'": 1}


def test_a_space_that_raises_sometimes() -> None:
    def picky(sch: Schedule) -> None:
        tiled(sch)
        if sch.rng.random() < 0.5:
            raise ValueError("not this one")

    known = History(small(), as_space(picky), Random())
    known.sketches = as_space(tiled).sketches(small())
    assert len(Replay(known).propose(8, random.Random(0))) == 8
    assert known.refused["ValueError: not this one"] > 0


def test_our_own_mistakes_are_not_hidden() -> None:
    def check(sch: Schedule, target: Target) -> None:
        raise InternalError("impossible")

    known = history(Space([], checks=[check]))
    with pytest.raises(InternalError):
        Replay(known).propose(1, random.Random(0))
