"""Whole models in alternating rounds: contestants that could be prepared, each with its fastest call."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from .contestants.models import Call, Prepare, Skipped, Subject, tensors_of
from .timing import fastest, keep_freed_memory

log = logging.getLogger("metaschedule")
ROUNDS = 5
ROUND_TIME = 0.5  # seconds of each contestant's calls in a round
# The root of the mean square of what a result differs from float32 in eager, over that of the result.
# BERT of two layers: 0.006 in bfloat16, 0.013 to 0.023 in int8; something else altogether is 1.4.
LARGEST_ERROR = {"float32": 1e-3, "bfloat16": 0.1, "int8-dynamic": 0.3, "int8-static": 0.3}


@dataclass
class ModelRow:
    """A subject's `latencies` and `first_calls` (with what is compiled in them), in seconds, by contestant;
    who is `absent`, and why; what results differ by."""

    name: str
    precision: str = "float32"
    latencies: dict[str, float] = field(default_factory=dict)
    first_calls: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    tuning: dict[str, float] = field(default_factory=dict)  # seconds, by contestant that was tuned

    def ratio(self, ours: str, *others: str) -> float | None:
        """The latency of the best of the others over that of ours: above 1 ours is faster."""
        found = [self.latencies[who] for who in others if who in self.latencies]
        return min(found) / self.latencies[ours] if found and ours in self.latencies else None

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def compare_models(
    subject: Subject,
    contestants: Mapping[str, Prepare],
    tell: Callable[[str], None],
    seconds: float = ROUND_TIME,
) -> ModelRow:
    """Prepare all, compare what they give with float32 in eager, and time them in alternating rounds."""
    row = ModelRow(subject.name, subject.precision)
    keep_freed_memory()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what converters and compilers import and call
        want = tensors_of(subject.original(*subject.original_args))
        calls: dict[str, Call] = {}
        for who, prepare in contestants.items():
            tell(f"{subject.name}, {subject.precision}: preparing {who}")
            if call := prepare_contestant(row, subject, who, prepare, want):
                calls[who] = call
        row.latencies = dict.fromkeys(calls, float("inf"))
        for n in range(ROUNDS):
            tell(f"{subject.name}, {subject.precision}: round {n + 1} of {ROUNDS}")
            for who, call in calls.items():
                row.latencies[who] = min(row.latencies[who], fastest(call, seconds))
    torch._dynamo.reset()  # of several precisions it would keep too many versions of the same code
    return row


def prepare_contestant(
    row: ModelRow, subject: Subject, who: str, prepare: Prepare, want: list[Tensor]
) -> Call | None:
    start = time.perf_counter()
    try:
        call = prepare(subject)
        got = tensors_of(call())
    except Skipped as why:
        row.absent[who] = str(why)
        return None
    except Exception as error:  # whatever a converter or compiler raises, the others go on
        log.debug("%s: %s cannot take part", subject.name, who, exc_info=True)
        row.absent[who] = f"{type(error).__name__}: {error}".partition("\n")[0]
        return None
    row.first_calls[who] = time.perf_counter() - start
    row.errors[who] = max(error_of(y, expected) for y, expected in zip(got, want, strict=True))
    if not row.errors[who] <= LARGEST_ERROR[subject.precision]:
        row.absent[who] = f"it computes something else: results differ by {row.errors[who]:.3g}"
        return None
    return call


def error_of(y: Tensor, want: Tensor) -> float:
    y, want = y.double(), want.double()
    return ((y - want).norm() / want.norm()).item()
