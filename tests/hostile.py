"""Values that careless or malicious callers pass, and what an answer to them may be."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Whim(Exception):
    """Of a function or object that was passed: whoever calls it lets it pass."""


def whim(*_: object) -> Any:
    raise Whim


class Odd:
    """Refuses much that an object may be asked."""

    def __repr__(self) -> str:
        raise Whim

    def __eq__(self, other: object) -> bool:
        raise Whim

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def endless() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


def plain_values() -> list[Any]:
    """What no parameter takes, or only at first sight."""
    numbers = [-1, 0, 1, 2, 3, 7, 64, 2**31, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30, 10**5000]
    floats = [0.0, 2.0, 0.5, -1.5, math.nan, math.inf, 1e308, np.float32(2), np.float64("nan")]
    others = [None, True, False, np.int64(3), np.int32(-1), np.uint64(2**63), np.bool_(True), 1j]
    texts = ["", "x", "local", "read", "3", "é", "\ud800", "a\x00b", "x" * 5000, b"x", bytearray(b"x")]
    things = [object(), Odd(), int, len, lambda *a: a, whim, {}, {"a": 1}, {1}, frozenset()]
    arrays = [np.zeros(0), np.arange(3), np.zeros((2, 2)), np.array(2), np.array(["a"]), range(3), iter([1])]
    nested = [
        [],
        (),
        [None],
        [[]],
        [2, 2.0],
        [True],
        [2**62, 4],
        ["a"],
        endless(),
        slice(1),
        ...,
        NotImplemented,
    ]
    return [*numbers, *floats, *others, *texts, *things, *arrays, *nested]


PLAIN = plain_values()


def hostile(rng: random.Random, more: Sequence[Any] = ()) -> Any:
    """One such value, or a list of some."""
    if rng.random() < 0.2:
        return [hostile(rng, more) for _ in range(rng.randrange(4))]
    return rng.choice(more) if more and rng.random() < 0.5 else rng.choice(PLAIN)


def refused(call: Callable[[], Any], names: Sequence[str], allowed: tuple[type[Exception], ...]) -> bool:
    """Whether a call is refused, as it should be if at all: by an error of these classes that names what was
    wrong. Anything else propagates."""
    try:
        call()
    except allowed as error:
        if not any(name in str(error) for name in names):
            raise AssertionError(f"the error names none of {names}") from error
        return True
    return False
