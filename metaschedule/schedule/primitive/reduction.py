"""Primitives for reductions taken apart: rfactor, decompose_reduction, fuse_reduction_epilogue."""

from __future__ import annotations

from .base import Steps


class ReductionSteps(Steps):
    pass
