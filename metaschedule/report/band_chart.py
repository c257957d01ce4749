"""Courses with bands as SVG: a panel for each subject, a line (the median) in a band (the range) for each
contestant. Both scales are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ..markup.svg import COLOURS, drawing, points, rectangle, text

Courses = Mapping[str, Sequence[tuple[float, float, float]]]  # low, median and high after each trial
WIDTH, HEIGHT, LEFT, TOP, GAP, COLUMNS = 330, 210, 70, 70, 75, 2  # pixels; panels in a row


def band_chart(title: str, panels: Mapping[str, Courses], unit: float = 1e-6, name: str = "us") -> str:
    """`panels` has the courses of each subject in seconds, shown in the unit.

    >>> band_chart("latency", {"GMM": {"loops": [(1e-6, 2e-6, 3e-6)] * 4}}).startswith("<svg")
    True
    """
    names = list(dict.fromkeys(one for courses in panels.values() for one in courses))
    colour = {one: COLOURS[n % len(COLOURS)] for n, one in enumerate(names)}
    rows = math.ceil(len(panels) / COLUMNS)
    width = LEFT + COLUMNS * (WIDTH + GAP)
    height = TOP + rows * (HEIGHT + GAP)

    def drawn() -> Iterator[str]:
        yield text(LEFT, 18, title, "start", "font-weight='bold'")
        for n, one in enumerate(names):
            yield rectangle(LEFT + 130 * n, 28, 10, 10, colour[one], one)
            yield text(LEFT + 130 * n + 16, 38, one, "start")
        for n, (subject, courses) in enumerate(panels.items()):
            row, column = divmod(n, COLUMNS)
            left, top = LEFT + column * (WIDTH + GAP), TOP + row * (HEIGHT + GAP)
            yield from panel(left, top, f"{subject}, {name} over trials", courses, colour, unit)

    return drawing(width, height, drawn())


def panel(
    left: float, top: float, title: str, courses: Courses, colour: Mapping[str, str], unit: float
) -> Iterator[str]:
    yield text(left, top - 8, title, "start")
    values = [v for course in courses.values() for band in course for v in band if math.isfinite(v)]
    if not values:
        return
    trials = max(map(len, courses.values()))
    low, high = math.floor(math.log2(min(values) / unit)), math.ceil(math.log2(max(values) / unit))
    high = max(high, low + 1)
    step = max(1, (high - low) // 6)

    def x(trial: int) -> float:
        return left + WIDTH * math.log2(trial) / max(1.0, math.log2(trials))

    def y(value: float) -> float:
        exponent = math.log2(value / unit) if math.isfinite(value) else high
        return top + HEIGHT * (high - exponent) / (high - low)

    for exponent in range(low, high + 1, step):
        at = y(2.0**exponent * unit)
        yield f"<line x1='{left}' x2='{left + WIDTH}' y1='{at:.1f}' y2='{at:.1f}' stroke='#ddd'/>"
        yield text(left - 6, at + 4, f"{2.0**exponent:g}", "end")
    for exponent in range(int(math.log2(trials)) + 1):
        yield text(x(2**exponent), top + HEIGHT + 16, str(2**exponent), "middle")
    for name, course in courses.items():
        lows, highs = ([(x(n + 1), y(band[k])) for n, band in enumerate(course)] for k in (0, 2))
        middle = [(x(n + 1), y(band[1])) for n, band in enumerate(course)]
        yield f"<polygon points='{points([*lows, *highs[::-1]])}' fill='{colour[name]}' fill-opacity='0.2'/>"
        yield f"<polyline points='{points(middle)}' fill='none' stroke='{colour[name]}' stroke-width='2'/>"
