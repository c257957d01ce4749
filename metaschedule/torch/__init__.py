"""Models of PyTorch on our kernels: a `torch.compile` backend that tunes."""

from . import lowerings
