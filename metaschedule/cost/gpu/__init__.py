"""Cost of programs for GPUs."""

from .estimate import BOUNDS, GpuEstimate, predict_gpu
from .features import gpu_features
from .occupancy import LIMITS, hold_blocks

__all__ = ["BOUNDS", "LIMITS", "GpuEstimate", "gpu_features", "hold_blocks", "predict_gpu"]
