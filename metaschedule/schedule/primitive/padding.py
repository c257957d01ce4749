"""Primitives for padding made and taken apart: pad_einsum, decompose_padding."""

from __future__ import annotations

from .base import Steps


class PaddingSteps(Steps):
    pass
