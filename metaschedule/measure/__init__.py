"""Candidates built, verified and timed in processes of their own, which they may end."""

from .local import LocalWorkers
from .measurer import Measurer
from .named import open_workers
from .outcome import KINDS, Limits, MeasureError, Outcome, WorkersError
from .workers import Node, Workers

__all__ = [
    "KINDS",
    "Limits",
    "LocalWorkers",
    "MeasureError",
    "Measurer",
    "Node",
    "Outcome",
    "Workers",
    "WorkersError",
    "open_workers",
]
