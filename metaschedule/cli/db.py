"""`metaschedule db`: look into databases of tuning records, move records between them."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..database import Database, Record, open
from .options import Config, find_target
from .output import result_console
from .programs import find_program

commands = typer.Typer(no_args_is_help=True, help="Look into databases of tuning records, and move records.")

File = Annotated[Path, typer.Argument(help="database file")]
AsJson = Annotated[bool, typer.Option("--json", help="for scripts")]


@commands.command()
def ls(file: File, as_json: AsJson = False) -> None:
    """List the programs of a database: trials by outcome, and the best latency for each target."""
    with open(file, readonly=True) as db:
        rows = [row for workload in db.workloads() for row in summaries(db, workload.hash, workload.name)]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table("program", "workload", "target", "trials", "outcomes", "best, us")
    for r in rows:
        outcomes = ", ".join(f"{n} {kind}" for kind, n in r["outcomes"].items())
        best = "-" if r["latency"] is None else f"{1e6 * r['latency']:.1f}"
        table.add_row(r["program"], r["workload"][:12], r["target"], str(r["trials"]), outcomes, best)
    result_console().print(table if rows else f"{file} has no records")


def summaries(db: Database, workload: str, name: str) -> list[dict[str, Any]]:
    """One row for each target of a program."""
    found: dict[str, list[Record]] = {}
    for record in db.records(workload):
        found.setdefault(record.target, []).append(record)
    rows: list[dict[str, Any]] = []
    for target, records in found.items():
        best = db.best(workload, target)
        outcomes = Counter(r.outcome for r in records if not r.confirmed)
        rows.append(
            {"program": name, "workload": workload, "target": target, "trials": outcomes.total(),
             "outcomes": dict(outcomes.most_common()), "latency": best.latency if best else None}
        )  # fmt: skip
    return rows


@commands.command()
def best(
    file: File,
    program: Annotated[str, typer.Argument(help="a workload (GMM, C2D, ...), file.py:program, or a hash")],
    config: Config = 0,
    target: Annotated[str, typer.Option(help="machine, or the key of one")] = "native",
    as_json: AsJson = False,
) -> None:
    """Show the fastest record of a program: its latency and its trace. Exit code 1 if there is none."""
    wanted = program if len(program) >= 32 and ":" not in program else find_program(program, config)
    key = target if ":" in target else find_target(target).key
    with open(file, readonly=True) as db:
        record = db.best(wanted, key)
        trace = None if record is None else record.trace
    if record is None:
        typer.echo(f"{file} has no record of {program} for {key}", err=True)
        raise typer.Exit(1)
    if as_json:
        print(
            json.dumps(
                {"latency": record.latency, "trace": None if trace is None else json.loads(trace.to_json())}
            )
        )
        return
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.created))
    print(
        f"# {1e6 * (record.latency or 0):.1f} us, {made}, space {record.space}, metaschedule {record.version}"
    )
    print(trace)


@commands.command()
def export(file: File, to: Annotated[Path, typer.Argument(help="JSON lines to write")]) -> None:
    """Write all records as JSON lines."""
    with open(file, readonly=True) as db:
        print(f"{db.export(to)} records written to {to}")


@commands.command(name="import")
def import_(file: File, source: Annotated[Path, typer.Argument(help="JSON lines to read")]) -> None:
    """Add the records of JSON lines."""
    with open(file) as db:
        counts = db.import_(source)
    print(f"{counts.added} records added, {counts.present} there already")


@commands.command()
def merge(file: File, other: Annotated[Path, typer.Argument(help="database to take records from")]) -> None:
    """Add the records of another database."""
    with open(file) as db:
        counts = db.merge(other)
    print(f"{counts.added} records added, {counts.present} there already")
