"""Writes docs/primitives.md out of the docstrings of the primitives: `python scripts/primitives.py`."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import metaschedule as ms
from metaschedule.schedule.primitive.base import REGISTRY, Primitive

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "primitives.md"
WIDTH = 110
HEAD = """\
# Primitives

Every step that a schedule can take. Each is a method of `Schedule` and an instruction of traces. It preserves
what the program computes, or raises `ScheduleError`, which underlines the place and gives the reason. Steps
that are composed of these are in [`schedule/library`](../metaschedule/schedule/library); they are methods of
`Schedule` too.

This page is written from the docstrings; edit those, then run `scripts/update docs`.

<!-- written by scripts/primitives.py -->
"""


def primitives_page() -> str:
    names = sorted(cls.op for cls in built_in())
    parts = [HEAD, textwrap.fill(", ".join(f"[{op}](#{op})" for op in names), WIDTH) + "\n"]
    for family, members in groupby(built_in(), key=lambda cls: cls.__module__):
        path = family.replace(".", "/") + ".py"
        title = f"## {Path(path).name}\n\n[`{path}`](../{path})"
        parts.append(f"{title}: {summary(sys.modules[family])}\n")
        parts += map(entry, members)
    return "\n".join([*parts, "<!-- end -->\n"])


def built_in() -> list[type[Primitive]]:
    """The primitives of the package by file, in the order of the file."""
    mine = [cls for cls in REGISTRY.values() if cls.__module__.startswith("metaschedule.")]
    return sorted(mine, key=lambda cls: cls.__module__)


def summary(module: ModuleType) -> str:
    """The first paragraph of a file's docstring."""
    return " ".join((inspect.getdoc(module) or "").partition("\n\n")[0].split())


def entry(cls: type[Primitive]) -> str:
    parts = sections(inspect.getdoc(cls) or "")
    text = [f"### {cls.op}\n", f"```python\n{call_of(cls)}\n```\n", *[f"{p}\n" for p in parts["what"]]]
    if parts["rewrite"]:
        rewriting = textwrap.dedent("\n".join(parts["rewrite"]))
        text.append(f"```text\n{rewriting}\n```\n")
    if parts["requires"]:
        text.append("Requires:\n" + "".join(f"\n{item}" for item in parts["requires"]) + "\n")
    text += [f"{p}\n" for p in parts["rest"]]
    return "\n".join(text)


def call_of(cls: type[Primitive]) -> str:
    """How `Schedule` offers it: `sch.split(loop: LoopRV, factors: ...) -> list[LoopRV]`."""
    method: Callable[..., Any] | None = getattr(ms.Schedule, cls.op, None)
    if method is None:
        return f"sch.sample({cls.__name__}({', '.join(cls.names)}))"
    signature = inspect.signature(method)
    _, *parameters = signature.parameters.values()
    each = [*map(written, parameters)]
    start, end = f"sch.{cls.op}(", f") -> {signature.return_annotation}"
    line = f"{start}{', '.join(each)}{end}"
    return line if len(line) <= WIDTH else start + "".join(f"\n    {p}," for p in each) + "\n" + end


def written(p: inspect.Parameter) -> str:
    star = "*" if p.kind is p.VAR_POSITIONAL else ""
    default = "" if p.default is p.empty else f" = {p.default!r}"
    return f"{star}{p.name}: {p.annotation}{default}"


def sections(doc: str) -> dict[str, list[str]]:
    """A docstring in parts: what it does, the rewriting, what is required (one item each), the rest."""
    found: dict[str, list[str]] = {"what": [], "rewrite": [], "requires": [], "rest": []}
    where = "what"
    for line in doc.splitlines():
        label = re.match(r"(rewrite|requires):", line)
        if label:
            where = label[1]
            line = " " * label.end() + line[label.end() :]
        elif where != "what" and line and not line.startswith(" "):
            where = "rest"
        found[where].append(line.rstrip())
    items = " ".join(line.strip() for line in found["requires"])
    found["requires"] = [item.strip() for item in re.split(r" (?=\d+\. )", items) if item.strip()]
    found["rewrite"] = [line for line in found["rewrite"] if line]
    return {**found, "what": list(paragraphs(found["what"])), "rest": list(paragraphs(found["rest"]))}


def paragraphs(lines: list[str]) -> Iterator[str]:
    for filled, group in groupby(lines, key=bool):
        if filled:
            yield "\n".join(group)


if __name__ == "__main__":
    PAGE.write_text(primitives_page())
