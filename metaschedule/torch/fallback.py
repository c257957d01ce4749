"""What we cannot do runs in eager: tried once, said once, and counted by reason.

`attempt` is the one place where any error of ours is caught. Errors on the way carry notes (`about`) of the
node or kernel that they are about; the log has the traceback at debug level.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch._dynamo.exc import RestartAnalysis

from ..measure.build import Cancelled

log = logging.getLogger("metaschedule")
T = TypeVar("T")

REASONS: Counter[str] = Counter()  # why graphs have run in eager, in this process


class NotCaptured(Exception):
    """A graph that cannot be ours at all; its reason is for people, and the graph runs in eager."""


class GradientsRequired(NotCaptured):
    """A graph that autograd will go back through."""


@contextmanager
def about(what: object) -> Iterator[None]:
    """Notes on errors what they are about, unless something within has noted that more closely."""
    try:
        yield
    except Exception as error:
        if not getattr(error, "__notes__", None):
            error.add_note(f"at {what}")
        raise


def attempt(make: Callable[[], T], strict: bool = False) -> T | None:
    """What `make` makes of a graph. None if it fails: then the graph is to run in eager. `strict` raises.

    >>> attempt(lambda: 2)
    2
    >>> attempt(lambda: {}["key"], strict=True)
    Traceback (most recent call last):
      ...
    KeyError: 'key'
    """
    try:
        return make()
    except (RestartAnalysis, Cancelled):  # no errors: Dynamo's way to trace again; the end of the process
        raise
    except Exception as error:
        if strict and not isinstance(error, GradientsRequired):
            raise
        give_up(error)
        return None


def give_up(error: Exception) -> None:
    """Say and count that a graph runs in eager, and why."""
    reason = reason_of(error)
    REASONS[reason] += 1
    log.warning("a graph runs in eager: %s%s", reason, "" if is_limit(error) else HOW_TO_REPORT)
    log.debug("the graph that runs in eager failed with", exc_info=error)


HOW_TO_REPORT = (
    "; this should not happen. Please report it with the model or with the traceback: "
    'options={"strict": True} raises it, logging.getLogger("metaschedule") has it at debug level'
)


def reason_of(error: Exception) -> str:
    """For people: what failed, and where.

    >>> try:
    ...     with about("mul"):
    ...         raise KeyError("x")
    ... except KeyError as error:
    ...     reason_of(error)
    "KeyError: 'x' (at mul)"
    """
    text = str(error).partition("\n")[0]
    name = "" if is_limit(error) else f"{type(error).__name__}: "
    notes = [str(note) for note in getattr(error, "__notes__", [])]
    return f"{name}{text}" + (f" ({'; '.join(notes)})" if notes else "")


def is_limit(error: Exception) -> bool:
    """Whether it is something that we do not do, rather than a fault."""
    return isinstance(error, NotCaptured)
