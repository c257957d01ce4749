"""Primitives for indices renamed: transform_layout, transform_block_layout, reorder_block_iter_var."""

from __future__ import annotations

from .base import Steps


class LayoutSteps(Steps):
    pass
