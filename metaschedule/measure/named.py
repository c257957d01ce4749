"""Workers by name: "local", "ray", "ray://host:port"."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ..validation import describe_value
from .cluster import RayWorkers
from .local import LocalWorkers
from .workers import Workers


def open_workers(workers: str | Workers | None = None) -> AbstractContextManager[Workers]:
    """The workers that a name stands for, to be entered, and closed at the end; those given are left open.

    >>> with open_workers("local") as workers:
    ...     [node.name for node in workers.nodes()]
    ['this machine']
    """
    if workers is not None and not isinstance(workers, str):
        return nullcontext(workers)
    if workers in (None, "local"):
        return LocalWorkers()
    if workers == "ray" or workers.startswith("ray://"):
        return RayWorkers(workers)
    raise ValueError(
        f"there are no workers {describe_value(workers)}; there are local, ray and ray://HOST:PORT"
    )
