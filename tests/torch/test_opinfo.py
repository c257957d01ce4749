"""PyTorch's own samples of its operators give what eager gives: a seeded share, all in the long run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="OpInfo imports it")
opinfo: Any = pytest.importorskip("tests.torch.opinfo")

SHARE = 0.1  # of all operators and dtypes, one sample each


def check(verdicts: Mapping[Any, Any]) -> None:
    print(opinfo.shown(verdicts))
    failed = {case: v for case, v in verdicts.items() if v.kind in ("wrong", "raised", "crashed")}
    told = "\n".join(f"{verdict.kind}: {case}: {verdict.detail}" for case, verdict in failed.items())
    assert not failed, f"{len(failed)} of {len(verdicts)}\n{told}"


@pytest.mark.parametrize("dtype", opinfo.DTYPES)
def test_a_share_of_the_samples_agrees_with_eager(dtype: str) -> None:
    drawn = opinfo.drawn_cases([dtype], SHARE)
    check({case: opinfo.judge(case, opinfo.directly) for case in drawn})


def test_through_dynamo() -> None:
    drawn = opinfo.drawn_cases(opinfo.DTYPES, 0.003)
    check({case: opinfo.judge(case, opinfo.through_dynamo) for case in drawn})


@pytest.mark.slow
@pytest.mark.parametrize("dtype", opinfo.DTYPES)
def test_all_samples_agree_with_eager(dtype: str) -> None:
    check(opinfo.survey(opinfo.cases([dtype]), "dynamo"))


@pytest.mark.slow
def test_few_samples_are_partly_in_eager() -> None:
    """What eager still computes are factorisations, Fourier transforms, random numbers and rarities."""
    row = opinfo.counted(opinfo.survey(opinfo.cases(["float32"], samples=2), "capture"))["float32"]
    assert row["partly eager"] + row["wholly eager"] < 200
