"""Primitives for blocks put into the blocks that use them: compute_inline, reverse_compute_inline."""

from __future__ import annotations

from .base import Steps


class InlineSteps(Steps):
    pass
