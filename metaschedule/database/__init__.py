"""Tuning records: what was tried on which program and target, and how it went."""

from .database import Database, Summary, open
from .record import Record, TuningRun, Workload
from .schema import Counts, DatabaseError

__all__ = ["Counts", "Database", "DatabaseError", "Record", "Summary", "TuningRun", "Workload", "open"]
