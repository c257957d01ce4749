"""Kernels chosen in their model: by what it takes with them, kept in the database, and compiled then."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.database import Choice, Record  # noqa: E402
from metaschedule.ir import Program, structural_hash  # noqa: E402
from metaschedule.space.untuned import default_space  # noqa: E402
from metaschedule.target import Target  # noqa: E402
from metaschedule.torch.backend import machine_of  # noqa: E402
from metaschedule.torch.explain import look  # noqa: E402
from metaschedule.torch.kernels import Compiler, name_model  # noqa: E402
from metaschedule.torch.placement import EAGER, UNTUNED, Placement, Rounds, Version  # noqa: E402
from metaschedule.torch.plan import EagerStep  # noqa: E402

nn = torch.nn
Cost = Callable[[str, Any], float]  # of a program by a candidate


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def make_model() -> tuple[Any, tuple[Any, ...]]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8)).eval(), (torch.randn(4, 16),)


def add_records(db: ms.database.Database, program: Program, target: Target, count: int) -> list[Record]:
    """Some that replay, of different candidates, each a little slower alone than the one before."""
    db.add_program(program)
    found: dict[str, Record] = {}
    rng = random.Random(0)
    while len(found) < count:
        sch = default_space(target).sample(program, rng)
        latency = 1e-5 * (1 + 0.001 * len(found))
        record = Record.of(structural_hash(program), target, sch.trace, "ok", latency=latency, confirmed=True)
        found.setdefault(str(record.decisions), record)
    db.add_all(found.values())
    return list(found.values())


class Told(Placement):
    """Takes what it is told for measured: of each program, and of the model as a whole."""

    cost: Cost
    surprise: Callable[[Version], float] = staticmethod(lambda version: 0.0)

    def compare(self, old: Version, new: Version) -> Rounds:
        def times(key: str, version: Version) -> list[float]:
            return [self.cost(key, version[key]) + 1e-9 * n for n in range(8)]

        def whole(version: Version) -> list[float]:
            found = sum(self.cost(key, how) for key, how in version.items())
            return [found + self.surprise(version) + 1e-9 * n for n in range(8)]

        programs = {key: (times(key, old), times(key, new)) for key in self.programs}
        return Rounds(whole(old), whole(new), programs)


@pytest.fixture
def told() -> tuple[Told, dict[str, list[Record]]]:
    model, args = make_model()
    db, target = ms.database.open(None), machine_of("native")
    placement = Told(look(model, args), db, target)
    return placement, {key: add_records(db, p, target, 3) for key, p in placement.programs.items()}


def test_each_program_takes_what_is_fastest_in_the_model(told: Any) -> None:
    placement, records = told
    first, second = records
    fastest = {first: records[first][1].uid, second: UNTUNED}
    placement.cost = lambda key, how: 5e-5 if name_of(how) == fastest[key] else 9e-5
    version = placement.choose()
    assert {key: name_of(how) for key, how in version.items()} == fastest


def test_eager_is_chosen_where_it_is_faster(told: Any) -> None:
    placement, records = told
    first, second = records
    placement.cost = lambda key, how: 5e-5 if how == EAGER and key == first else 9e-5
    assert {key: name_of(how) for key, how in placement.choose().items()} == {first: EAGER, second: UNTUNED}


def test_where_the_model_disagrees_changes_are_tried_one_by_one(told: Any) -> None:
    """The second program's record seems faster, and makes the model slower."""
    placement, records = told
    first, second = records
    placement.cost = lambda key, how: 5e-5 if isinstance(how, Record) and how in records[key][:1] else 9e-5
    placement.surprise = lambda version: 0.0 if version[second] == UNTUNED else 1e-3
    version = placement.choose()
    assert name_of(version[first]) == records[first][0].uid
    assert version[second] == UNTUNED


def test_the_untuned_model_is_kept_where_it_is_faster(told: Any) -> None:
    placement, _ = told
    placement.cost = lambda key, how: 9e-5 if how == UNTUNED else 5e-5
    placement.by_turns = lambda version, changes, *_: {**version, **changes}
    placement.surprise = lambda version: 0.0 if set(version.values()) == {UNTUNED} else 1e-3
    assert set(placement.choose().values()) == {UNTUNED}


def name_of(how: Any) -> str:
    return how if isinstance(how, str) else how.uid


def choices_of(parts: Sequence[Any], target: Target, how: str, record: str = "") -> list[Choice]:
    model = name_model(parts)
    return [Choice(structural_hash(p), target.key, model, how, record) for p in parts]


def test_what_is_chosen_is_compiled(tmp_path: Path) -> None:
    model, args = make_model()
    programs = list(look(model, args)[0].parts.programs.values())
    target = machine_of("native")
    with ms.database.open(tmp_path / "t.db") as db:
        records = [add_records(db, program, target, 2) for program in programs]
        compiler = Compiler(target, db, name_model(programs))
        assert compiler.find_record(programs[0]) == records[0][0]  # the fastest alone
        db.choose(choices_of(programs[:1], target, "record", records[0][1].uid))
        assert compiler.find_record(programs[0]) == records[0][1]  # of another model, but known
        db.choose(choices_of(programs, target, "untuned"))
        assert compiler.find_record(programs[0]) is None
        assert Compiler(target, db, name_model(programs[:1])).find_record(programs[0]) == records[0][1]


def test_what_eager_does_faster_runs_in_eager_and_explain_says_so(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            y = torch.softmax(self.first(x).view(2, 2, 16), -1)
            return self.second(y.transpose(0, 1).reshape(4, 16)) + x, y

    torch.manual_seed(0)
    model, args = Model().eval(), (torch.randn(4, 16),)
    programs = list(look(model, args)[0].parts.programs.values())
    with ms.database.open(tmp_path / "t.db") as db:
        for program in programs:
            db.add_program(program)
        db.choose(choices_of(programs, machine_of("native"), "eager"))
    rows = ms.torch.explain(model, args, database=tmp_path / "t.db").rows
    assert rows
    assert all("eager is faster" in row.eager for row in rows)
    run = ms.torch.optimize(model, args, database=tmp_path / "t.db", strict=True)  # the same programs
    assert all(isinstance(step, EagerStep) for step in run.plan.steps)
    compiled = torch.compile(
        model, backend="metaschedule", options={"database": tmp_path / "t.db", "strict": True}
    )
    with torch.no_grad():
        torch.testing.assert_close(run(*args), model(*args))
        torch.testing.assert_close(compiled(*args), model(*args))


def test_a_model_is_tuned_and_placed(tmp_path: Path) -> None:
    model, args = make_model()
    ms.torch.tune(model, args, database=tmp_path / "t.db", trials=4, show=False)
    programs = look(model, args)[0].parts.programs.values()
    with ms.database.open(tmp_path / "t.db", readonly=True) as db:
        choices = db.choices(machine_of("native"), name_model(programs))
    assert {choice.workload for choice in choices} == {structural_hash(p) for p in programs}
    assert all(choice.seconds for choice in choices)
    run = ms.torch.optimize(model, args, database=tmp_path / "t.db")
    with torch.no_grad():
        torch.testing.assert_close(run(*args), model(*args), rtol=1e-4, atol=1e-5)
