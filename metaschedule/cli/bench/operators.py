"""`metaschedule bench operators`: this package beside PyTorch and TVM."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from ... import database
from ...report.case import TWELVE, cases
from ...report.chart import bar_chart
from ...report.contestants import ContestantError, Ours, opponents
from ...report.contestants.tvm.contestant import CACHE
from ...report.operators import Interrupted, OperatorRow, compare_all, geometric_means
from ...report.table import TITLES, cells, in_markdown
from ...search import Progress
from ...search.display import microseconds, phase, time_left
from ...target import resolve
from ..options import PLACE, Quiet, Seed, Workers, check_database, find_workers_of
from ..output import INTERRUPTED, Status, progress_console, result_console, table_of

TABLES = {"both": (False, True), "arguments": (False,), "constants": (True,)}


def operators(
    names: Annotated[
        list[str] | None, typer.Argument(help="workloads, also GMM:n=64,k=32; default: the paper's twelve")
    ] = None,
    against: Annotated[
        str, typer.Option(help="torch, torch-compile, tvm, tvm-default; several by commas")
    ] = "torch",
    trials: Annotated[
        int, typer.Option(min=0, help="our trials for each; 0: take records, or do not tune")
    ] = 64,
    db: Annotated[
        str | None, typer.Option(callback=check_database, help=f"database of our records: {PLACE}")
    ] = None,
    config: Annotated[str, typer.Option(help="configuration of the workloads, or all")] = "0",
    weights: Annotated[
        str, typer.Option(help="arguments of the call, constants, or both: a table each")
    ] = "both",
    seed: Seed = 0,
    tvm_trials: Annotated[int, typer.Option(min=1, help="TVM's trials for each")] = 128,
    tvm_cache: Annotated[Path, typer.Option(help="TVM's environment and its records")] = CACHE,
    workers: Workers = "local",
    as_json: Annotated[Path | None, typer.Option("--json", help="file to write the figures to")] = None,
    chart: Annotated[Path | None, typer.Option(help="SVG file to draw the ratios in")] = None,
    markdown: Annotated[Path | None, typer.Option(help="file to write the tables to")] = None,
    quiet: Quiet = False,
) -> None:
    """Tune operators, then measure them in turn with PyTorch, torch.compile or TVM, and with the FMA peak.

    There are two tables: with weights as arguments of the call, and with weights that are constants. After
    Ctrl-C they have what was measured until then.
    """
    target = resolve("native")
    chosen = names or list(TWELVE)
    try:
        if weights not in TABLES:
            raise ValueError(f"weights are {', '.join(TABLES)}, got {weights!r}")
        groups = [cases(chosen, config, constant=constant) for constant in TABLES[weights]]
        others = opponents(against.split(","), target, tvm_trials, tvm_cache, seed)
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error
    with Status(progress_console(quiet=quiet)) as tell, ExitStack() as stack:

        def show(p: Progress) -> None:
            now = f"; {phase(p)}" if phase(p) and sys.stdout.isatty() else ""
            best = microseconds(p.latency)
            tell(f"{p.program}: {p.trials} of {p.budget} trials, best {best}{now}{time_left(p.left)}")

        place = stack.enter_context(find_workers_of(target, workers))
        contestants = [Ours(database.open(db), target, trials, seed, show, place), *others]
        for contestant in contestants:
            stack.callback(contestant.close)
        groups = [group for group in groups if group]
        interrupted = False
        try:
            found, failures = compare_all(groups, contestants, target, tell)
        except Interrupted as partial:
            found, failures, interrupted = partial.tables, partial.failures, True
    tables = [rows for rows in found if rows]
    console = result_console()
    for rows in tables:
        console.print(table_of(list(cells(rows)), TITLES[rows[0].case.constant]))
    if as_json:
        report = {"machine": str(target), "trials": trials, "tables": [as_data(rows) for rows in tables]}
        as_json.write_text(json.dumps(report, indent=1))
    if chart:
        chart.write_text(draw_tables(tables))
    if markdown:
        markdown.write_text(in_markdown(tables))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if failures:
        raise ContestantError("\n".join(failures))


def as_data(rows: Sequence[OperatorRow]) -> dict[str, Any]:
    return {
        "constant_weights": rows[0].case.constant,
        "rows": [row.as_data() for row in rows],
        "geometric_means": geometric_means(rows),
    }


def draw_tables(tables: Sequence[Sequence[OperatorRow]]) -> str:
    groups: dict[str, dict[str, float]] = {}
    for rows in tables:
        what = ", constant" if rows[0].case.constant else ""
        groups |= {row.case.label + what: {name: row.ratio(name) for name in row.opponents} for row in rows}
        groups["geometric mean" + what] = geometric_means(rows)
    return bar_chart("Speedup over", groups)
