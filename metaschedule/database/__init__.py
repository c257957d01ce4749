"""Tuning records: what was tried on which program and target, and how it went."""

from .database import Database, Summary, open
from .record import PREDICTED, Choice, Record, StoredWorkload, TuningRun, predicted_key
from .schema import Counts, DatabaseError

__all__ = [
    "PREDICTED",
    "Choice",
    "Counts",
    "Database",
    "DatabaseError",
    "Record",
    "StoredWorkload",
    "Summary",
    "TuningRun",
    "open",
    "predicted_key",
]
