"""Records as JSON lines: each line holds a record and its program, so files can be cut, sorted and joined."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ..validation import convert, converter, describe_value
from .record import Record, StoredWorkload
from .schema import LATER_COLUMNS, VERSION, DatabaseError
from .sqlite import explain_errors

FIELDS = [f.name for f in fields(Record)]
KEYS = {"schema", "name", "script", *FIELDS}


def write(path: Path, entries: Iterable[tuple[StoredWorkload, Record]]) -> None:
    with explain_errors(path), path.open("w", encoding="utf-8") as file:
        for workload, record in entries:
            line = {"schema": VERSION, "name": workload.name, "script": workload.script, **asdict(record)}
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[tuple[StoredWorkload, Record]]:
    """All of the file, or a `DatabaseError` that names the first bad line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseError(f"{path}: cannot be read as JSON lines: {error}") from error
    rows = text.split("\n")  # not splitlines: a detail may hold other separators
    if not rows[-1]:
        rows.pop()
    entries: list[tuple[StoredWorkload, Record]] = []
    for number, row in enumerate(rows, 1):
        try:
            entries.append(decode(json.loads(row)))
        except (ValueError, TypeError, RecursionError) as error:
            cut = number == len(rows) and not text.endswith("\n")
            what = "the file ends within this line: export it again, or delete the line" if cut else error
            raise DatabaseError(f"{path}, line {number}: {what}; nothing was imported") from error
    return entries


def decode(data: Any) -> tuple[StoredWorkload, Record]:
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError("not a tuning record")
    if type(data["schema"]) is not int or data["schema"] != VERSION:
        raise ValueError(f"schema {describe_value(data['schema'])}, and this metaschedule reads {VERSION}")
    if odd := (KEYS ^ set(data)) - (set(LATER_COLUMNS) - set(data)):
        raise ValueError(f"keys that are missing, or unknown: {', '.join(sorted(odd))}")
    name, script = (convert(converter(str), data[key], "a tuning record", key) for key in ("name", "script"))
    record = Record(**{key: data[key] for key in FIELDS if key in data})
    return StoredWorkload(record.workload, name, script), record
