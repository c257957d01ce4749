"""`metaschedule bench instructions`: what hardware instructions add to operators and to a model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ... import database
from ...measure import Workers as Place
from ...report import instructions as experiment
from ...report.chart import bar_chart
from ...report.contestants import ContestantError
from ...report.contestants.contestant import PRECISIONS
from ...report.spaces import InterruptedRows, SpacesRow, compare_spaces
from ...report.table import as_markdown
from ...target import resolve
from ..options import Quiet, Seed, Workers, find_workers_of
from ..output import INTERRUPTED, Status, progress_console, result_console, table_of

if TYPE_CHECKING:
    from ...report.rounds import ModelRow

PARTS = ("operators", "model")
AGAINST = ("eager", "torch-compile", "zentorch", "openvino")


def instructions(
    parts: Annotated[str, typer.Option(help="operators, model, or both by commas")] = ",".join(PARTS),
    only: Annotated[str, typer.Option(help="operators whose names have this, such as int8")] = "",
    model: Annotated[str, typer.Option(help="a model of PyTorch")] = "bert_large",
    layers: Annotated[int | None, typer.Option(min=1, help="of the model, fewer than it has")] = None,
    precisions: Annotated[str, typer.Option(help="several by commas")] = ",".join(PRECISIONS),
    against: Annotated[str, typer.Option(help="several by commas, or none")] = ",".join(AGAINST),
    trials: Annotated[
        int, typer.Option(min=0, help="of each operator and, on average, kernel; 0: take records")
    ] = 32,
    db: Annotated[
        Path | None, typer.Option(help="file of our records; those without instructions go beside it")
    ] = None,
    seed: Seed = 0,
    workers: Workers = "local",
    as_json: Annotated[Path | None, typer.Option("--json", help="file to write the figures to")] = None,
    chart: Annotated[Path | None, typer.Option(help="SVG file to draw the ratios in")] = None,
    markdown: Annotated[Path | None, typer.Option(help="file to write the tables to")] = None,
    quiet: Quiet = False,
) -> None:
    """Tune operators of narrow numbers without hardware instructions and with each, then a model in several
    precisions without and with all, and measure the model in turn with PyTorch, zentorch and OpenVINO.

    Who is not installed, or has not what it needs, is named with the reason. After Ctrl-C there is what was
    measured until then; with --db the same command goes on from there.
    """
    wanted = parse_choice(parts, PARTS, "--parts")
    kinds = parse_choice(precisions, PRECISIONS, "--precisions")
    others = parse_choice(against, AGAINST, "--against")
    if "operators" in wanted and not trials:
        raise typer.BadParameter("operators are tuned: with no trials there is --parts model")
    rows: list[SpacesRow] = []
    compared: list[ModelRow] = []
    interrupted = False
    with Status(progress_console(quiet=quiet)) as tell, ExitStack() as stack:
        place = stack.enter_context(find_workers_of(resolve("native"), workers))
        path = db or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "records.db"
        try:
            if "operators" in wanted:
                rows += compare_operators(only, trials, seed, path, tell, place)
            if "model" in wanted:
                for row in compare_model(model, layers, kinds, others, trials, seed, path, tell, place):
                    compared.append(row)  # one by one: Ctrl-C leaves those that are done
        except InterruptedRows as partial:
            rows, interrupted = partial.rows, True
        except KeyboardInterrupt:
            interrupted = True
    show(rows, compared, chart, markdown)
    if as_json:
        report = {
            "machine": str(resolve("native")), "trials": trials, "layers": layers,
            "operators": [row.as_data() | {"gains": experiment.gains(row)} for row in rows],
            "models": [row.as_data() for row in compared],
        }  # fmt: skip
        as_json.write_text(json.dumps(report, indent=1))
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if wrong := [row for row in compared if "ours" not in row.latencies]:
        why = [row.absent.get("ours") or row.absent.get("everybody", "") for row in wrong]
        raise ContestantError("\n".join(f"{r.name}, {r.precision}: {w}" for r, w in zip(wrong, why)))


def compare_operators(
    only: str, trials: int, seed: int, path: Path, tell: Any, place: Place
) -> list[SpacesRow]:
    target = resolve("native")
    subjects = [one for one in experiment.operators() if only in one.label]
    if not subjects:
        raise typer.BadParameter(
            f"no operator has {only!r}; there are {[o.label for o in experiment.operators()]}"
        )
    with database.open(path) as db:
        return compare_spaces(
            subjects, lambda one: experiment.spaces_of(one.program, target), [seed], trials, db, target, tell,
            place,
        )  # fmt: skip


def compare_model(
    name: str, layers: int | None, kinds: Sequence[str], others: Sequence[str], trials: int, seed: int,
    path: Path, tell: Any, place: Place,
) -> Any:  # fmt: skip
    try:
        from ...report import models
        from ...report.contestants.models import OTHERS, Subject
        from ...report.narrow_models import Databases, compare_precisions
    except ModuleNotFoundError as error:
        raise ContestantError("models need PyTorch: pip install torch==2.13.0") from error
    changes: dict[str, Any] = {} if layers is None else {"num_hidden_layers": layers}
    try:
        made, args = models.create(name, **changes)
    except ModuleNotFoundError as error:
        raise ContestantError("the model needs transformers: pip install transformers==5.22.2") from error
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error
    subjects = [Subject(name, made, args, precision) for precision in kinds]
    return compare_precisions(
        subjects, {who: OTHERS[who] for who in others}, Databases.beside(path), trials, seed, tell, place
    )


def show(
    rows: Sequence[SpacesRow], compared: Sequence[ModelRow], chart: Path | None, markdown: Path | None
) -> None:
    console = result_console()
    tables: list[tuple[str, list[list[str]]]] = []
    groups: dict[str, dict[str, float]] = {row.label: experiment.gains(row) for row in rows}
    if rows:
        tables.append(("Operators, weights constant", list(experiment.operator_cells(rows))))
    if compared:
        from ...report.narrow_models import OURS, model_cells

        tables.append(("Models: batch 1, fastest calls in alternating rounds", list(model_cells(compared))))
        for row in compared:
            ratios = {who: row.ratio(OURS, who) for who in row.latencies if who != OURS}
            groups[f"{row.name}, {row.precision}"] = {who: r for who, r in ratios.items() if r is not None}
    for title, lines in tables:
        console.print(table_of(lines, title))
    for row in compared:
        for who, why in row.absent.items():
            console.print(f"{row.name}, {row.precision}: without {who}: {why}", markup=False, soft_wrap=True)
    if chart:
        title = "Speedup: operators over those without instructions, models over others"
        chart.write_text(bar_chart(title, groups))
    if markdown:
        markdown.write_text("\n".join(f"**{title}**\n\n{as_markdown(lines)}" for title, lines in tables))


def parse_choice(text: str, known: tuple[str, ...], option: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}", param_hint=option)
    return names
