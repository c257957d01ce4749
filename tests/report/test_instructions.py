"""What instructions add: operators without and with each; a model in a precision beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.report.instructions import (
    DTYPES,
    convolution,
    operator_cells,
    operators,
    product,
    spaces_of,
)
from metaschedule.report.spaces import Course, SpacesRow
from metaschedule.target import resolve

VNNI = resolve("x86-64-v4,+avx512vnni,+avx512bf16,cores=2")


def test_spaces_without_and_with_each_instruction() -> None:
    found = spaces_of(product(16, 32, 64, "int8").program, VNNI)
    found = {name: space for name, space in found.items() if name}  # others are of other tests
    assert list(found) == ["without", "vpdpbusd", "vpdpwssd", "vpmaddwd"]
    program = product(16, 32, 64, "int8").program
    for name, space in found.items():
        text = "\n".join(map(str, space.sketches(program)))
        used = {line.split('"')[1] for line in text.splitlines() if "tensorize(" in line}
        assert used == (set() if name == "without" else {f"x86.{name}.512"})


def test_a_target_without_instructions_has_one_space() -> None:
    assert list(spaces_of(product(8, 8, 8, "bfloat16").program, resolve("x86-64-v3"))) == ["without"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_convolutions_are_convolutions(dtype: str) -> None:
    program = convolution(5, 3, 4, 3, dtype).program
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 9, b.shape).astype(ms.ir.numpy_dtype(b.dtype)) for b in program.inputs)
    got = np.asarray(ms.interpret(program, x, w)).astype("float64")
    padded = np.pad(x.astype("float64"), ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))  # i, j, c, p, q
    np.testing.assert_array_equal(got, np.einsum("ijcpq,pqco->ijo", windows, w.astype("float64")))


def test_operators_have_names_of_their_own() -> None:
    names = [one.label for one in operators()]
    assert len(set(names)) == len(names)


def test_cells_show_what_an_instruction_gains() -> None:
    courses = [Course(name, 0, [t], t, 1) for name, t in (("without", 4e-6), ("vpdpbusd", 1e-6))]
    other = [Course(name, 0, [t], t, 1) for name, t in (("without", 3e-6), ("vdpbf16ps", 2e-6))]
    heading, first, second = operator_cells([SpacesRow("a", 1, courses), SpacesRow("b", 1, other)])
    assert heading == ["", "without, us", "vpdpbusd, us", "vdpbf16ps, us"]
    assert first == ["a", "4.000", "1.000 (4.00x)", "-"]
    assert second == ["b", "3.000", "-", "2.000 (1.50x)"]


# Models.


@pytest.fixture
def subjects(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a small model in a precision."""
    torch: Any = pytest.importorskip("torch", reason="torch is optional")
    models: Any = pytest.importorskip("metaschedule.report.contestants.models")
    monkeypatch.setattr("metaschedule.report.rounds.ROUNDS", 1)
    monkeypatch.setattr("metaschedule.report.rounds.ROUND_TIME", 1e-9)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
    model.requires_grad_(False)
    return lambda precision: models.Subject("small", model, (torch.randn(4, 16),), precision)


def test_contestants_that_cannot_take_part_say_why(subjects: Any) -> None:
    from metaschedule.report.contestants.models import OTHERS, Skipped, eager
    from metaschedule.report.rounds import compare_models

    def missing(subject: Any) -> Any:
        raise Skipped("pip install it")

    def broken(subject: Any) -> Any:
        raise RuntimeError("no such layer\nand more")

    def wrong(subject: Any) -> Any:
        return lambda: 2 * eager(subject)()

    contestants = {"eager": eager, "missing": missing, "broken": broken, "wrong": wrong}
    row = compare_models(subjects("bfloat16"), contestants, lambda text: None)
    assert list(row.latencies) == ["eager"]
    assert row.absent.pop("wrong").startswith("it computes something else: results differ by 1")
    assert row.absent == {"missing": "pip install it", "broken": "RuntimeError: no such layer"}
    assert 0 < row.errors["eager"] < 0.05
    with pytest.raises(Skipped, match="not a model of images"):
        OTHERS["channels-last"](subjects("float32"))


def test_ours_takes_part_twice_where_instructions_fit(subjects: Any, tmp_path: Path) -> None:
    from metaschedule.report.contestants.models import eager
    from metaschedule.report.narrow_models import Databases, compare_precisions, model_cells

    paths = Databases.beside(tmp_path / "a.db")
    said: list[str] = []
    todo = [subjects("float32"), subjects("bfloat16")]
    rows = list(compare_precisions(todo, {"eager": eager}, paths, 1, 0, said.append))
    assert list(rows[0].latencies) == ["eager", "ours"]
    assert ("ours, without" in rows[1].latencies) != ("ours, without" in rows[1].absent)
    assert rows[1].tuning["ours"] > 0
    heading, *body = model_cells(rows)
    assert {len(line) for line in body} == {len(heading)}
    assert body[0][heading.index("x our float32")] == "1.00"
    assert any("left" in text for text in said)


def test_quantised_models_are_torchs(subjects: Any) -> None:
    pytest.importorskip("torchao", reason="torchao is optional")
    from metaschedule.report.contestants.models import eager
    from metaschedule.report.rounds import compare_models

    for precision in ("int8-dynamic", "int8-static"):
        row = compare_models(subjects(precision), {"eager": eager}, lambda text: None)
        assert 0 < row.errors["eager"] < 0.1, row.absent
