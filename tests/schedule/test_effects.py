"""Who uses a buffer is known from the nodes that changed: the same as a walk through the program finds."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from metaschedule import te
from metaschedule.schedule import Schedule
from metaschedule.schedule.analysis.effects import (
    Effect,
    effects_of,
    place_of,
    readers,
    touch,
    users,
    writers,
)
from metaschedule.schedule.state import MANY, ROOT, Key, State, is_plain_loop
from tests.schedule.random_steps import programs, step

PROGRAMS = programs()


def keys_in_order(s: State, top: Key = ROOT) -> list[Key]:
    return [key for child in s.children[top] for key in (child, *keys_in_order(s, child))]


def compare_with_walk(s: State) -> None:
    keys = [key for key in keys_in_order(s) if not is_plain_loop(s.nodes[key])]
    every = [effect for key in keys for effect in effects_of(s, key)]
    places = [place_of(s, effect) for effect in every]
    assert places == sorted(places)
    touched = {key: touch(s.nodes[key]) for key in keys}
    for buffer in {b for t in touched.values() for b in (*t.reads, *t.writes, *t.loaded)}:
        assert users(s, buffer) == {key for key, t in touched.items() if t.uses(buffer)}
        assert described(writers(s, {buffer})) == described([e for e in every if buffer in e.writes])
        assert described(readers(s, {buffer})) == described([e for e in every if buffer in e.reads])


def described(effects: list[Effect]) -> list[tuple[Key, bool]]:
    return [(effect.key, effect.outside) for effect in effects]


@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 2**32))
def test_users_are_those_of_the_whole_program(name: str, seed: int) -> None:
    rng = random.Random(seed)
    sch = Schedule(PROGRAMS[name]()[0], seed=seed)
    for _ in range(8):
        before = sch
        sch = step(sch, rng, Counter())
        if rng.random() < 0.7:  # else several steps at once
            compare_with_walk(sch.state)
            compare_with_walk(before.state)
    compare_with_walk(sch.state)


def test_numbers_among_siblings_follow_every_edit() -> None:
    """Of many children they are kept, and forks share them."""
    x = te.placeholder((4,), name="x")
    made = [te.compute((4,), lambda i, n=n: x[i] + float(n), name=f"y{n}") for n in range(2 * MANY)]
    sch = Schedule(te.program([x], made))
    fork = sch.fork()
    for n in range(3):
        for state in (sch.state, fork.state):
            children = state.children[ROOT]
            numbers = [state.number_among_siblings(child, ROOT) for child in children]
            assert numbers == list(range(2 * MANY))
        sch.split(sch.get_loops(sch.get_block(f"y{n}"))[0], [2, 2])
