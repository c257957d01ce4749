"""`Result`: what tuning a program has come to; and the best schedule that a database has for one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen import executable
from ..database import Database, Record, predicted_key
from ..errors import ScheduleError
from ..ir import Program
from ..markup import html, svg
from ..runtime import Executable
from ..schedule import Schedule, Trace, TraceError
from ..target import Target

log = logging.getLogger("metaschedule")
ONCE = 4  # records that are read at once: the first replays, unless something has changed


@dataclass(frozen=True)
class Result:
    """`records` are the trials of the program in this space, those of earlier runs included. `best` is the
    record of `schedule`; None if no candidate worked, and then `schedule` is the loops as written. `stopped`
    says why tuning ended before its budget did, if it did, and `failed` whether that was a failure: of the
    database, or of those who measure. `seconds` says where the time went. `untuned` is
    the latency of what `build` takes without tuning, measured beside `best`. `notes` say what to know about
    how it was measured: beside other work, or on fewer cores than threads."""

    program: Program
    target: Target
    schedule: Schedule
    best: Record | None
    records: list[Record]
    stopped: str
    seconds: dict[str, float]
    untuned: float | None = None
    notes: tuple[str, ...] = ()
    failed: bool = False

    @property
    def latency(self) -> float | None:
        """Seconds."""
        return self.best.latency if self.best else None

    @property
    def kind(self) -> str:
        """Whether `latency` is "measured" or "predicted"."""
        return self.best.kind if self.best else "measured"

    @property
    def trace(self) -> Trace:
        return self.schedule.trace

    @property
    def outcomes(self) -> Counter[str]:
        """How many trials ended how."""
        return Counter(record.outcome for record in self.records)

    def build(self, **options: Any) -> Executable:
        """The fastest program, compiled; `options` are `constants`, `threads` and `bounds` of
        `metaschedule.build`."""
        return executable(self.schedule.program, self.target, **options)

    def _repr_html_(self) -> str:
        """What was found, the course of the trials, trace and program, for notebooks."""
        trials = sorted((r for r in self.records if not r.confirmed), key=lambda r: (r.created, r.trial or 0))
        won = (
            f"{self.untuned / self.latency:.2f} times as fast as untuned"
            if self.untuned and self.latency
            else ""
        )
        return html.view(
            *map(html.paragraph, filter(None, (str(self), won))),
            svg.course([r.latency for r in trials]),
            html.unfold("trace", html.script(str(self.trace))),
            html.unfold("scheduled program", html.script(str(self.schedule.program))),
        )

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.outcomes.most_common()) or "no trials"
        found = "no candidate works, so the loops as written"
        if self.latency is not None:
            found = f"{1e6 * self.latency:.1f} us" + (", predicted" if self.kind == "predicted" else "")
        said = "".join(f"; {what}" for what in (self.stopped, *self.notes) if what)
        return f"{self.program.name}: {found} ({counts}{said})"


def best_schedule(db: Database, program: Program, target: Target) -> Schedule | None:
    """The fastest schedule that is recorded for a program; None if there is none, or none that replays. For
    a GPU that was never measured, the one that is predicted to be."""
    found = best_record(db, program, target)
    if found is None and target.gpu is not None:
        found = best_record(db, program, target, predicted=True)
    return None if found is None else found[1]


def best_record(
    db: Database, program: Program, target: Target, predicted: bool = False
) -> tuple[Record, Schedule] | None:
    """The fastest record that replays, and what it replays to; the log tells which."""
    offset = 0
    key = predicted_key(target) if predicted else target.key
    while records := db.ranked(program, key, limit=ONCE, offset=offset):
        if (found := first_replaying(records, program)) is not None:
            record = found[0]
            log.info("%s: record %s of %.1f us", program.name, record.uid, 1e6 * (record.latency or 0))
            return found
        offset += ONCE
    log.info("%s: no record for %s", program.name, key)
    return None


def fastest(records: Sequence[Record], program: Program) -> tuple[Record, Schedule] | None:
    """Of some records the fastest that replays, in the order of `Database.ranked`."""
    failed = {(r.sketch, r.decisions) for r in records if r.latency is None}
    working = [r for r in records if r.latency is not None and (r.sketch, r.decisions) not in failed]
    return first_replaying(
        sorted(working, key=lambda r: (not r.reliable, not r.confirmed, r.latency)), program
    )


def first_replaying(records: Sequence[Record], program: Program) -> tuple[Record, Schedule] | None:
    for record in records:
        try:
            if record.trace is not None:
                return record, record.trace.apply(program)
        except (ScheduleError, TraceError) as error:
            log.warning("%s: record %s no longer replays: %s", program.name, record.uid, error)
    return None
