"""Conditions move out of loops that they do not depend on, and no further."""

from __future__ import annotations

import pytest

from metaschedule.codegen.lower.hoist import hoist_conditions
from tests.codegen.test_lower import Case, check_pass

HOIST: dict[str, Case] = {
    "a condition on a whole tile": (
        "A[4, 8] -> C[8]",
        """
for r in range(4):
    for c in range(2):
        for i in T.unrolled(2):
            for j in T.vectorized(2):
                if r % 2 == 0 and c * 4 + i * 2 + j < 7:
                    C[c * 4 + i * 2 + j] = C[c * 4 + i * 2 + j] + A[r, c * 4 + i * 2 + j]
""",
        """
for r in range(4):
    if r % 2 == 0:
        for c in range(2):
            for i in T.unrolled(2):
                for j in T.vectorized(2):
                    if c * 4 + i * 2 + j < 7:
                        C[c * 4 + i * 2 + j] = C[c * 4 + i * 2 + j] + A[r, c * 4 + i * 2 + j]
""",
    ),
    "each as far as it goes, also from below another": (
        "A[4, 8] -> C[8]",
        """
for r, c in T.grid(4, 8):
    if c < 7:
        for k in range(3):
            if r + k < 5 and r > 0:
                C[c] = C[c] + A[r, c]
""",
        """
for r in range(4):
    if r > 0:
        for c in range(8):
            if c < 7:
                for k in range(3):
                    if r + k < 5:
                        C[c] = C[c] + A[r, c]
""",
    ),
}

STAYS = {
    "what loads": """
for r, c in T.grid(4, 8):
    if N[0] > 3:
        C[c] = A[r, c]
""",
    "what may trap": """
for r, c in T.grid(4, 8):
    if r // (r - 2) > 0:
        C[c] = A[r, c]
""",
    "what is not on everything": """
for r, c in T.grid(4, 8):
    C[c] = 0.0
    if r > 2:
        C[c] = A[r, c]
""",
}


@pytest.mark.parametrize("name", HOIST)
def test_hoist(name: str) -> None:
    check_pass(hoist_conditions, HOIST[name])


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    check_pass(hoist_conditions, ("A[4, 8], N:int64[4] -> C[8]", STAYS[name], STAYS[name]))
