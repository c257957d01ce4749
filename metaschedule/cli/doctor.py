"""`metaschedule doctor`: what this machine is, what is installed, and what answers."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..report.doctor import Finding, examine
from ..report.gpu_doctor import examine_gpus
from .options import AsJson, check_database
from .output import result_console

MARKS = {True: "ok", None: "-", False: "FAILED"}


def doctor(
    db: Annotated[
        str | None,
        typer.Option(callback=check_database, help="PostgreSQL to ask; default: PGHOST and others"),
    ] = None,
    ray: Annotated[str | None, typer.Option(help="Ray cluster to ask; default: RAY_ADDRESS")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="try everything on the GPUs here, and report")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what this machine is, which optional packages are installed, and whether compiler, PostgreSQL and
    Ray answer; with --gpu, what GPUs are here and whether all that is to run on them does. Exit code 1 if
    something that is needed, or was asked for, does not work."""
    findings = list(examine_gpus() if gpu else examine(db, ray))
    if as_json:
        print(json.dumps([finding._asdict() for finding in findings]))
    else:
        result_console().print(as_table(findings))
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(1)


def as_table(findings: list[Finding]) -> Table:
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        table.add_row(finding.name, MARKS[finding.ok], escape(finding.text))
    return table
