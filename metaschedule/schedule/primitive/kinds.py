"""Primitives for how loops are carried out: parallel, vectorize, unroll, bind; annotations."""

from __future__ import annotations

from .base import Steps


class KindSteps(Steps):
    pass
