"""A bar chart of ratios as SVG: bars to the right of 1 are wins. The scale is logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..markup.svg import COLOURS, drawing, rectangle, text

LABELS, WIDTH, BAR, GAP, HEAD = 220, 560, 12, 10, 40  # pixels
LEGEND = 4  # names in a row


def bar_chart(title: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """One group of bars for each entry; the names in the groups are the legend.

    >>> bar_chart("speed", {"GMM": {"torch": 1.3}}).startswith("<svg")
    True
    """
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    colour = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(names)}
    exponents = [math.log2(value) for bars in groups.values() for value in bars.values()]
    low, high = math.floor(min([-1.0, *exponents])), math.ceil(max([1.0, *exponents]))

    def x(value: float) -> float:
        return LABELS + WIDTH * (math.log2(value) - low) / (high - low)

    top = HEAD + 16 * max(1, math.ceil(len(names) / LEGEND))
    bottom = top + sum(len(bars) * BAR + GAP for bars in groups.values())

    def draw_parts() -> Iterator[str]:
        yield text(LABELS, 18, title, "start", "font-weight='bold'")
        for n, name in enumerate(names):
            row, column = divmod(n, LEGEND)
            left, y = LABELS + 130 * column, 28 + 16 * row
            yield rectangle(left, y, 10, 10, colour[name], name)
            yield text(left + 16, y + 10, name, "start")
        for exponent in range(low, high + 1):
            at = x(2.0**exponent)
            stroke = "#444" if exponent == 0 else "#ddd"
            yield f"<line x1='{at:.1f}' x2='{at:.1f}' y1='{top - 6}' y2='{bottom}' stroke='{stroke}'/>"
            yield text(at, bottom + 16, f"{2.0**exponent:g}x", "middle")
        y = top
        for label, bars in groups.items():
            yield text(LABELS - 8, y + len(bars) * BAR / 2 + 4, label, "end")
            for name, value in bars.items():
                left, right = sorted((x(1), x(value)))
                yield rectangle(
                    left, y + 1, right - left, BAR - 2, colour[name], f"{label}, {name}: {value:.2f}x"
                )
                y += BAR
            y += GAP

    return drawing(LABELS + WIDTH + 30, bottom + 28, draw_parts())
