"""`metaschedule bench models`: whole models beside PyTorch, OpenVINO, ONNX Runtime and zentorch.

Each model has a process of its own: contestants leave traces in theirs. After zentorch has been imported,
torch.compile of a further model writes into its weights, and everybody's results of it are wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...report.chart import bar_chart
from ...report.contestants import ContestantError
from ...report.table import as_markdown
from ...target import resolve
from ..options import PLACE, Quiet, Workers, check_database, find_workers_of
from ..output import INTERRUPTED, Status, progress_console, result_console, table_of
from ..programs import evaluate
from .instructions import parse_choice

if TYPE_CHECKING:
    from rich.console import Console

    from ...report.contestants.models import Subject
    from ...report.rounds import ModelRow

OTHERS = (
    "eager", "channels-last", "torch-compile-default", "torch-compile", "torch-compile-max-autotune",
    "zentorch", "openvino", "onnxruntime",
)  # fmt: skip
AGAINST = tuple(who for who in OTHERS if who != "torch-compile-max-autotune")  # which takes minutes a model


def models(
    names: Annotated[list[str] | None, typer.Argument(help="some of ours; default: all, see --list")] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--models", help="file.py:make of your own; make() gives a model and its arguments"),
    ] = None,
    against: Annotated[str, typer.Option(help=f"several by commas: {', '.join(OTHERS)}")] = ",".join(AGAINST),
    trials: Annotated[int, typer.Option(min=0, help="tune first, so many for each kernel on average")] = 0,
    minutes: Annotated[float | None, typer.Option(help="tune each model for at most this long")] = None,
    tuned_first: Annotated[
        bool, typer.Option("--tune", help="tune each model first, with the default budget of 3 minutes")
    ] = False,
    db: Annotated[
        str | None, typer.Option(callback=check_database, help=f"records, used and added to: {PLACE}")
    ] = None,
    workers: Workers = "local",
    threads: Annotated[int | None, typer.Option(min=1, help="of everybody")] = None,
    seconds: Annotated[float, typer.Option(min=0.01, help="of everybody's calls in each of 5 rounds")] = 0.5,
    small: Annotated[bool, typer.Option(help="the same structures, tiny: to try the command")] = False,
    names_only: Annotated[bool, typer.Option("--list", help="show the names of our models")] = False,
    as_json: Annotated[Path | None, typer.Option("--json", help="file to write the figures to")] = None,
    chart: Annotated[Path | None, typer.Option(help="SVG file to draw the ratios in")] = None,
    markdown: Annotated[Path | None, typer.Option(help="file to write the table to")] = None,
    quiet: Quiet = False,
) -> None:
    """Call models in alternating rounds: PyTorch, OpenVINO, ONNX Runtime, zentorch, and ours.

    Ours is `torch.compile` untuned, `ms.torch.optimize` untuned and, with trials or records, tuned. Everybody
    counts with the fastest call, and gives what eager gives. After Ctrl-C there is what was measured.
    """
    try:
        import torch

        from ...report import models as ours
        from ...report.contestants.models import Subject
    except ModuleNotFoundError as error:
        raise ContestantError("models need PyTorch: pip install torch==2.13.0") from error
    console = result_console()
    if names_only:
        console.print("\n".join(ours.COMPARED), highlight=False)
        return
    others = parse_choice(against, OTHERS, "--against")
    wanted = list(names or ([] if files else ours.COMPARED))
    if unknown := [name for name in wanted if name not in ours.names()]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(ours.names())}", param_hint="NAMES")
    if threads is not None:
        torch.set_num_threads(threads)
    rows: list[ModelRow] = []
    interrupted = False
    sources = [*wanted, *(files or ())]
    if len(sources) > 1:
        options = [
            f"--against={against}", f"--trials={trials}", f"--seconds={seconds}", f"--workers={workers}",
            *["--tune"] * tuned_first,
            *["--small"] * small, *["--quiet"] * quiet, *([f"--minutes={minutes}"] if minutes else []),
            *([f"--db={db}"] if db else []), *([f"--threads={threads}"] if threads else []),
        ]  # fmt: skip
        rows, interrupted = each_in_a_process(sources, len(wanted), options, progress_console(quiet=quiet))
    elif sources:
        with Status(progress_console(quiet=quiet)) as tell, ExitStack() as stack:
            tuned = db
            tunes = bool(trials or minutes or tuned_first)
            if db is None and tunes:
                tuned = f"{stack.enter_context(tempfile.TemporaryDirectory())}/records.db"
            name = sources[0]
            try:
                model, args = ours.create(name, small=small) if wanted else made_by(name)
                subject = Subject(name.rpartition("/")[2], model, args)
                took = 0.0
                if tuned is not None and tunes:
                    tell(f"{subject.name}: tuning")
                    took = tune(subject, trials, minutes, tuned, workers)
                rows.append(compare(subject, others, tuned, seconds, tell))
                rows[-1].tuning = {"tuned": took} if took else {}
            except ModuleNotFoundError as error:
                raise ContestantError(f"{name} needs a package: {error}") from error
            except KeyboardInterrupt:
                interrupted = True
    show(rows, chart, markdown)
    if as_json:
        from ...report.model_table import OURS, means

        report = {
            "machine": str(resolve("native")), "threads": torch.get_num_threads(), "trials": trials,
            "rows": [row.as_data() for row in rows],
            "means": {who: means(rows, who) for who in OURS if any(who in r.latencies for r in rows)},
        }  # fmt: skip
        as_json.write_text(json.dumps(report, indent=1))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if wrong := [row for row in rows if "untuned" not in row.latencies]:
        raise ContestantError("\n".join(f"{row.name}: {row.absent.get('untuned')}" for row in wrong))


def each_in_a_process(
    sources: Sequence[str], named: int, options: Sequence[str], console: Console
) -> tuple[list[ModelRow], bool]:
    """What this command gives for each source (the first of them are `named`, the others files), and whether
    it was interrupted. A contestant that takes its process down costs the row of its model alone."""
    from ...report.rounds import ModelRow

    rows: list[ModelRow] = []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        for n, source in enumerate(sources):
            left = (
                f", {(time.perf_counter() - start) / n * (len(sources) - n) / 60:.0f} min left" if n else ""
            )
            console.print(
                f"{source} ({n + 1} of {len(sources)}{left})", markup=False, highlight=False, soft_wrap=True
            )
            report = Path(directory) / f"{n}.json"
            what = [source] if n < named else ["--models", source]
            command = [sys.executable, "-m", "metaschedule", "bench", "models", *what, *options]
            child = subprocess.Popen([*command, "--json", str(report)], stdout=subprocess.DEVNULL)
            try:
                status = child.wait()
            except KeyboardInterrupt:  # the child has it, too, and writes what it has
                child.wait()
                return rows, True
            if report.exists():
                rows += [ModelRow(**row) for row in json.loads(report.read_text())["rows"]]
            else:
                rows.append(ModelRow(source, absent={"untuned": f"its process ended with status {status}"}))
    return rows, False


def made_by(path: str) -> tuple[Any, tuple[Any, ...]]:
    """What a user's function makes: a model and the arguments of a call."""
    made = evaluate(path)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], tuple)):
        raise typer.BadParameter(f"{path} gives no model with a tuple of arguments", param_hint="--models")
    return made[0].eval().requires_grad_(False), made[1]


def tune(subject: Subject, trials: int, minutes: float | None, db: str, workers: str) -> float:
    """Seconds that it took."""
    from ... import torch

    start = time.perf_counter()
    with find_workers_of(resolve("native"), workers) as place:
        torch.tune(
            subject.model, subject.args, trials=trials or None, minutes=minutes, database=db, show=False,
            workers=place,
        )  # fmt: skip
    return time.perf_counter() - start


def compare(subject: Subject, others: Sequence[str], db: str | None, seconds: float, tell: Any) -> ModelRow:
    from ...report.contestants import models as contestants
    from ...report.rounds import compare_models

    calls: dict[str, Any] = {who: contestants.OTHERS[who] for who in others}
    calls |= {"untuned": contestants.ours, "optimized": contestants.ours_optimized}
    if db is not None:
        calls["tuned"] = partial(contestants.ours_optimized, database=db)
    return compare_models(subject, calls, tell, seconds)


def show(rows: Sequence[ModelRow], chart: Path | None, markdown: Path | None) -> None:
    from ...report.model_table import OURS, means, model_cells, ratios

    console = result_console()
    lines = list(model_cells(rows))
    console.print(table_of(lines, f"{resolve('native')}: batch 1, fastest calls in alternating rounds"))
    for row in rows:
        for who, why in row.absent.items():
            console.print(f"{row.name}: without {who}: {why}", markup=False, soft_wrap=True)
    mine = next((who for who in reversed(OURS) if any(who in row.latencies for row in rows)), None)
    if chart and mine:
        groups = {row.name: ratios(row, mine) for row in rows} | {"geometric mean": means(rows, mine)}
        chart.write_text(bar_chart(f"Models, {mine}: speedup over", groups))
    if markdown:
        markdown.write_text(as_markdown(lines))
