"""The figures of a comparison of whole models: cells of a table, ratios of a chart, geometric means."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from .contestants.models import PYTORCH
from .rounds import ModelRow

OURS = ("untuned", "optimized", "tuned")
SHORT = {
    "torch-compile-default": "compile", "torch-compile": "freezing", "torch-compile-max-autotune": "autotune",
}  # fmt: skip


def others_of(rows: Sequence[ModelRow]) -> list[str]:
    return [who for who in dict.fromkeys(who for row in rows for who in row.latencies) if who not in OURS]


def ratios(row: ModelRow, mine: str) -> dict[str, float]:
    """How many times as fast as everybody, as the best of PyTorch, and as the best of all."""
    others = others_of([row])
    sides = {who: (who,) for who in others} | {"PyTorch's best": PYTORCH, "the best": tuple(others)}
    return {name: r for name, who in sides.items() if (r := row.ratio(mine, *who)) is not None}


def means(rows: Sequence[ModelRow], mine: str) -> dict[str, float]:
    """Geometric means over the models that have both sides."""
    found = [ratios(row, mine) for row in rows]
    names = dict.fromkeys(name for one in found for name in one)
    return {name: statistics.geometric_mean([one[name] for one in found if name in one]) for name in names}


def model_cells(rows: Sequence[ModelRow]) -> Iterator[list[str]]:
    """Heading first, geometric means last. Milliseconds; then how many times as fast ours is."""
    others, mine = others_of(rows), [who for who in OURS if any(who in row.latencies for row in rows)]
    against = ("PyTorch's best", "the best")
    yield [
        "", *(f"{SHORT.get(who, who)} ms" for who in (*others, *mine)),
        *(f"{who} x {other}" for who in mine for other in against),
    ]  # fmt: skip
    for row in rows:
        found = [row.latencies.get(who) for who in (*others, *mine)]
        times = ["-" if seconds is None else f"{1e3 * seconds:.3g}" for seconds in found]
        faster = {who: ratios(row, who) for who in mine}
        yield [row.name, *times, *(in_ratio(faster[who].get(other)) for who in mine for other in against)]
    averages = {who: means(rows, who) for who in mine}
    blank = [""] * (len(others) + len(mine))
    yield ["geometric mean", *blank, *(in_ratio(averages[w].get(o)) for w in mine for o in against)]


def in_ratio(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"
