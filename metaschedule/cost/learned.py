"""`Learned`: boosted trees over features of programs, on top of a prior.

The trees predict the logarithm of the ratio of the measured time to the prior's, so that before any
measurement the model is the prior, and a prior that is wrong by a constant factor costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import Program
from ..schedule import Schedule
from ..target import Target
from .analytical import Estimate
from .features import pool_features
from .gpu import gpu_features, predict_gpu
from .table import Table

ROUNDS = 120  # of boosting, with all records of the fit
MORE_ROUNDS = 20  # on top, once there are more records than a whole fit has time for
MOST_RECORDS = 1024  # in one fit: the latest
FEWEST_RECORDS = 8  # that are worth a fit
SHORTEST = 1e-9  # seconds; a program without a store takes none, and ratios are learnt
PARAMETERS = {
    "objective": "reg:squarederror", "eta": 0.1, "max_depth": 5, "min_child_weight": 2, "subsample": 0.8,
    "colsample_bytree": 0.3, "lambda": 1.0, "base_score": 0.0, "tree_method": "hist", "max_bin": 64,
    "nthread": 1, "verbosity": 0,
}  # fmt: skip


class Learned:
    """Learns from measurements on one target. `accuracy` is the rank correlation of predictions with the last
    batch of measurements, taken before they were learnt from (None before there are any)."""

    def __init__(self, target: Target, seed: int = 0) -> None:
        self.target, self.seed = target, seed
        self.accuracy: float | None = None
        self.rows = np.zeros((0, 0))
        self.ratios = np.zeros(0)
        self.trees: Any = None

    def predict(self, programs: Sequence[Program | Schedule]) -> np.ndarray:
        """Seconds of each program."""
        rows, prior = self.describe(programs)
        return prior * np.exp(self.correction(rows))

    def update(self, programs: Sequence[Program | Schedule], latencies: Sequence[float | None]) -> None:
        """Learn from a batch of measurements; failed ones teach nothing."""
        pairs = [
            (p, y) for p, y in zip(programs, latencies, strict=True) if y is not None and math.isfinite(y)
        ]
        if not pairs:
            return
        rows, prior = self.describe([p for p, _ in pairs])
        measured = np.maximum(np.array([y for _, y in pairs]), SHORTEST)
        self.accuracy = rank_correlation(prior * np.exp(self.correction(rows)), measured)
        ratios = np.log(measured / prior)
        self.rows = np.concatenate([self.rows, rows]) if len(self.rows) else rows
        self.ratios = np.concatenate([self.ratios, ratios])
        if len(self.rows) >= FEWEST_RECORDS:
            self.fit()

    def describe(self, programs: Sequence[Program | Schedule]) -> tuple[np.ndarray, np.ndarray]:
        """Features of programs, and the prior's seconds."""
        if self.target.gpu is not None:
            found = predict_gpu(programs, self.target.gpu)
            return gpu_features(found).astype(np.float32), np.maximum(found.seconds, SHORTEST)
        table = Table(programs)
        estimate = Estimate(table, self.target)
        prior = np.bincount(table.owner, weights=estimate.seconds, minlength=table.count)
        return pool_features(table, estimate, self.target).astype(np.float32), np.maximum(prior, SHORTEST)

    def correction(self, rows: np.ndarray) -> np.ndarray:
        if self.trees is None or not len(rows):
            return np.zeros(len(rows))
        return self.trees.inplace_predict(rows)

    def fit(self) -> None:
        import xgboost  # takes a while to import, and only tuning needs it

        whole = len(self.rows) <= MOST_RECORDS
        rows, ratios = self.rows[-MOST_RECORDS:], self.ratios[-MOST_RECORDS:]
        data = xgboost.DMatrix(rows, label=ratios, nthread=1)
        self.trees = xgboost.train(
            {**PARAMETERS, "seed": self.seed},
            data,
            num_boost_round=ROUNDS if whole else MORE_ROUNDS,
            xgb_model=None if whole else self.trees,
        )


def rank_correlation(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Spearman's: 1 where both put the programs in the same order. 0 where one knows no order."""
    x, y = rank(predicted), rank(measured)
    return 0.0 if x.std() == 0 or y.std() == 0 else float(np.corrcoef(x, y)[0, 1])


def rank(values: np.ndarray) -> np.ndarray:
    """Ranks; equal values share the middle one."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[group]
