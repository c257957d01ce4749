"""`metaschedule cluster`: the machines of a Ray cluster."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from .. import __version__
from ..measure.cluster.status import ClusterNode, cluster_status
from .output import result_console

commands = typer.Typer(no_args_is_help=True, help="Look at the machines that build and measure.")


@commands.callback()
def group() -> None:
    """Look at the machines that build and measure."""


@commands.command()
def status(
    workers: Annotated[
        str, typer.Option(help="ray (the cluster of RAY_ADDRESS, or of this machine) or ray://HOST:PORT")
    ] = "ray",
    as_json: Annotated[bool, typer.Option("--json", help="for scripts")] = False,
) -> None:
    """Nodes, what each is and does: kind of machine, program, trials a minute, whether it is disturbed."""
    if workers != "ray" and not workers.startswith("ray://"):
        raise typer.BadParameter(f"{workers!r} is none of ray, ray://HOST:PORT", param_hint="--workers")
    nodes = cluster_status(workers)
    if as_json:
        print(json.dumps([as_data(node) for node in nodes]))
        return
    titles = ("node", "kind", "version", "builders", "runner", "program", "trials", "/ min", "disturbed")
    table = Table(*titles, box=box.SIMPLE, padding=0)  # borders alone would take a third of 80 columns
    for node in nodes:
        for row in rows_of(node):
            table.add_row(*row)
    result_console().print(table)


def rows_of(node: ClusterNode) -> list[list[str]]:
    """One for each runner; one for a node without."""
    cores = str(node.cores)
    if node.about is None:
        return [[node.name, "?", "?", cores, node.error, "", "", "", ""]]
    target, version = node.about.target, node.about.version
    said = version if version == __version__ else f"{version}, not {__version__}"
    head = [node.name, f"{target.cpu}, {target.cores} cores", said, cores]
    if not node.runners:
        return [[*head, "free" if node.is_runner else "-", "", "", "", ""]]
    return [
        [*head, r.state, r.program, str(r.trials), f"{r.rate:.0f}", f"{r.disturbed:.0%}" if r.trials else "-"]
        for r in node.runners
    ]


def as_data(node: ClusterNode) -> dict[str, Any]:
    about = node.about
    return {
        "name": node.name,
        "kind": about.target.key if about else None,
        "cpu": about.target.cpu if about else None,
        "version": about.version if about else None,
        "builders": node.cores,
        "is_runner": node.is_runner,
        "runners": [
            {name: value for name, value in asdict(r).items() if name not in ("target", "peak", "name")}
            for r in node.runners
        ],
        "error": node.error,
    }
