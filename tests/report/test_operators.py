"""The comparison: which cases there are, what a row says, and that contestants must agree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from metaschedule import build
from metaschedule.report.case import Case, cases
from metaschedule.report.contestants import Variant
from metaschedule.report.operators import OperatorRow, Time, compare_all, geometric_means
from metaschedule.report.table import cells, in_markdown
from metaschedule.target import resolve


def test_cases_of_all_configurations() -> None:
    assert [case.label for case in cases(["TBG"], "all")] == ["TBG", "TBG 1", "TBG 2", "TBG 3"]


def test_weights_that_are_constant_are_no_arguments() -> None:
    (case,) = cases(["CBR", "SFM"], constant=True)  # a softmax has no weights
    assert list(case.weights) == ["W", "bias", "bn_scale", "bn_offset"]
    assert [a.shape for a in case.arguments] == [(1, 224, 224, 3)]
    (case,) = cases(["C1D"])
    assert not case.weights
    assert len(case.arguments) == 2


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaschedule.report.operators.ROUNDS", 1)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("GEMM", "0", "no workload 'GEMM'"),
        ("GMM", "9", "GMM has configurations 0 to 4, got 9"),
        ("GMM", "first", "a number or all, not 'first'"),
        ("GMM:n=x", "0", "n needs a number"),
    ],
)
def test_cases_that_are_not_there(name: str, config: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cases([name], config)


def row(name: str, python: dict[str, float], native: dict[str, float]) -> OperatorRow:
    (case,) = cases([name])
    times = [{who: Time(seconds, "") for who, seconds in found.items()} for found in (python, native)]
    return OperatorRow(case, *times, peak=100.0, tuning={})


def test_ratios_compare_times_of_the_same_kind() -> None:
    rows = [
        row("GMM", {"ours": 2.0, "torch": 6.0}, {"ours": 1.0, "tvm": 2.0}),
        row("SFM", {"ours": 4.0, "torch": 3.0}, {"ours": 3.0, "tvm": 24.0}),
    ]
    assert rows[0].ratio("torch") == 3.0
    assert rows[0].ratio("tvm") == 2.0
    assert geometric_means(rows) == pytest.approx({"torch": 1.5, "tvm": 4.0})
    assert rows[0].bandwidth is None  # 21 operations a byte
    assert rows[1].bandwidth == pytest.approx(2 * 4 * 256 * 256 / 3 / 1e9)


def test_tables_have_a_cell_for_every_column() -> None:
    rows = [
        row("GMM", {"ours": 2e-6, "torch": 6e-6}, {"ours": 1e-6}),
        row("SFM", {"ours": 4e-6}, {"ours": 3e-6, "tvm": 24e-6}),
    ]
    heading, *body = cells(rows)
    assert {len(line) for line in body} == {len(heading)}
    assert body[0][heading.index("x torch")] == "3.00"
    assert body[0][heading.index("x tvm")] == "-"
    lines = in_markdown([rows]).splitlines()
    assert {line.count("|") for line in lines if line.startswith("|")} == {len(heading) + 1}


class Fake:
    """Takes twice our time and returns our result plus an error."""

    name = "fake"

    def __init__(self, error: float) -> None:
        self.error = np.float32(error)
        self.prepared: list[str] = []

    def prepare(self, case: Case) -> float:
        self.prepared.append(case.label)
        return 7.0

    def variants(self, case: Case) -> Iterator[Variant]:
        result = build(case.program)(*case.arguments)
        yield Variant(self.name, "slow", True, lambda: 3.0, lambda: result + self.error)
        yield Variant(self.name, "fast", True, lambda: 2.0, lambda: result + self.error)

    def close(self) -> None:
        pass


class Us(Fake):
    name = "ours"

    def variants(self, case: Case) -> Iterator[Variant]:
        for variant in super().variants(case):
            yield Variant("ours", "", variant.native, lambda: 1.0, variant.output)


def test_the_fastest_way_of_a_contestant_counts() -> None:
    fake = Fake(0)
    groups = [cases(["GMM:n=8,m=8,k=8", "SFM"])]
    ((first, _),), failures = compare_all(groups, [Us(0), fake], resolve("native"), lambda text: None)
    assert not failures
    assert fake.prepared == ["GMM:n=8,m=8,k=8", "SFM"]
    assert first.native["fake"] == Time(2.0, "fast")
    assert first.ratio("fake") == 2.0
    assert first.tuning == {"ours": 7.0, "fake": 7.0}
    assert first.as_data()["ratios"] == {"fake": 2.0}


def test_where_a_contestant_computes_something_else_its_time_is_left_out() -> None:
    groups = [cases(["GMM:n=8,m=8,k=8", "NRM"])]
    (rows,), failures = compare_all(groups, [Us(0), Fake(1)], resolve("native"), lambda text: None)
    assert not rows
    assert len(failures) == 2
    assert "fake (slow) computes something else than we do: matmul[" in failures[0]
