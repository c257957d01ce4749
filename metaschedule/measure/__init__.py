"""Candidates built, verified and timed in processes of their own, which they may end."""

from .local import LocalWorkers
from .measurer import Measurer
from .named import open_workers
from .outcome import KINDS, Limits, MeasureError, Outcome, WorkersError
from .predicted import Predictor, missing_device
from .workers import WorkerNode, Workers

__all__ = [
    "KINDS",
    "Limits",
    "LocalWorkers",
    "MeasureError",
    "Measurer",
    "Outcome",
    "Predictor",
    "WorkerNode",
    "Workers",
    "WorkersError",
    "missing_device",
    "open_workers",
]
