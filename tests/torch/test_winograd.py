"""Winograd's convolutions: right for every shape, and taken where records say that they are faster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule import te  # noqa: E402
from metaschedule.database import Database, Record  # noqa: E402
from metaschedule.schedule import Schedule  # noqa: E402
from metaschedule.space import AutoInline, Space  # noqa: E402
from metaschedule.space.transforms import UnrollTransforms  # noqa: E402
from metaschedule.target import resolve  # noqa: E402
from metaschedule.torch import alternatives  # noqa: E402
from metaschedule.torch.explain import models  # noqa: E402
from metaschedule.torch.lowerings.winograd import F2, F4, Transform, deviation, filtered, transform_for  # noqa: E402
from metaschedule.torch.tasks import tasks  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("transform", [F2, F4])
@pytest.mark.parametrize(
    ("batch", "height", "width", "inputs", "outputs", "padding"),
    [
        (1, 8, 8, 8, 16, (1, 1)),
        (2, 13, 17, 7, 11, (1, 1)),
        (1, 7, 7, 16, 24, (1, 1)),
        (3, 1, 1, 5, 3, (1, 1)),
        (1, 6, 18, 3, 8, (0, 0)),
        (1, 5, 4, 8, 8, (2, 0)),
    ],
)
def test_equals_torch(
    transform: Transform, batch: int, height: int, width: int, inputs: int, outputs: int, padding: Any
) -> None:
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal(shape, "float32")
        for shape in [(batch, height, width, inputs), (3, 3, inputs, outputs)]
    )
    tx, tw = torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(w).permute(3, 2, 0, 1)
    want = torch.conv2d(tx.double(), tw.double(), padding=padding).permute(0, 2, 3, 1).numpy()
    data, weight = te.placeholder(x.shape, name="x"), te.placeholder(w.shape, name="w", constant=True)
    conv = filtered(data, weight, padding, want.shape[1:3], transform)
    program = te.program([data, weight], [conv])
    (sketch,) = Space([AutoInline(), UnrollTransforms()]).sketches(program)
    found = ms.build(sketch.apply(program), constants={"w": w})(x)
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def test_few_results_have_small_tiles() -> None:
    cases = {(1, 1, 1): 2, (1, 4, 4): 2, (1, 7, 7): 2, (8, 7, 7): 4, (1, 14, 14): 4, (1, 56, 56): 4}
    assert {case: transform_for(*case).m for case in cases} == cases


def test_rounding_is_found_out_with_the_weights() -> None:
    weight = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert 0 < deviation(weight, (1, 8, 8, 8)) < 1e-4
    assert deviation(torch.zeros(3, 3, 8, 8), (1, 8, 8, 8)) == 0


class Block(nn.Module):
    """Two equal layers that Winograd's algorithm can do, and others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(8, 8, 1)
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.strided, self.dilated = nn.Conv2d(8, 8, 3, stride=2), nn.Conv2d(8, 8, 3, dilation=2)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2)

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        y = self.first(y).relu() + y
        y = self.second(y).relu() + y
        return self.grouped(y), self.strided(y), self.dilated(y)


MODEL, ARGS = Block().eval(), (torch.randn(1, 8, 10, 10, generator=torch.Generator().manual_seed(1)),)


@pytest.fixture(name="database")
def empty_database(tmp_path: Path) -> Iterator[Database]:
    with ms.database.open(tmp_path / "tuning.db") as database:
        yield database


def record(database: Database, winograd: bool, latency: float) -> None:
    """Hand-written: the loops as written took so long."""
    target = resolve("native").with_cores(torch.get_num_threads())
    for task in tasks(models(MODEL, ARGS)):
        if task.weight == 1 and task.program.name.endswith("winograd") == winograd:
            trace = Schedule(task.program).trace
            database.add_program(task.program)
            database.add(Record.of(task.program, target, trace, "ok", latency=latency))


def kernels(database: Database | None) -> list[str]:
    rows = ms.torch.explain(MODEL, ARGS, database=database).rows
    return [row.name for row in rows if "relu" in row.name]


DIRECT, OTHER = ["conv2d_channels_last_relu_add"], ["conv2d_channels_last_relu_add_winograd"]


def test_what_a_node_can_win_is_counted_once() -> None:
    found = {task.program.name: task.weight for task in tasks(models(MODEL, ARGS))}
    assert {name: found[name] for name in DIRECT + OTHER} == {DIRECT[0]: 1, OTHER[0]: 1}  # of two calls
    assert sum("winograd" in name for name in found) == 1


def test_never_taken_without_records_of_both(database: Database) -> None:
    assert kernels(None) == kernels(database) == DIRECT
    record(database, True, 1e-9)
    assert kernels(database) == DIRECT


@pytest.mark.parametrize(("latency", "taken"), [(1e-4, OTHER), (2e-4, DIRECT), (3e-4, DIRECT)])
def test_the_records_decide(
    latency: float, taken: list[str], database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record(database, False, 2e-4)
    record(database, True, latency)
    assert kernels(database) == taken
    caplog.set_level(logging.INFO)
    model = ms.torch.compile(torch.export.export(MODEL, ARGS), database=database)
    assert (f"{OTHER[0]}: 100.0 us instead of 200.0 us" in caplog.text) == (taken == OTHER)
    assert f"{taken[0]}: record" in caplog.text
    model.save(tmp_path / "model.ms")
    for run in (model, ms.torch.load(tmp_path / "model.ms")):
        torch.testing.assert_close(run(*ARGS), MODEL(*ARGS), rtol=1e-3, atol=1e-4)


def test_not_taken_where_it_rounds_too_much(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record(database, False, 2e-4)
    record(database, True, 1e-4)
    monkeypatch.setattr(alternatives, "TOLERANCE", 0.0)
    caplog.set_level(logging.INFO)
    assert kernels(database) == DIRECT
    assert "not taken: it rounds too much" in caplog.text


@pytest.mark.xdist_group("measuring")
def test_both_are_tuned(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()).eval()
    results = ms.torch.tune(model, ARGS, database=database, trials=4, show=False, strategy="random")
    found = {r.program.name: r.latency for r in results}
    times = [found[name] or 0 for name in ("conv2d_channels_last_relu", "conv2d_channels_last_relu_winograd")]
    assert all(times), found
    caplog.set_level(logging.INFO)
    run = torch.compile(model, backend=ms.torch.backend, options={"database": database})
    with torch.no_grad():
        torch.testing.assert_close(run(*ARGS), model(*ARGS), rtol=1e-3, atol=1e-4)
    assert "no record" not in caplog.text
    assert ("instead of" in caplog.text) == (times[1] < times[0])
