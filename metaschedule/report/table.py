"""The figures of a comparison as text: a heading and cells, for a terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .operators import OperatorRow, Time, geometric_means

TITLES = {False: "Weights are arguments: packing them counts", True: "Weights are constants"}


def cells(rows: Sequence[OperatorRow]) -> Iterator[list[str]]:
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
    return "-" if time is None else in_us(time.seconds)


def in_us(seconds: float) -> str:
    """Microseconds, four digits.

    >>> in_us(23.456e-6), in_us(0.0012)
    ('23.46', '1200')
    """
    return f"{1e6 * seconds:.0f}" if seconds >= 1e-3 else f"{1e6 * seconds:#.4g}"


def in_markdown(tables: Sequence[Sequence[OperatorRow]]) -> str:
    """A table for each group of rows, under its title."""
    titled = [(TITLES[rows[0].case.constant], as_markdown(list(cells(rows)))) for rows in tables]
    return "\n".join(f"**{title}**\n\n{table}" for title, table in titled)


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Cells as a table, the heading first.

    >>> print(as_markdown([["", "us"], ["GMM", "12"]]), end="")
    |  | us |
    | --- | ---: |
    | GMM | 12 |
    """
    heading, *body = lines
    rule = ["---", *["---:"] * (len(heading) - 1)]
    return "".join(f"| {' | '.join(line)} |\n" for line in (heading, rule, *body))
