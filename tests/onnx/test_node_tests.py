"""ONNX's own tests of nodes: all of them translated, a seeded share compiled; with `--long` all of those of
float32 in the standard domain. The shares and what is refused are printed (`pytest -rP`)."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

from tests.onnx.node_tests import PASSED, REFUSED, cases, is_float32, run_case

LEAST = 1660  # of 1,884 in onnx 1.23
COMPILED = 12
LEAST_SHARE = 0.8  # of the cases of float32 in the standard domain


@pytest.mark.filterwarnings("ignore")
def test_every_case_passes_or_is_refused() -> None:
    outcomes = {name: run_case(case, compiled=False) for name, case in cases().items()}
    bad = {name: said for name, said in outcomes.items() if said[0] not in (PASSED, REFUSED)}
    passed = sum(outcome == PASSED for outcome, _ in outcomes.values())
    print(f"{passed} of {len(outcomes)} node tests pass")
    print("\n".join(f"{name}: {said}" for name, (outcome, said) in outcomes.items() if outcome == REFUSED))
    assert not bad
    assert passed >= LEAST
    check_share({name: said for name, said in outcomes.items() if is_float32(cases()[name])})


def check_share(outcomes: dict[str, tuple[str, str]]) -> None:
    passed = sum(outcome == PASSED for outcome, _ in outcomes.values())
    print(f"{passed} of {len(outcomes)} of float32 in the standard domain: {passed / len(outcomes):.1%}")
    assert passed >= LEAST_SHARE * len(outcomes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_cases_of_float32_compiled() -> None:
    outcomes = {n: run_case(case, compiled=True) for n, case in cases().items() if is_float32(case)}
    print("\n".join(f"{name}: {said}" for name, (outcome, said) in outcomes.items() if outcome != PASSED))
    assert not [name for name, (outcome, _) in outcomes.items() if outcome not in (PASSED, REFUSED)]
    check_share(outcomes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(COMPILED))
def test_a_case_compiled(number: int) -> None:
    name = random.Random(0).sample(sorted(cases()), COMPILED)[number]  # not while tests are collected: slow
    outcome, said = run_case(cases()[name], compiled=True)
    assert outcome in (PASSED, REFUSED), f"{name}: {said}"
