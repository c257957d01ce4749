"""The database behind a page: opened for reading, again when a file was replaced or a server came back."""

from __future__ import annotations

import threading
from pathlib import Path

from ..database import Database, DatabaseError, open
from ..database.postgres import is_address

PATIENCE = 2.0  # seconds, after which a page says what is wrong, and asks again


class Source:
    """`get` gives the database, or raises `DatabaseError` with what to tell; the next call tries again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db: Database | None = None
        self._file: tuple[int, int] | None = None

    def get(self) -> Database:
        with self._lock:
            if self._db is not None and self._identity() != self._file:
                self._forget()
            if self._db is None:
                self._file = self._identity()
                self._db = open(self.path, readonly=True, patience=PATIENCE)
            return self._db

    def forget(self) -> None:
        """After an error: the next one is another connection."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None

    def _identity(self) -> tuple[int, int] | None:
        """Which file is there now; none, for a server's address."""
        if is_address(self.path):
            return None
        try:
            status = Path(self.path).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DatabaseError(f"{self.path}: {error.strerror}") from error
        return status.st_dev, status.st_ino
