"""Convolutions of models by Winograd's filtering: one program, whose space has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.database import Database, Record  # noqa: E402
from metaschedule.space import default  # noqa: E402
from metaschedule.target import resolve  # noqa: E402
from metaschedule.torch.explain import models  # noqa: E402
from metaschedule.torch.tasks import tasks  # noqa: E402

nn = torch.nn


class Block(nn.Module):
    """Two equal layers that can be filtered so, and others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(8, 64, 1)
        self.first, self.second = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
        self.strided = nn.Conv2d(64, 64, 3, stride=2)

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        y = self.first(y).relu() + y
        y = self.second(y).relu() + y
        return self.strided(y)


MODEL, ARGS = Block().eval(), (torch.randn(1, 8, 10, 10, generator=torch.Generator().manual_seed(1)),)
NAME = "conv2d_channels_last_relu_add"


@pytest.fixture(name="database")
def empty_database(tmp_path: Path) -> Iterator[Database]:
    with ms.database.open(tmp_path / "tuning.db") as database:
        yield database


def filters(trace: ms.Trace) -> int:
    return [i.primitive.op for i in trace.instructions].count("winograd")


def test_a_convolution_is_one_program() -> None:
    found = {task.program.name: task.weight for task in tasks(models(MODEL, ARGS))}
    assert {name: weight for name, weight in found.items() if "relu" in name} == {NAME: 2}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_best_record_is_taken(count: int, database: Database, tmp_path: Path) -> None:
    """Directly, filtered along one dimension or along two."""
    (program,) = [task.program for task in tasks(models(MODEL, ARGS)) if task.program.name == NAME]
    target = resolve("native").with_cores(torch.get_num_threads())
    sketch = next(s for s in default(target).sketches(program) if filters(s) == count)
    database.add_program(program)
    database.add(Record.of(program, target, sketch, "ok", latency=1e-9))
    compiled = ms.torch.compile(torch.export.export(MODEL, ARGS), database=database)
    compiled.save(tmp_path / "model.ms")
    for run in (compiled, ms.torch.load(tmp_path / "model.ms")):
        torch.testing.assert_close(run(*ARGS), MODEL(*ARGS), rtol=1e-3, atol=1e-4)
    rows = {row.name: row.latency for row in ms.torch.explain(MODEL, ARGS, database=database).rows}
    assert rows[NAME] == 1e-9
