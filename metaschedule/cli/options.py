"""Options that commands have. What is wrong with a value is said with the option's name; exit code 2."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated

import typer

from .. import measure
from ..database.postgres import is_address, secrets
from ..target import Target, resolve
from ..validation import redact

LARGEST_SEED = 2**63 - 1  # that a record can hold

Seed = Annotated[int, typer.Option(min=-LARGEST_SEED, max=LARGEST_SEED, help="of the random numbers")]
Config = Annotated[int, typer.Option(min=0, help="configuration of the workload")]
Workers = Annotated[
    str,
    typer.Option(
        help="where to build and measure: local, ray (the cluster of RAY_ADDRESS) or ray://HOST:PORT"
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress, only the result")]


def check_database(place: str | None) -> str | None:
    """Everybody on a machine can read the command lines of its processes."""
    if place is not None and is_address(place) and secrets(place):
        raise typer.BadParameter(
            f"{redact(place)}: a password on the command line is shown to every user of this machine; "
            "give it by PGPASSWORD, ~/.pgpass or a service file (postgresql://?service=NAME)"
        )
    return place


PLACE = "file, or postgresql://user@host/name"
Place = Annotated[str, typer.Argument(metavar="DATABASE", help=PLACE, callback=check_database)]
AsJson = Annotated[bool, typer.Option("--json", help="for scripts")]


def check_minutes(value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"{value} is not a positive number")
    return value


def find_target(name: str, workers: measure.Workers | None = None) -> Target:
    try:
        return workers.resolve(name) if workers else resolve(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--target") from error


def find_workers(name: str) -> AbstractContextManager[measure.Workers]:
    try:
        return measure.open_workers(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--workers") from error


@contextmanager
def find_workers_of(target: Target, name: str) -> Iterator[measure.Workers]:
    """Of a kind of machine: what they tune is compared on this one."""
    with find_workers(name) as place:
        kinds = {node.target.key for node in place.nodes()}
        if target.key not in kinds:
            raise typer.BadParameter(
                f"what is tuned is compared on this machine, {target.key}, and the cluster has "
                f"{', '.join(kinds)}",
                param_hint="--workers",
            )
        yield place


def check_choice(value: str, choices: tuple[str, ...], option: str) -> str:
    if value not in choices:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(choices)}", param_hint=option)
    return value
