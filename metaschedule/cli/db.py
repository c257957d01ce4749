"""`metaschedule db`: look into databases of tuning records, move records between them, drop old ones."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..database import Counts, Record, Summary, open
from ..ir import Program
from .options import PLACE, AsJson, Config, Place, check_database, find_target
from .output import result_console
from .programs import find_program

commands = typer.Typer(no_args_is_help=True, help="Look into databases of tuning records, and move records.")

ROWS = 100  # of a table, unless more are asked for
Limit = Annotated[
    int | None, typer.Option(min=1, help=f"rows to show ({ROWS}; as JSON all)", show_default=False)
]
Offset = Annotated[int, typer.Option(min=0, help="rows to pass over")]
Other = Annotated[str, typer.Argument(help=PLACE, callback=check_database)]


@commands.command()
def ls(place: Place, limit: Limit = None, offset: Offset = 0, as_json: AsJson = False) -> None:
    """List the programs of a database: trials by outcome, and the best latency for each target."""
    with open(place, readonly=True) as db:
        found = db.summaries(page_size(limit, as_json), offset)
        name = db.name
    if as_json:
        print(json.dumps([summary_data(one) for one in found]))
        return
    table = Table("program", "workload", "target", "trials", "outcomes", "best, us")
    for one in found:
        outcomes = ", ".join(f"{n} {kind}" for kind, n in one.outcomes.most_common())
        cells = (one.name, one.workload[:12], one.target, str(one.outcomes.total()), outcomes, best_of(one))
        table.add_row(*map(escape, cells))
    result_console().print(table if found else f"{escape(name)} has no {'more ' * bool(offset)}records")
    tell_next(len(found), limit, offset)


def summary_data(one: Summary) -> dict[str, Any]:
    return {
        "program": one.name,
        "workload": one.workload,
        "target": one.target,
        "trials": one.outcomes.total(),
        "outcomes": dict(one.outcomes.most_common()),
        "latency": one.best.latency if one.best else None,
    }


def best_of(one: Summary) -> str:
    return "-" if one.best is None else microseconds(one.best)


@commands.command()
def records(
    place: Place,
    program: Annotated[
        str | None,
        typer.Argument(help="a workload (GMM, C2D, ...), file.py:program, or a hash; default: all"),
    ] = None,
    config: Config = 0,
    target: Annotated[str | None, typer.Option(help="machine, or the key of one; default: any")] = None,
    outcome: Annotated[str | None, typer.Option(help="ok, crash, timeout, ...; default: any")] = None,
    limit: Limit = None,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List trials, in the order they were added."""
    wanted, key = program and workload(program, config), target and target_key(target)
    with open(place, readonly=True) as db:
        found = db.records(wanted, key, outcome, limit=page_size(limit, as_json), offset=offset)
        total = db.count(wanted, key, outcome)
    if as_json:
        print(json.dumps([asdict(record) for record in found]))
        return
    table = Table("workload", "target", "run", "trial", "seconds", "outcome", "us", "decisions or detail")
    for r in found:
        last = (r.decisions if r.outcome == "ok" else r.detail) or ""
        trial, elapsed = ("" if v is None else f"{v:.0f}" for v in (r.trial, r.elapsed))
        what = f"{r.outcome}{', confirmed' * r.confirmed}"
        cells = (r.workload[:12], r.target, r.run[:8], trial, elapsed, what, microseconds(r), one_line(last))
        table.add_row(*map(escape, cells))
    result_console().print(table)
    print(f"{total} in all")
    tell_next(len(found), limit, offset)


@commands.command()
def best(
    place: Place,
    program: Annotated[str, typer.Argument(help="a workload (GMM, C2D, ...), file.py:program, or a hash")],
    config: Config = 0,
    target: Annotated[str, typer.Option(help="machine, or the key of one")] = "native",
    as_json: AsJson = False,
) -> None:
    """Show the fastest record of a program: its latency and its trace. Exit code 1 if there is none."""
    wanted, key = workload(program, config), target_key(target)
    with open(place, readonly=True) as db:
        record, name = db.best(wanted, key), db.name
        trace = None if record is None else record.trace
    if record is None:
        typer.echo(f"{name} has no record of {program} for {key}", err=True)
        raise typer.Exit(1)
    if as_json:
        data = None if trace is None else json.loads(trace.to_json())
        print(json.dumps({"latency": record.latency, "trace": data}))
        return
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created))
    print(f"# {microseconds(record)} us, {made}, space {record.space}, metaschedule {record.version}")
    print(trace)


@commands.command()
def export(
    place: Place, to: Annotated[Path, typer.Argument(help="JSON lines to write")], as_json: AsJson = False
) -> None:
    """Write all records as JSON lines."""
    with open(place, readonly=True) as db:
        written = db.export(to)
    print(json.dumps({"written": written}) if as_json else f"{written} records written to {to}")


@commands.command(name="import")
def import_(
    place: Place, source: Annotated[Path, typer.Argument(help="JSON lines to read")], as_json: AsJson = False
) -> None:
    """Add the records of JSON lines."""
    with open(place) as db:
        tell_counts(db.import_(source), as_json)


@commands.command()
def merge(place: Place, other: Other, as_json: AsJson = False) -> None:
    """Add the records of another database."""
    with open(place) as db:
        tell_counts(db.merge(other), as_json)


@commands.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=PLACE, callback=check_database)],
    to: Annotated[str, typer.Argument(help=PLACE, callback=check_database)],
    as_json: AsJson = False,
) -> None:
    """Copy all records into another database, which is created if there is none. What is there already stays
    and is not added twice, so a copy that was interrupted can be made again."""
    with open(source, readonly=True) as origin, open(to) as db:
        tell_counts(db.merge(origin), as_json)


@commands.command()
def prune(
    place: Place,
    keep: Annotated[int, typer.Option(min=1, help="candidates to keep for each program and target")] = 16,
    as_json: AsJson = False,
) -> None:
    """Delete all but the records of the fastest candidates. Tuning then goes on from those, and no longer
    knows what else was tried."""
    with open(place) as db:
        deleted = db.prune(keep)
        left = db.count()
    print(
        json.dumps({"deleted": deleted, "left": left})
        if as_json
        else f"{deleted} records deleted, {left} left"
    )


# --- what the commands share ---


def workload(program: str, config: int) -> Program | str:
    return program if len(program) >= 32 and ":" not in program else find_program(program, config)


def target_key(target: str) -> str:
    return target if ":" in target else find_target(target).key


def page_size(limit: int | None, as_json: bool) -> int | None:
    return ROWS if limit is None and not as_json else limit


def tell_next(shown: int, limit: int | None, offset: int) -> None:
    """On standard error: the table is for reading on, too."""
    if shown == (limit or ROWS):
        typer.echo(f"there may be more: --offset {offset + shown}", err=True)


def tell_counts(counts: Counts, as_json: bool) -> None:
    if as_json:
        print(json.dumps(counts._asdict()))
    else:
        print(f"{counts.added} records added, {counts.present} there already")


def microseconds(record: Record) -> str:
    return "-" if record.latency is None else f"{1e6 * record.latency:.1f}"


def one_line(text: str, length: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 3] + "..."
