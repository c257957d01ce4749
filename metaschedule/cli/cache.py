"""`metaschedule cache`: what is kept on disk of kernels and models, and how to be rid of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import typer
from rich.table import Table

from ..cache import Store, cache_directory, identify, store
from ..cache.store import KINDS
from ..target import resolve
from .options import AsJson
from .output import result_console

commands = typer.Typer(
    no_args_is_help=True, help="Look at the cache of compiled kernels and models, and empty it."
)


@commands.command()
def info(as_json: AsJson = False) -> None:
    """Show where the cache is, how much there is of each kind, and how much of other versions or machines."""
    found = summarise(open_store())
    if as_json:
        print(json.dumps(found))
        return
    table = Table("kind", "entries", "MB", title=f"{found['directory']}", title_justify="left")
    for kind in KINDS:
        one = found["kinds"][kind]
        table.add_row(kind, str(one["entries"]), megabytes(one["bytes"]))
    table.add_row("of other versions or machines", str(found["others"]), megabytes(found["others_bytes"]))
    table.add_row("bound", "", megabytes(found["bound"]) if found["bound"] else "off")
    result_console().print(table)


@commands.command()
def clear(as_json: AsJson = False) -> None:
    """Remove all entries. Processes that run keep what they have loaded."""
    found = open_store()
    entries, size = found.clear()
    left = sum(1 for _ in found.files())
    if as_json:
        print(json.dumps({"removed": entries, "bytes": size, "left": left}))
    else:
        print(f"{entries} entries removed, {megabytes(size)} MB")
    if left:
        typer.echo(f"{left} entries could not be removed from {found.directory}", err=True)
        raise typer.Exit(1)


def open_store() -> Store:
    try:
        return store()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def summarise(found: Store) -> dict[str, Any]:
    entries, sizes = Counter[str](), Counter[str]()
    others = others_bytes = 0
    native = resolve("native")
    own = {identify(native.with_cores(n).to_json()) for n in range(1, native.cores + 1)}
    for one in found.files():
        entries[one.kind] += 1
        sizes[one.kind] += one.size
        if one.kind != "constants" and one.identity not in own:
            others, others_bytes = others + 1, others_bytes + one.size
    return {
        "directory": str(cache_directory()),
        "bound": found.bound,
        "bytes": sizes.total(),
        "kinds": {kind: {"entries": entries[kind], "bytes": sizes[kind]} for kind in KINDS},
        "others": others,
        "others_bytes": others_bytes,
    }


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
