"""What a cost model is, and the one that knows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..ir import Program, structural_hash
from ..schedule import Schedule


class CostModel(Protocol):
    """Predicts how long programs take. `predict` depends on each program alone, never on names, on the order
    or on what else is asked; `update` learns from measurements, which are None or infinite where a candidate
    failed. A schedule is as good as its program, and cheaper."""

    def predict(self, programs: Sequence[Program | Schedule]) -> np.ndarray: ...

    def update(self, programs: Sequence[Program | Schedule], latencies: Sequence[float | None]) -> None: ...


class Random:
    """Any order: what a model that has learnt something is compared with. The same program gets the same
    number again, so that a search with it is repeatable."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def predict(self, programs: Sequence[Program | Schedule]) -> np.ndarray:
        found = [p.program if isinstance(p, Schedule) else p for p in programs]
        seeds = [int(str(structural_hash(p)), 16) % (1 << 64) for p in found]
        return np.array([np.random.default_rng((self.seed, s)).random() for s in seeds])

    def update(self, programs: Sequence[Program | Schedule], latencies: Sequence[float | None]) -> None:
        """Measurements change nothing."""
