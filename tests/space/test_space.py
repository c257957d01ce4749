"""Composition: spaces out of modules, rules for some blocks, functions as spaces."""

from __future__ import annotations

import random

import pytest

import metaschedule as ms
from metaschedule.schedule import BlockRV, Schedule
from metaschedule.space import AutoInline, For, MultiLevelTiling, Space, default
from metaschedule.target import Target
from tests.space.candidates import assert_candidate


def small() -> ms.Program:
    return ms.workloads.create("GMM", b=1, n=13, m=24, k=7)


def parallel_rows(sch: Schedule, block: BlockRV) -> None:
    sch.parallel(sch.get_loops(block)[1])


def is_reduction(block: ms.ir.Block) -> bool:
    return bool(block.init)


def test_modules_are_added_before_the_others_and_taken_away_by_name() -> None:
    space = default("x86-64-v3,cores=2")
    names = [type(m).__name__ for m in space.modules]
    grown = space + For("matmul", parallel_rows)
    assert [type(m).__name__ for m in grown.modules] == ["For", *names]
    assert [type(m).__name__ for m in (space - "AutoInline").modules] == [
        n for n in names if n != "AutoInline"
    ]
    other = MultiLevelTiling("SRS")
    assert other in space.replace("MultiLevelTiling", other).modules
    with pytest.raises(ValueError, match="the space has no 'AutoTile'; it has ApplyCustomRule, "):
        _ = space - "AutoTile"


def test_spaces_compare_and_print() -> None:
    space = default("x86-64-v3,cores=2")
    assert space == default("x86-64-v3,cores=2")
    assert hash(space) == hash(default("x86-64-v3,cores=2"))
    assert space != default("x86-64-v3,cores=4")
    assert space != space - "AutoInline"
    assert space != space.replace("AutoInline", AutoInline(into_producer=True))
    assert "module MultiLevelTiling(structure='SSRSRS'" in repr(space)
    assert (space - "AutoInline").name == "cpu - AutoInline"


@pytest.mark.parametrize("blocks", ["matmul", is_reduction], ids=["name", "predicate"])
def test_own_schedule_for_one_block(blocks: object) -> None:
    program = small()
    space = default() + For(blocks, parallel_rows)  # type: ignore[arg-type]
    (sketch,) = space.sketches(program)
    assert not sketch.decisions
    sch = space.sample(program, 0)
    assert sch.get(sch.get_block("matmul")).annotations["module"] == "parallel_rows"
    assert_candidate(sch, program)


def test_rule_by_annotation() -> None:
    program = small()
    asked = Schedule(program)
    asked.annotate(asked.get_block("matmul"), "schedule_rule", "rows")
    space = default().replace("ApplyCustomRule", ms.space.ApplyCustomRule({"rows": parallel_rows}))
    assert len(space.sketches(program)) > 1
    assert len(space.sketches(asked.program)) == 1
    with pytest.raises(ValueError, match="asks for the rule 'rows', and there is none: known are none"):
        default().sketches(asked.program)


def test_module_that_forks_and_one_that_fails() -> None:
    def fork(sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        other = sch.fork()
        parallel_rows(other, block)
        return [sch, other]

    def fail(sch: Schedule, block: BlockRV, target: Target) -> list[Schedule]:
        sch.parallel(sch.get_loops(block)[3])
        return [sch]

    program = small()
    space = Space([fork, fail], name="both")
    sketches, refused = space.explore(program)
    assert [len(s) for s in sketches] == [0, 3]
    ((who, why), times) = next(iter(refused.items()))
    assert (who, times) == ("fail", 2)
    assert "may depend on each other" in why


def test_function_is_a_space() -> None:
    def tiles(sch: Schedule) -> None:
        block = sch.get_block("matmul")
        _, i, j, k = sch.get_loops(block)
        i0, i1 = sch.split(i, sch.sample_tile(i, 2, 8))
        if sch.rng.random() < 0.5:
            sch.reorder(i0, k, i1, j)

    program = small()
    space = ms.space.as_space(tiles)
    assert space.name == "tiles"
    drawn = {len(space.sample(program, seed).trace) for seed in range(16)}
    assert len(drawn) == 2  # with the reordering and without
    assert {len(s) for s in space.sketches(program)} == drawn
    assert_candidate(space.sample(program, 3), program)
    assert ms.space.as_space(space) is space
    with pytest.raises(TypeError, match="space must be a Space, a function that takes a schedule"):
        ms.space.as_space(3)  # type: ignore[arg-type]


def test_same_seed_same_candidate() -> None:
    program = ms.workloads.create("C2D", n=1, h=9, w=9, ci=3, co=16, k=3, s=1, p=1)
    draws = [default().sample(program, random.Random(7)).trace for _ in range(2)]
    assert draws[0] == draws[1]
    assert default().sample(program, 8).trace != draws[0]


def test_no_candidate_says_why() -> None:
    def refuse(sch: Schedule, target: Target) -> None:
        raise ms.ScheduleError("not today")

    space = Space([], checks=[refuse], name="none")
    with pytest.raises(ms.ScheduleError, match="no valid candidate in 64 draws") as error:
        space.sample(small(), 0)
    assert "not today" in error.value.help
