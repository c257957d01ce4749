"""The views by address, for the server and for reports alike: a path to plain data.

| path | data |
|---|---|
| `/api/runs` | `history.list_runs`: what was tuned |
| `/api/run/UID` | `history.describe_run`: trials of one program |
| `/api/model/CALL` | `model.describe_model`: kernels of one call of `tune` |
| `/api/kernel/WORKLOAD/TARGET[/RECORD]` | `kernel.describe_kernel`: a candidate |
| `/api/steps/...`, `/api/code/...` | `kernel`: its trace replayed, its assembly |
| `/api/space/WORKLOAD/TARGET` | `space.describe_space`: sketches and decisions |
| `/api/compare/records|runs/A/B`, `/api/compare/spaces/WORKLOAD/TARGET/A/B` | `compare` |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from ..database import Database
from . import compare, history, kernel, model, space

PAGE = 100  # rows of a list
# name, what makes it, and how many names its address takes
VIEWS: dict[str, tuple[Callable[..., Any], range]] = {
    "runs": (history.list_runs, range(1)),
    "run": (history.describe_run, range(1, 2)),
    "model": (model.describe_model, range(1, 2)),
    "kernel": (kernel.describe_kernel, range(2, 4)),
    "steps": (kernel.describe_steps, range(2, 4)),
    "code": (kernel.describe_code, range(2, 4)),
    "space": (space.describe_space, range(2, 3)),
    "compare/records": (compare.compare_records, range(2, 3)),
    "compare/runs": (compare.compare_runs, range(2, 3)),
    "compare/spaces": (compare.compare_spaces, range(4, 5)),
}


def view(db: Database, path: str, offset: int = 0) -> Any:
    """What is at `/api/...`. `LookupError` where nothing is."""
    parts = [unquote(part) for part in path.removeprefix("/api/").split("/")]
    for length in (2, 1):
        name, arguments = "/".join(parts[:length]), parts[length:]
        if name in VIEWS:
            describe, count = VIEWS[name]
            if len(arguments) not in count:
                raise LookupError(f"{name} takes {count[0]} to {count[-1]} names in its address")
            more = {"offset": max(0, offset), "limit": PAGE} if name == "runs" else {}
            return describe(db, *arguments, **more)
    raise LookupError(f"no view {path}")


def finite(data: Any) -> Any:
    """JSON has no infinities; null is drawn as nothing."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    return [finite(value) for value in data] if isinstance(data, (list, tuple)) else data
