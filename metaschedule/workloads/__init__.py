"""The operators and subgraphs that the paper measures, as programs.

>>> from metaschedule import workloads
>>> workloads.create("SFM", shape=(4, 7))
<Program SFM(X: float32[4, 7]) -> softmax: float32[4, 7]>
"""

from .catalogue import configurations, create, names, weights
from .work import flops, operations

__all__ = ["configurations", "create", "flops", "names", "operations", "weights"]
