"""The figures of a comparison as text: a heading and cells, for a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .operators import Row, Time, geometric_means

TITLES = {False: "Weights are arguments: packing them counts", True: "Weights are constants"}


def cells(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Heading first, geometric means last. Times in microseconds; "native" ones are of native loops."""
    called = list(dict.fromkeys(name for row in rows for name in row.python))
    native = list(dict.fromkeys(name for row in rows for name in row.native))
    against = list(dict.fromkeys(name for row in rows for name in row.opponents))
    yield [
        "", *(f"{name} us" for name in called), *(f"{name} us, native" for name in native),
        *(f"x {name}" for name in against), "GFLOPS", "of peak", "GB/s",
    ]  # fmt: skip
    for row in rows:
        yield [
            row.case.label, *(microseconds(row.python.get(name)) for name in called),
            *(microseconds(row.native.get(name)) for name in native),
            *(f"{row.ratio(name):.2f}" if name in row.opponents else "-" for name in against),
            f"{row.gflops:.1f}", f"{row.share:.0%}", f"{row.bandwidth:.1f}" if row.bandwidth else "-",
        ]  # fmt: skip
    means = geometric_means(rows)
    blank = [""] * (len(called) + len(native))
    yield ["geometric mean", *blank, *(f"{means[name]:.2f}" for name in against), "", "", ""]


def microseconds(time: Time | None) -> str:
    return "-" if time is None else f"{1e6 * time.seconds:#.4g}".rstrip(".")


def in_markdown(tables: Sequence[Sequence[Row]]) -> str:
    """A table for each group of rows, under its title."""
    lines: list[str] = []
    for rows in tables:
        heading, *body = cells(rows)
        rule = ["---", *["---:"] * (len(heading) - 1)]
        lines += [f"**{TITLES[rows[0].case.constant]}**", ""]
        lines += [f"| {' | '.join(line)} |" for line in (heading, rule, *body)] + [""]
    return "\n".join(lines)
