"""What a machine is: instruction set, vectors, cores, caches, limits of a GPU; and which one this is."""

from .detect import missing_features, native
from .detect_gpu import NoDevice, detect_cuda, detect_opencl
from .gpu import Gpu
from .known import DEVICES, KNOWN, resolve
from .target import COMPUTE_FEATURES, Target

__all__ = [
    "COMPUTE_FEATURES",
    "DEVICES",
    "KNOWN",
    "Gpu",
    "NoDevice",
    "Target",
    "detect_cuda",
    "detect_opencl",
    "missing_features",
    "native",
    "resolve",
]
