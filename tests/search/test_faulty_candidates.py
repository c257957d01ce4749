"""A space whose candidates fail: all that they do is recorded, and none of them wins."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import ir
from metaschedule.measure import Limits, Measurer, Outcome
from metaschedule.schedule import BlockRV, ExprRV, Schedule
from metaschedule.schedule.primitive.base import Primitive, primitive
from metaschedule.schedule.state import State
from metaschedule.search import best_schedule
from metaschedule.target import resolve
from tests.search.examples import small
from tests.search.runners import Synthetic

FAULTS = ("ok", "wrong result", "crash", "timeout")


@primitive("test_sabotage")
class Sabotage(Primitive):
    """Make a block do what its outcome is called after."""

    block: BlockRV
    fault: ExprRV | int

    def check(self, s: State) -> ir.Block:
        return s.block(self.block)

    def apply(self, s: State, plan: ir.Block) -> tuple[Any, ...]:
        fault = FAULTS[s.number(self.fault)]
        (store,) = plan.body
        assert isinstance(store, ir.Store)
        if fault == "wrong result":
            s.update(plan.name, body=(ir.replace_fields(store, value=store.value + 1.0),))
        elif fault == "crash":
            *outer, last = store.indices
            s.update(plan.name, body=(ir.replace_fields(store, indices=(*outer, last + (1 << 40))),))
        elif fault == "timeout":
            s.update(plan.name, body=(ir.While(ir.const(True), (store,)),))
        return ()


def sabotaged(sch: Schedule) -> None:
    block = sch.get_block("matmul")
    sch.run(Sabotage(block, sch.sample_categorical([0, 1, 2, 3], [0.25] * 4)))


def broken(sch: Schedule) -> None:
    block = sch.get_block("matmul")
    _, i, _, _ = sch.get_loops(block)
    sch.split(i, sch.sample_perfect_tile(i, 2))
    sch.run(Sabotage(block, 1))


def test_every_fault_is_recorded_and_the_rest_wins() -> None:
    # Checked, an index out of range would be a wrong result and no crash.
    measurer = partial(Measurer, limits=Limits(run_seconds=1.0), bounds="unchecked")
    result = ms.tune(small(), trials=8, space=sabotaged, measurer=measurer)
    assert {r.decisions: r.outcome for r in result.records} == {f"[{n}]": f for n, f in enumerate(FAULTS)}
    assert all((r.latency is None) == (r.outcome != "ok") for r in result.records)
    assert list(result.trace.decisions.values()) == [0]
    assert result.best is not None
    assert result.best.confirmed
    assert "there are no more candidates" in result.stopped


def test_if_everything_fails_the_loops_as_written_remain() -> None:
    result = ms.tune(small(), trials=4, space=broken)
    assert result.outcomes == {"wrong result": 4}
    assert result.latency is None
    assert len(result.trace) == 0
    assert "no candidate works, so the loops as written (4 wrong result)" in str(result)
    x, y = np.ones((1, 24, 16), "float32"), np.ones((1, 16, 16), "float32")
    assert (result.build()(x, y) == 16).all()


def test_a_leader_that_fails_when_confirmed_does_not_win() -> None:
    failed: list[str] = []  # others may be as fast as the leader, so it is known by its program

    class Flaky(Synthetic):
        """The fastest works but once."""

        def confirm(self, candidates: Any) -> list[Outcome]:
            failed.append(ms.structural_hash(candidates[0]))
            _, *others = super().confirm(candidates)
            return [Outcome("wrong result", detail="1 of 384 elements"), *others]

    with ms.database.open(None) as db:
        result = ms.tune(small(), trials=8, database=db, measurer=Flaky)
        assert result.best is not None
        assert result.best.confirmed
        assert result.best.trace is not None
        assert ms.structural_hash(result.best.trace.apply(result.program).program) not in failed[:1]
        assert failed
        found = best_schedule(db, result.program, resolve())
    assert found is not None
    assert found.trace == result.trace


@pytest.mark.parametrize("error", [KeyError, ZeroDivisionError])
def test_a_module_with_a_bug_does_not_end_the_run(error: type[Exception]) -> None:
    def bug(sch: Schedule, block: BlockRV, target: object) -> list[Schedule]:
        raise error("oops")

    result = ms.tune(small(), trials=4, space=ms.space.Space([bug]), measurer=Synthetic)
    assert result.records == []
    assert error.__name__ in result.stopped
    assert result.build() is not None
