"""This package: the best record of a database after tuning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ...build import build
from ...database import Database
from ...measure import Workers
from ...search import tune
from ...search.progress import Listener
from ...search.run import INTERRUPTED
from ...target import Target
from ..case import Case
from ..timing import fastest
from .contestant import ROUND_TIME, Variant


class Ours:
    """With 0 `trials` nothing is tuned: what the database has, or else the untuned default, takes part."""

    name = "ours"

    def __init__(
        self, database: Database, target: Target, trials: int, seed: int,
        progress: Listener | None = None, workers: Workers | None = None,
    ) -> None:  # fmt: skip
        self.database, self.target, self.trials, self.seed = database, target, trials, seed
        self.progress, self.workers = progress, workers

    def prepare(self, case: Case) -> float | None:
        if not self.trials:
            return None
        before = len(self.database.records(case.program, self.target))
        start = time.perf_counter()
        result = tune(
            case.program, trials=self.trials, seed=self.seed, database=self.database, target=self.target,
            progress=self.progress, workers=self.workers,
        )  # fmt: skip
        if result.stopped == INTERRUPTED:  # `tune` ends quietly, the comparison does too
            raise KeyboardInterrupt
        return None if before else time.perf_counter() - start  # an earlier run has done part of it

    def variants(self, case: Case) -> Iterator[Variant]:
        run = build(case.program, target=self.target, constants=case.weights, database=self.database)
        call = partial(run, *case.arguments)
        yield Variant(self.name, "", False, lambda: fastest(call, ROUND_TIME), call)
        native = partial(run.benchmark, *case.arguments, min_time=ROUND_TIME)
        yield Variant(self.name, "", True, lambda: native().min, call)

    def close(self) -> None:
        self.database.close()
