"""The plot and the tables of a run alone: SVG, PNG and Markdown."""

from __future__ import annotations

from typing import Any

from ..database import Database
from ..report.band_chart import band_chart
from .history import list_runs
from .model import describe_model
from .views import view


def chart_of(db: Database, call: str | None = None) -> str:
    """The best so far over trials, a panel for each program, as SVG."""
    model = latest(db, call)
    panels: dict[str, Any] = {}
    for n, kernel in enumerate(model["kernels"]):
        course = view(db, f"run/{kernel['run']}")["course"]
        steps = per_trial(course["trial"], course["latency"])
        if steps:
            panels[f"{n + 1} {kernel['program']}"] = {"best so far": [(best, best, best) for best in steps]}
    return band_chart(model["label"] or "Tuning", panels)


def per_trial(trials: list[int], latencies: list[float]) -> list[float]:
    """The best after every trial, from where it changed.

    >>> per_trial([0, 2, 3], [5.0, 4.0, 4.0])
    [5.0, 5.0, 4.0, 4.0]
    """
    best: list[float] = []
    for n, latency in zip(trials, latencies):
        best += [best[-1] if best else latency] * (n - len(best)) + [latency]
    return best


def tables_of(db: Database, call: str | None = None) -> str:
    """The kernels of a run, and what it spent, in Markdown."""
    model = latest(db, call)
    rows = [
        f"| {escape(k['program'])} | {k['weight']:g} | {us(k['untuned'])} | {us(k['latency'])} "
        f"| {us(k['after'])} | {k['trials']} | {escape(k['stopped'] or '')} |"
        for k in model["kernels"]
    ]
    head = "| kernel | calls | untuned, us | tuned, us | in the model, us | trials | stopped |"
    all_kernels, compared = len(model["kernels"]), model["compared"]
    which = "" if compared == all_kernels else f" ({compared} of {all_kernels} kernels)"
    total = f"Before {us(model['before'])} us, after {us(model['after'])} us{which}, on {model['target']}."
    title = escape(model["label"] or "Tuning")
    return "\n".join([f"# {title}", "", total, "", head, "|---|---:|---:|---:|---:|---:|---|", *rows, ""])


def latest(db: Database, call: str | None) -> dict[str, Any]:
    calls = list_runs(db)["calls"]
    if call is None and not calls:
        raise LookupError(
            "the database has no runs to report on; records of older versions are in --format html"
        )
    return describe_model(db, calls[0]["call"] if call is None else call)


def us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e6 * seconds:.1f}"


def escape(name: str) -> str:
    """Names are users' text; Markdown takes HTML."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")


def as_png(svg: str) -> bytes:
    """A drawing as pixels, by resvg, which brings its own fonts' reader and needs no browser."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2))
