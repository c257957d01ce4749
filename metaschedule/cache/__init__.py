"""The cache on disk: what took long to make, for the processes that follow."""

from .directory import cache_directory, is_private
from .entry import Entry
from .identity import digest_of, identify
from .store import Store, store

__all__ = ["Entry", "Store", "cache_directory", "digest_of", "identify", "is_private", "store"]
