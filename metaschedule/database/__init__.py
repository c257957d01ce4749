"""Tuning records: what was tried on which program and target, and how it went."""

from .connection import DatabaseError
from .database import Counts, Database, open
from .record import Record, Workload

__all__ = ["Counts", "Database", "DatabaseError", "Record", "Workload", "open"]
