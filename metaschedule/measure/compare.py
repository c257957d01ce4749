"""Whether a result is the reference's."""

from __future__ import annotations

import numpy as np

from ..ir import is_float
from ..runtime import ArgSpec


def difference(spec: ArgSpec, got: np.ndarray, want: np.ndarray, tolerance: float) -> str | None:
    """None if `got` is right, else the first wrong element in words.

    `tolerance` is relative to the largest element of `want`, because rounding errors of a sum are as
    large as its terms however small it is; 0 means equal. NaN equals NaN. Where floats may differ at all,
    one in a thousand integers may too: what was rounded to them may have been close to the border.

    >>> spec = ArgSpec("C", (2, 2), "float32")
    >>> want = np.ones((2, 2), np.float32)
    >>> difference(spec, want * np.float32(1.00001), want, 1e-4) is None
    True
    >>> difference(spec, np.diag(np.diag(want)), want, 1e-4)
    'C[0, 1] is 0.0, expected 1.0; 2 of 4 elements differ'
    """
    if spec.dtype == "bool":  # NumPy takes every byte but 0 for True
        got, want = got.view(np.uint8), want.view(np.uint8)
    if np.array_equal(got, want):
        return None
    if is_float(spec.dtype):
        wide = np.float64 if spec.dtype == "float64" else np.float32
        a, b = got.astype(wide), want.astype(wide)
        scale = np.max(np.abs(b), where=np.isfinite(b), initial=0)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= tolerance * scale
        wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
        allowed = 0
    else:
        wrong = got != want
        allowed = wrong.size // 1000 if tolerance else 0
    count = np.count_nonzero(wrong)
    if count <= allowed:
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{spec.name}{list(at)} is {got[at]}, expected {want[at]}; {count} of {wrong.size} elements differ"
