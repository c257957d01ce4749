"""`Record`: one trial. Plain data, so that thousands load fast; the trace is decoded when asked for."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from .. import __version__
from ..ir import Program, structural_hash
from ..schedule import Trace, TraceError
from ..target import Target
from ..validation import check_arguments, convert, converters


class StoredWorkload(NamedTuple):
    """A program that was tuned; `metaschedule.parse(script)` gives it back."""

    hash: str
    name: str
    script: str


PREDICTED = (
    "predicted:"  # before the target's key where no device measured: such records are apart from others
)


@check_arguments
def predicted_key(target: Target | str) -> str:
    """The key of records whose latency a model predicts. Whoever asks for those of the target gets none of
    them.

    >>> predicted_key("cuda:sm_86:NVIDIA RTX A4000:m48")
    'predicted:cuda:sm_86:NVIDIA RTX A4000:m48'
    """
    return PREDICTED + key_of(target)


@dataclass(frozen=True)
class Record:
    """One trial of one candidate; never changed: confirming a leader adds another record, `confirmed`.

    The trace is kept as two JSON texts, because thousands of records share a `sketch` (the trace with null
    for every decision) and differ in `decisions` (a list, in order).
    """

    workload: str  # structural hash
    target: str  # Target.key
    sketch: str | None
    decisions: str | None
    outcome: str  # "ok", or what went wrong
    latency: float | None = None  # seconds; of "ok" only
    times: tuple[float, ...] = ()  # the repetitions behind it
    detail: str = ""  # of what went wrong
    confirmed: bool = False  # measured again as a leader
    disturbed: float = 0.0  # the share of repetitions thrown away; 1: none could be believed
    space: str = ""
    seed: int | None = None
    trial: int | None = None  # number within the run
    run: str = ""
    created: float = field(default_factory=time.time)
    elapsed: float | None = None  # seconds since the run began
    predicted: float | None = None  # the cost model's score when it was proposed; more is better
    version: str = __version__
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)

    @staticmethod
    def of(
        program: Program | str, target: Target | str, trace: Trace | None, outcome: str, **fields: Any
    ) -> Record:
        """A record from a program (or its structural hash), a target (or its key) and a trace.

        >>> Record.of("0123abcd", "x86_64:c4", Trace(), "ok", latency=2e-3).trace == Trace()
        True
        """
        sketch, decisions = (None, None) if trace is None else split(trace)
        return Record(workload_of(program), key_of(target), sketch, decisions, outcome, **fields)

    def __post_init__(self) -> None:
        for name, check in converters(Record).items():
            object.__setattr__(self, name, convert(check, getattr(self, name), "Record", name))
        if (self.outcome == "ok") != (self.latency is not None):
            raise ValueError(
                f"outcome {self.outcome!r} with latency {self.latency}: a latency goes with 'ok'"
            )
        seconds = (self.latency or 0, self.created, self.elapsed or 0, *self.times)
        if not all(math.isfinite(t) and t >= 0 for t in seconds):
            raise ValueError("latency, times, created and elapsed must be finite and not negative")
        if self.predicted is not None and not math.isfinite(self.predicted):
            raise ValueError(f"predicted must be finite, got {self.predicted}")
        if not 0 <= self.disturbed <= 1:
            raise ValueError(f"disturbed is a share from 0 to 1, got {self.disturbed}")
        if (self.sketch is None) != (self.decisions is None):
            raise ValueError("sketch and decisions are one trace: give both or neither")

    @property
    def kind(self) -> str:
        """Where the latency comes from: "measured", or "predicted" by a model."""
        return "predicted" if self.target.startswith(PREDICTED) else "measured"

    @property
    def reliable(self) -> bool:
        """Whether the latency was measured while nothing else ran; otherwise it is an upper bound."""
        return self.disturbed < 1

    @cached_property
    def trace(self) -> Trace | None:
        """The candidate. Raises `TraceError` if what is stored cannot be read."""
        if self.sketch is None or self.decisions is None:
            return None
        try:
            data = json.loads(self.sketch)
            sampling = [row for row in data["instructions"] if len(row) == 4]
            for row, decision in zip(sampling, json.loads(self.decisions), strict=True):
                row[3] = decision
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise TraceError(f"record {self.uid}: the stored trace is damaged: {error}") from None
        return Trace.from_json(json.dumps(data))


@dataclass(frozen=True)
class TuningRun:
    """What one call of `tune` does with one program, as far as it is; `uid` is the `run` of its records.

    It is stored again after every step, with a later `updated`.
    """

    uid: str
    workload: str  # structural hash
    target: str  # Target.key
    space: str
    seed: int | None
    call: str  # the same for all programs of a call
    label: str = ""  # of the model or whatever the programs are of
    weight: float | None = None  # how often the program is called in it
    trials: int | None = None  # the budget of the call
    minutes: float | None = None
    started: float = 0.0
    updated: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)  # spent, by phase
    untuned: float | None = None  # latency of what `build` takes without tuning
    stopped: str | None = None  # why it ended, "" if its budget was spent; None: it has not
    machine: str = ""  # where it was measured
    details: Mapping[str, Any] = field(
        default_factory=dict
    )  # what else a page shows: "target", "peak", "refused"

    def __post_init__(self) -> None:
        for name, check in converters(TuningRun).items():
            object.__setattr__(self, name, convert(check, getattr(self, name), "TuningRun", name))


@dataclass(frozen=True)
class Choice:
    """By which kernel a model runs a program, by what the model takes with it: the one of a `record`, the
    "untuned" default, or "eager", torch's own. `seconds` is what all calls of the program took in a call of
    the model, by each that was tried."""

    workload: str  # structural hash
    target: str  # Target.key
    model: str  # hash of all programs of the model
    how: str  # "record", "untuned", "eager"
    record: str = ""  # uid
    seconds: Mapping[str, float] = field(default_factory=dict)
    created: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        for name, check in converters(Choice).items():
            object.__setattr__(self, name, convert(check, getattr(self, name), "Choice", name))
        if self.how not in WAYS or (self.how == "record") != bool(self.record):
            raise ValueError(f"a choice is {', '.join(WAYS)}, a record with its uid; got {self.how!r}")


WAYS = ("record", "untuned", "eager")


def split(trace: Trace) -> tuple[str, str]:
    """Sketch and decisions as JSON."""
    data = trace.as_data()
    sampling = [row for row in data["instructions"] if len(row) == 4]
    decisions = json.dumps([row[3] for row in sampling])
    for row in sampling:
        row[3] = None
    return json.dumps(data), decisions


def workload_of(program: Program | str) -> str:
    return program if isinstance(program, str) else structural_hash(program)


def key_of(target: Target | str) -> str:
    return target if isinstance(target, str) else target.key
