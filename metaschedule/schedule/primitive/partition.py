"""Primitives for cutting and joining loops side by side: loop_partition, merge."""

from __future__ import annotations

from .base import Steps


class PartitionSteps(Steps):
    pass
