"""What hardware instructions add to a whole model, in each precision, beside others in the same precision.

Ours takes part twice where the target has instructions for the precision: tuned in the default space, and
"without" them, where the kernels that could use one were tuned in the space without `UseInstruction`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from .. import database as databases
from ..database import Database
from ..measure import Workers
from ..search.run import INTERRUPTED
from ..space import Space
from ..space.untuned import default_space
from ..target import Target, resolve
from ..torch.explain import models
from ..torch.tasks import KernelTask, tasks, tune_programs
from .contestants import ContestantError
from .contestants.models import Call, Prepare, Skipped, Subject, ours
from .instructions import WITHOUT, fits_of
from .rounds import ModelRow, compare_models
from .spaces import Clock

OURS = "ours"
OURS_WITHOUT = f"{OURS}, {WITHOUT}"


class Databases(NamedTuple):
    """Of our records: with instructions, and without."""

    path: Path
    without: Path

    @staticmethod
    def beside(path: Path) -> Databases:
        return Databases(path, path.with_name(f"{path.stem}-without{path.suffix}"))


def compare_precisions(
    subjects: Sequence[Subject],
    others: Mapping[str, Prepare],
    paths: Databases,
    trials: int,
    seed: int,
    tell: Callable[[str], None],
    workers: Workers | None = None,
) -> Iterator[ModelRow]:
    """A row for each subject, tuned first if there are trials. The models of subjects are dropped one after
    the other: each takes gigabytes."""
    clock = Clock(2 * len(subjects))
    target = resolve("native").with_cores(torch.get_num_threads())
    for subject in subjects:
        try:
            model, args = subject.converted
        except ContestantError as error:
            yield ModelRow(subject.name, subject.precision, absent={"everybody": str(error)})
            continue
        tell(f"{subject.name}, {subject.precision}: its kernels{clock.left()}")
        parts = tasks(models(model, args))
        narrow = [part for part in parts if fits_of(part.program, target)]
        tuner = Tuner(f"{subject.name}, {subject.precision}", target, trials, seed, clock, tell, workers)
        contestants = {**others, OURS: partial(ours, database=paths.path)}
        with databases.open(paths.path) as db:
            seconds = {OURS: tuner.tune("", parts, db, default_space(target))}
            if narrow:
                with databases.open(paths.without) as without:
                    copy_records([part for part in parts if part not in narrow], db, without, target)
                    space = default_space(target) - "UseInstruction"
                    seconds[OURS_WITHOUT] = tuner.tune(f", {WITHOUT}", narrow, without, space)
                    known = all(without.best(part.program, target) for part in narrow)
                contestants[OURS_WITHOUT] = partial(ours, database=paths.without) if known else skip_untried
        clock.done += 1
        row = compare_models(subject, contestants, lambda text: tell(text + clock.left()))
        row.tuning = {who: time for who, time in seconds.items() if time}
        if not narrow and subject.precision != "float32":
            row.absent[OURS_WITHOUT] = "no kernel can use an instruction of this machine: it is the same"
        clock.done += 1
        subject.forget()
        yield row


def skip_untried(subject: Subject) -> Call:
    raise Skipped("kernels have no records without instructions, and their default would use them: --trials")


def copy_records(parts: Sequence[KernelTask], source: Database, to: Database, target: Target) -> None:
    """Kernels that no instruction fits are the same without."""
    for part in parts:
        known = {record.uid for record in to.records(part.program, target)}
        to.add_program(part.program)
        to.add_all([r for r in source.records(part.program, target) if r.uid not in known])


class Tuner(NamedTuple):
    label: str
    target: Target
    trials: int
    seed: int
    clock: Clock
    tell: Callable[[str], None]
    workers: Workers | None

    def tune(self, what: str, parts: Sequence[KernelTask], db: Database, space: Space) -> float:
        """Seconds that it took; 0 if there are no trials."""
        if not self.trials or not parts:
            return 0.0
        start = time.perf_counter()
        label = f"{self.label}{what}"

        results = tune_programs(
            parts, db, show=False, trials=self.trials, seed=self.seed, space=space,
            progress=self.clock.listener(label, self.tell), workers=self.workers,
        )  # fmt: skip
        if any(result.stopped == INTERRUPTED for result in results):
            raise KeyboardInterrupt
        return time.perf_counter() - start


def model_cells(rows: Sequence[ModelRow]) -> Iterator[list[str]]:
    """Heading first. Milliseconds; how many times as fast as our float32, as without instructions and as the
    best of the others."""
    names = list(dict.fromkeys(who for row in rows for who in row.latencies))
    others = [who for who in names if not who.startswith(OURS)]
    yield ["", *(f"{who}, ms" for who in names), "x without", "x our float32", "x best of others"]
    base = next((row.latencies.get(OURS) for row in rows if row.precision == "float32"), None)
    for row in rows:
        mine = row.latencies.get(OURS)
        faster = base / mine if base and mine else None
        ratios = [row.ratio(OURS, OURS_WITHOUT), faster, row.ratio(OURS, *others)]
        times = [f"{1e3 * row.latencies[who]:.1f}" if who in row.latencies else "-" for who in names]
        yield [f"{row.name}, {row.precision}", *times, *("-" if x is None else f"{x:.2f}" for x in ratios)]
