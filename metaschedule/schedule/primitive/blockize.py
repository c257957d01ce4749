"""Primitives for blocks made of loops and replaced by intrinsics: blockize, tensorize."""

from __future__ import annotations

from .base import Steps


class BlockizeSteps(Steps):
    pass
