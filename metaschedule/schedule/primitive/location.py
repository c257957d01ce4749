"""Primitives for where blocks are computed: compute_at, reverse_compute_at."""

from __future__ import annotations

from .base import Steps


class LocationSteps(Steps):
    pass
