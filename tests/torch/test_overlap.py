"""Graphs that write to memory which several of their arguments share, in the same and in other ways."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule.torch  # noqa: E402, F401
from metaschedule.torch.fallback import NotCaptured  # noqa: E402

WAYS: dict[str, Any] = {  # where two arguments of 4 by 5 lie, given a buffer of 10 by 5
    "apart": lambda b: (b[:4], torch.ones(4, 5)),
    "beside": lambda b: (b[:4], b[4:8]),
    "further beside": lambda b: (b[1:5], b[6:10]),
    "over": lambda b: (b[:4], b[2:6]),
    "over further on": lambda b: (b[1:5], b[3:7]),
    "over from behind": lambda b: (b[2:6], b[:4]),
    "other rows": lambda b: (b.view(5, 10)[:4, :5], b.view(5, 10)[:4, 5:]),
    "all of it": lambda b: (b[:4], b.view(50)[:20].view(4, 5)),
    "by NumPy": lambda b: (b[:4], torch.from_numpy(b.numpy())[1:5]),
}


def writes(x: Any, y: Any) -> Any:
    x.add_(1)
    return y * 2, x * 3


def writes_both(x: Any, y: Any) -> Any:
    x[:2].mul_(2)
    y.add_(1)
    return x.sum(0), x + y


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def assert_as_eager(model: Any, run: Any, way: str) -> None:
    given, expected = (torch.arange(50.0).view(10, 5) for _ in range(2))
    for found, wanted in zip(run(*WAYS[way](given)), model(*WAYS[way](expected)), strict=True):
        torch.testing.assert_close(found, wanted, msg=way)
    torch.testing.assert_close(given, expected, msg=way)


@pytest.mark.falls_back
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("model", [writes, writes_both])
@pytest.mark.parametrize("first", WAYS)
def test_arguments_lie_in_other_ways_than_at_first(first: str, model: Any, dynamic: bool) -> None:
    run = torch.compile(model, backend="metaschedule", dynamic=dynamic)
    for way in itertools.chain([first], WAYS):
        assert_as_eager(model, run, way)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "by NumPy"])  # which torch does not see
def test_arguments_that_lie_as_at_first_are_no_other_way(way: str) -> None:
    run = torch.compile(writes, backend="metaschedule", options={"strict": True})
    for _ in range(2):
        assert_as_eager(writes, run, way)


def test_arguments_apart_may_be_anywhere() -> None:
    """Two halves of a cache that moves."""
    run = torch.compile(writes, backend="metaschedule", options={"strict": True})
    for way in ("apart", "beside", "further beside"):
        assert_as_eager(writes, run, way)


@pytest.mark.falls_back
def test_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    run = torch.compile(writes, backend="metaschedule")
    with caplog.at_level(logging.WARNING, "metaschedule"):
        for way in ("beside", "over", "over", "over further on"):
            assert_as_eager(writes, run, way)
    assert [r.getMessage() for r in caplog.records if "share memory" in r.getMessage()] == [
        "a graph runs in eager: arguments share memory that is written to, otherwise than when it was traced"
    ]


def test_strict_raises() -> None:
    run = torch.compile(writes, backend="metaschedule", options={"strict": True})
    assert_as_eager(writes, run, "beside")
    with pytest.raises(NotCaptured, match="share memory"):
        run(*WAYS["over"](torch.arange(50.0).view(10, 5)))
