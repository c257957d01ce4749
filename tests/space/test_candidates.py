"""Candidates of the default space: what they are made of, and that they compute what is meant."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.codegen.lower import steps as lowering_steps
from metaschedule.errors import ScheduleError
from metaschedule.ir import For, Program, blocks, walk
from metaschedule.space import default
from tests.conftest import LONG
from tests.space.candidates import assert_candidate, is_buildable, random_inputs
from tests.workloads.references import REFERENCES

SMALL = {  # prime, one, odd and non-dividing sizes
    "GMM": [{"b": 2, "n": 13, "m": 17, "k": 7}, {"b": 1, "n": 1, "m": 33, "k": 5},
            {"b": 1, "n": 7, "m": 1, "k": 3}],
    "C1D": [{"n": 1, "l": 19, "ci": 3, "co": 10, "k": 3, "s": 2, "p": 1}],
    "C2D": [{"n": 1, "h": 11, "w": 9, "ci": 3, "co": 18, "k": 3, "s": 2, "p": 1},
            {"n": 2, "h": 5, "w": 7, "ci": 1, "co": 8, "k": 1, "s": 1, "p": 0}],
    "C3D": [{"n": 1, "d": 4, "h": 5, "w": 5, "ci": 2, "co": 9, "k": 3, "s": 1, "p": 1}],
    "DEP": [{"n": 1, "h": 9, "w": 11, "c": 13, "k": 3, "s": 1, "p": 1}],
    "DIL": [{"n": 1, "h": 13, "w": 13, "ci": 2, "co": 11, "k": 3, "s": 1, "p": 2, "dilation": 2}],
    "GRP": [{"n": 1, "h": 7, "w": 7, "ci": 8, "co": 12, "k": 3, "s": 1, "p": 1, "groups": 4}],
    "T2D": [{"n": 1, "h": 3, "w": 4, "ci": 5, "co": 9, "k": 4, "s": 2, "p": 1},
            {"n": 1, "h": 3, "w": 4, "ci": 5, "co": 9, "k": 5, "s": 2, "p": 2}],
    "CBR": [{"n": 1, "h": 9, "w": 9, "ci": 3, "co": 10, "k": 3, "s": 2, "p": 1}],
    "TBG": [{"b": 1, "s": 11, "h": 3, "d": 5}],
    "NRM": [{"b": 3, "m": 7, "n": 13}, {"b": 1, "m": 109, "n": 11}],
    "SFM": [{"shape": (5, 23)}, {"shape": (1, 1)}, {"shape": (401,)}],
    "CAP": [{"n": 1, "h": 5, "w": 5, "ci": 3, "co": 4, "k": 3, "s": 1, "p": 1, "cap": 2}],
    "FDENSE": [{"m": 7, "n": 19, "k": 11}],
}  # fmt: skip
CASES = [(name, config) for name, configs in SMALL.items() for config in configs]


@pytest.mark.parametrize(("name", "config"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_every_sketch_of_small_programs(name: str, config: dict[str, Any]) -> None:
    program = ms.workloads.create(name, **config)
    space = default()
    rng = random.Random(0)
    for sketch in space.sketches(program):
        for _ in range(4 if LONG["long"] else 1):
            sch = sketch.apply(program, rng=rng)
            if is_buildable(space, sch):
                assert_candidate(sch, program)


@pytest.mark.parametrize("name", ["GMM", "DEP", "C1D", "SFM", "NRM"])
def test_lowering_keeps_the_vectors_of_a_schedule(name: str) -> None:
    """A schedule has proved that lanes may run together: no pass comes to another answer."""
    program, space, rng = ms.workloads.create(name, **SMALL[name][0]), default("x86-64-v3"), random.Random(0)
    for sketch in space.sketches(program):
        steps = dict(lowering_steps(sketch.apply(program, rng=rng).program))
        before, after = [count_vectorized(steps[n]) for n in ("compact_buffers", "serialize_loops")]
        assert before == after, f"{steps['compact_buffers']}"


def count_vectorized(program: Program) -> int:
    """The vectorised loops that are in no other one."""
    found = [
        s for s in walk(program) if isinstance(s, For) and s.kind == "vectorized" and s.fixed_extent != 1
    ]
    inner = {t for s in found for t in walk(s.body)}
    return sum(s not in inner for s in found)


CONFIGURATIONS = [
    (name, n) for name in ms.workloads.names() for n in range(len(ms.workloads.configurations(name)))
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), CONFIGURATIONS)
def test_many_candidates(name: str, number: int) -> None:
    """200 draws of each configuration: all build, all are right; fewer than a fifth is rejected."""
    space, program, rng = default(), ms.workloads.create(name, number), random.Random(number)
    sketches, rejected = space.sketches(program), Counter[str]()
    config = dict(ms.workloads.configurations(name)[number])
    exact = REFERENCES[name](config, *[x.astype("float64") for x in random_inputs(program)])
    for _ in range(200):
        try:
            sch = rng.choice(sketches).apply(program, rng=rng)
            space.check(sch)
        except ScheduleError as error:
            rejected[error.message] += 1
            continue
        assert_candidate(sch, program, exact=exact)
    print(f"{name} {number}: {len(sketches)} sketches, {rejected.total()} rejected {dict(rejected)}")
    assert rejected.total() < 40


def test_groups_narrower_than_a_vector_have_vectors_of_their_own() -> None:
    program = ms.workloads.create("GRP", h=7, w=7, ci=16, co=16, groups=4, s=1)
    (sch,) = [trace.apply(program) for trace in default("x86-64-v3,cores=2").sketches(program)[:1]]
    (update,) = [b for b in blocks(sch.program) if b.init == () and "skip_zeros" in b.annotations]
    columns = sch.state.nodes[sch.state.loops_around(update.name)[-1]]
    assert (columns.kind, columns.fixed_extent) == ("vectorized", 4)
