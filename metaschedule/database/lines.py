"""Records as JSON lines: each line holds a record and its program, so files can be cut, sorted and joined."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from ..schedule.trace import fits
from .connection import LATER_COLUMNS, VERSION, DatabaseError
from .record import Record, Workload

HINTS = get_type_hints(Record)
KEYS = {"schema", "name", "script", *HINTS}


def write(path: Path, entries: Iterable[tuple[Workload, Record]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for workload, record in entries:
            line = {"schema": VERSION, "name": workload.name, "script": workload.script, **asdict(record)}
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[tuple[Workload, Record]]:
    """All of the file, or a `DatabaseError` that names the first bad line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatabaseError(f"{path}: cannot be read as JSON lines: {error}") from error
    rows = text.split("\n")  # not splitlines: a detail may hold other separators
    if not rows[-1]:
        rows.pop()
    entries: list[tuple[Workload, Record]] = []
    for number, row in enumerate(rows, 1):
        try:
            entries.append(decode(json.loads(row)))
        except (ValueError, RecursionError) as error:
            cut = number == len(rows) and not text.endswith("\n")
            what = "the file ends within this line: export it again, or delete the line" if cut else error
            raise DatabaseError(f"{path}, line {number}: {what}; nothing was imported") from error
    return entries


def decode(data: Any) -> tuple[Workload, Record]:
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError("not a tuning record")
    if data["schema"] != VERSION:
        raise ValueError(f"schema {data['schema']!r}, and this metaschedule reads {VERSION}")
    if odd := (KEYS ^ set(data)) - (set(LATER_COLUMNS) - set(data)):
        raise ValueError(f"keys that are missing, or unknown: {', '.join(sorted(odd))}")
    if isinstance(data["times"], list):
        data["times"] = tuple(data["times"])
    for key, value in data.items():
        hint = HINTS.get(key, str)
        if key != "schema" and not fits(value, hint):
            raise ValueError(f"{key} is {value!r:.80}, which is no {getattr(hint, '__name__', hint)}")
    workload = Workload(data["workload"], data["name"], data["script"])
    return workload, Record(**{key: data[key] for key in HINTS if key in data})
