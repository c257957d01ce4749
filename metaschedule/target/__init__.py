"""What a machine is: instruction set, vectors, cores, caches; and which one this is."""

from .detect import missing_features, native
from .known import KNOWN, resolve
from .target import COMPUTE_FEATURES, Target

__all__ = ["COMPUTE_FEATURES", "KNOWN", "Target", "missing_features", "native", "resolve"]
