"""Primitives for copies: cache_read, cache_write, reindex, set_scope, storage_align."""

from __future__ import annotations

from .base import Steps


class CacheSteps(Steps):
    pass
