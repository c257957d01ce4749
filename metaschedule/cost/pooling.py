"""From the features of stores to those of programs."""

from __future__ import annotations

import numpy as np

INNERMOST = 4  # loops described one by one


def pool_stores(
    stores: np.ndarray, seconds: np.ndarray, total: np.ndarray, owner: np.ndarray, count: int
) -> np.ndarray:
    """Rows of programs from those of their stores, which take so many `seconds`."""
    summed = np.bincount(owner, weights=seconds, minlength=count)
    average = np.zeros((count, stores.shape[1]))
    np.add.at(average, owner, stores * (seconds / np.maximum(summed[owner], 1e-12))[:, None])
    heaviest = np.zeros_like(average)
    order = np.lexsort((seconds, owner))  # the last of a program is its heaviest
    heaviest[owner[order]] = stores[order]
    return np.concatenate([log(total * 1e9)[:, None], average, heaviest], axis=1)


def log(x: np.ndarray) -> np.ndarray:
    return np.log2(1 + x)
