"""What a machine is: instruction set, vectors, cores, caches, limits of a GPU; and which one this is."""

from .detect import missing_features, native
from .detect_gpu import detect_cuda, detect_opencl
from .gpu import Gpu, NoDevice
from .known import DEVICES, KNOWN, resolve
from .opencl_devices import find_opencl
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
    "find_opencl",
    "missing_features",
    "native",
    "resolve",
]
