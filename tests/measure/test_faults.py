"""Whatever a candidate does is recorded as what it is, and the others are measured."""

from __future__ import annotations

import pytest

from metaschedule.measure import Limits, Measurer, Outcome, Workers
from tests.measure import faulty_kernels as faulty

EXPECTED = {
    "DIVIDES_BY_ZERO": ("crash", "SIGFPE"),
    "SEGFAULTS": ("crash", "SIGSEGV"),
    "WRITES_PAST_THE_OUTPUT": ("crash", "SIGSEGV"),
    "READS_PAST_AN_INPUT": ("crash", "SIGSEGV"),
    "WRITES_TO_AN_INPUT": ("crash", "SIGSEGV"),
    "EXITS": ("crash", "exited with status 0"),
    "KILLS_ITSELF": ("crash", "SIGKILL"),
    "GARBLES_ITS_PIPES": ("crash", ""),
    "LOOPS_FOR_EVER": ("timeout", "not finished after 1 s"),
    "NEEDS_100_GB": ("out of memory", "workspace"),
    "SUBTRACTS": ("wrong result", "1000 of 1000 elements"),
    "LACKS_THE_LAST": ("wrong result", "C[999] is nan"),
    "WRONG_BY_TURNS": ("wrong result", "1 of 1000 elements"),
    "RIGHT_AT_FIRST": ("wrong result", "1 of 1000 elements"),
    "IS_NO_LLVM": ("build error", "expected instruction opcode"),
    "NEEDS_A_SYMBOL": ("build error", "no_such_function"),
    "PRINTS": ("ok", ""),
    "PRINTS_ERRORS": ("ok", ""),
    "GOOD": ("ok", ""),
}


@pytest.fixture(scope="module")
def outcomes(place: Workers) -> dict[str, Outcome]:
    """All in one batch, so that each runs after another's fault."""
    limits = Limits(run_seconds=1.0, memory=1 << 30)
    with Measurer(faulty.program(), limits=limits, workers=place) as m:
        results = m.measure([getattr(faulty, name) for name in EXPECTED])
    return dict(zip(EXPECTED, results, strict=True))


@pytest.mark.parametrize("name", EXPECTED)
def test_recorded_as_what_it_is(outcomes: dict[str, Outcome], name: str) -> None:
    kind, words = EXPECTED[name]
    found = outcomes[name]
    assert found.kind == kind, found.detail
    assert words in found.detail
    assert "\n" not in found.detail
    assert (found.latency is None) == (kind != "ok")


@pytest.mark.parametrize(
    ("limits", "kind"), [(Limits(memory=64 << 20), "out of memory"), (Limits(build_seconds=0.5), "timeout")]
)
def test_building_has_limits_too(place: Workers, limits: Limits, kind: str) -> None:
    with Measurer(faulty.program(), limits=limits, workers=place) as m:
        long, good = m.measure([faulty.long_to_build(30_000), faulty.GOOD])
    assert long.kind == kind, long.detail
    assert good.ok, good.detail
