"""`metaschedule report`: what was tuned, as a file to attach or to keep."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..dashboard import figures
from ..database import open
from .output import result_console


class Format(StrEnum):
    html = "html"
    svg = "svg"
    png = "png"
    md = "md"
    json = "json"


def report(
    database: Annotated[str, typer.Argument(help="database file, or postgresql://...")] = "tuning.db",
    output: Annotated[Path, typer.Option("--output", "-o", help="file to write")] = Path("report.html"),
    kind: Annotated[
        Format | None, typer.Option("--format", help="what to write, if the file's name does not say it")
    ] = None,
    run: Annotated[str | None, typer.Option(help="the call of tune to report on; else the latest")] = None,
) -> None:
    """Write a run's views as a page that needs no server, its plot (svg, png), tables (md), data (json)."""
    suffix = output.suffix.removeprefix(".").lower()
    if kind is None and suffix not in list(Format):
        raise typer.BadParameter(f"{output}: say what to write with --format {'|'.join(Format)}")
    wanted = kind or Format(suffix)
    with open(database, readonly=True) as db:
        try:
            if wanted is Format.html:
                from ..dashboard.report import make_page

                content: str | bytes = make_page(db, run)
            elif wanted is Format.json:
                from ..dashboard.report import collect

                content = json.dumps(collect(db, run), indent=1)
            elif wanted is Format.md:
                content = figures.tables_of(db, run)
            else:
                content = figures.chart_of(db, run)
                content = figures.as_png(content) if wanted is Format.png else content
        except LookupError as error:
            raise typer.BadParameter(str(error)) from None
        except ModuleNotFoundError as error:
            raise typer.BadParameter(
                f"this needs {error.name}: pip install 'metaschedule[dashboard]'"
            ) from None
    if isinstance(content, bytes):
        output.write_bytes(content)
    else:
        output.write_text(content, encoding="utf-8")
    result_console().print(f"{output}: {output.stat().st_size:,} bytes", highlight=False, soft_wrap=True)
