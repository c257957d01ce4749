"""Ray's functions, guarded from being called after its end; Ray itself is not needed."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from metaschedule.measure import WorkersError
from metaschedule.measure.cluster.connection import Guarded


def test_no_call_begins_after_the_end_which_waits_for_the_last() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def get(future: str, timeout: float) -> str:
        begun.set()
        assert may_end.wait(timeout)
        return future

    guarded = Guarded(SimpleNamespace(get=get))
    answers: list[str] = []
    caller = threading.Thread(target=lambda: answers.append(guarded.get("answer", timeout=20.0)))
    caller.start()
    assert begun.wait(20)
    assert not guarded.close(0.05)
    with pytest.raises(WorkersError, match="closed"):
        guarded.get("another", timeout=1.0)
    with pytest.raises(WorkersError, match="closed"):
        guarded.submit(SimpleNamespace(remote=print), "a task")
    may_end.set()
    assert guarded.close(20)
    caller.join()
    assert answers == ["answer"]
