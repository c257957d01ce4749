"""`metaschedule bench spaces`: what each search space finds in how many trials."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ... import database
from ...report.band_chart import band_chart
from ...report.case import cases
from ...report.spaces import NOISE, SPACES, WORKLOADS, InterruptedRows, SpacesRow, compare_spaces, presets_of
from ...report.table import as_markdown, in_us
from ...space.presets import PRESETS
from ...target import resolve
from ..options import PLACE, Quiet, Workers, check_choice, check_database, find_workers_of
from ..output import INTERRUPTED, Status, progress_console, result_console, table_of


def spaces(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"workloads, also GMM:n=64,k=32; default: {' '.join(WORKLOADS)}"),
    ] = None,
    workloads: Annotated[str, typer.Option(help="the same as an option: GMM,C2D")] = "",
    chosen: Annotated[
        str, typer.Option("--spaces", help="several by commas, from the poorest to the richest")
    ] = ",".join(SPACES),
    trials: Annotated[int, typer.Option(min=1, help="of each space, workload and seed")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each, with other random numbers")] = 3,
    db: Annotated[
        str | None,
        typer.Option(callback=check_database, help=f"database to record in and to go on from: {PLACE}"),
    ] = None,
    config: Annotated[str, typer.Option(help="configuration of the workloads, or all")] = "0",
    weights: Annotated[str, typer.Option(help="arguments of the call, or constants")] = "arguments",
    workers: Workers = "local",
    as_json: Annotated[Path | None, typer.Option("--json", help="file to write the figures to")] = None,
    chart: Annotated[Path | None, typer.Option(help="SVG file to draw the courses in")] = None,
    markdown: Annotated[Path | None, typer.Option(help="file to write the table to")] = None,
    quiet: Quiet = False,
) -> None:
    """Tune workloads in search spaces of other systems and in ours, by the same search.

    The spaces are reconstructions; what each leaves out is said below the table. Latencies are medians of the
    seeds with their range. After Ctrl-C the table has what was measured until then, and with --db the same
    command goes on from there.
    """
    target = resolve("native")
    kinds = [check_choice(name, SPACES, "--spaces") for name in chosen.split(",")]
    check_choice(weights, ("arguments", "constants"), "--weights")
    wanted = [*(names or ()), *(name for name in re.split(",(?=[A-Z])", workloads) if name)] or list(
        WORKLOADS
    )
    try:
        found = cases(wanted, config, constant=weights == "constants")
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error
    interrupted = False
    with (
        Status(progress_console(quiet=quiet)) as tell,
        database.open(db) as records,
        find_workers_of(target, workers) as place,
    ):
        try:
            rows = compare_spaces(
                found, lambda _: presets_of(kinds, target), range(seeds), trials, records, target, tell, place
            )
        except InterruptedRows as partial:
            rows, interrupted = partial.rows, True
    lines = list(cells(rows, kinds))
    console = result_console()
    console.print(table_of(lines, f"{trials} trials, {seeds} seed(s)"))
    for name in kinds:
        what, missing = PRESETS[name].searches, PRESETS[name].leaves_out
        console.print(f"{name}: {what}; left out: {missing}", markup=False, highlight=False, soft_wrap=True)
    failures = [what for row in rows for what in row.failures]
    console.print("\n".join(failures) or f"every richer space is at least as good, within {NOISE:.0%}")
    if as_json:
        report = {
            "machine": str(target), "trials": trials, "seeds": seeds, "failures": failures,
            "rows": [row.as_data() for row in rows],
        }  # fmt: skip
        as_json.write_text(json.dumps(report, indent=1))
    if chart:
        courses = {row.label: {name: row.course(name) for name in row.spaces} for row in rows}
        chart.write_text(band_chart("Best latency by search space: median and range of the seeds", courses))
    if markdown:
        markdown.write_text(as_markdown(lines))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def cells(rows: Sequence[SpacesRow], kinds: Sequence[str]) -> Iterator[list[str]]:
    """Heading first. Microseconds of the winners, median and range; then what each space gains."""
    steps = list(zip(kinds, kinds[1:]))
    yield ["", *(f"{name}, us" for name in kinds), *(f"{richer} x {poorer}" for poorer, richer in steps)]
    for row in rows:
        bands = [row.latency(name) for name in kinds]
        shown = [f"{in_us(b.median)} ({in_us(b.low)}-{in_us(b.high)})" for b in bands]
        yield [row.label, *shown, *(f"{row.gain(*step):.2f}" for step in steps)]
