"""The shapes that charts are made of, and the small plot of a tuning run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

COLOURS = ("#3b6fb6", "#d98032", "#4f9d69", "#8d6bb8", "#b8574f", "#7a7a7a", "#3fa7a3", "#b09a34")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 120, 56, 8, 22  # pixels, of the small plot
FAILED = f"fill='none' stroke='{COLOURS[4]}'"


def text(x: float, y: float, content: str, anchor: str, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' {more}>{escape(content)}</text>"


def rectangle(x: float, y: float, width: float, height: float, fill: str, tip: str) -> str:
    shape = f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height}' fill={quoteattr(fill)}>"
    return f"{shape}<title>{escape(tip)}</title></rect>"


def points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def drawing(width: float, height: float, parts: Iterable[str]) -> str:
    """Shapes on white, as a file of its own."""
    size = f"width='{width}' height='{height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} font-family='sans-serif' font-size='12'>"
    return "\n".join([head, "<rect width='100%' height='100%' fill='white'/>", *parts, "</svg>\n"])


def course(latencies: Sequence[float | None]) -> str:
    """Trials as dots (a failed one is hollow, on top) and the best so far as a line; the latencies are in
    seconds, on a logarithmic scale.

    >>> course([2e-6, None, 1e-6]).count("<circle")
    3
    """
    known = [latency for latency in latencies if latency]
    if not known:
        return ""
    low, high = math.log(min(known)), math.log(max(known))
    span = max(high - low, 0.05)

    def x(trial: int) -> float:
        return LEFT + 6 + (WIDTH - LEFT - 12) * trial / max(1, len(latencies) - 1)

    def y(latency: float) -> float:
        return TOP + 6 + (HEIGHT - TOP - BOTTOM - 12) * (high - math.log(latency)) / span

    def parts() -> Iterator[str]:
        best, steps = math.inf, []
        for n, latency in enumerate(latencies):
            tip = f"<title>trial {n}: {time(latency) if latency else 'failed'}</title>"
            if latency:
                steps += [(x(n), y(best)), (x(n), y(min(best, latency)))] if steps else [(x(n), y(latency))]
                best = min(best, latency)
            at, look = (y(latency), f"fill='{COLOURS[0]}'") if latency else (TOP, FAILED)
            yield f"<circle cx='{x(n):.1f}' cy='{at:.1f}' r='2.5' {look}>{tip}</circle>"
        steps.append((x(len(latencies) - 1), y(best)))
        yield f"<polyline points='{points(steps)}' fill='none' stroke='{COLOURS[1]}' stroke-width='1.5'/>"
        for latency in {min(known), max(known)}:
            yield text(LEFT, y(latency) + 4, time(latency), "end", "fill='currentColor'")
        yield text(LEFT + 6, HEIGHT - 6, "trial 0", "start", "fill='currentColor'")
        yield text(WIDTH - 6, HEIGHT - 6, str(len(latencies) - 1), "end", "fill='currentColor'")

    label = f"{len(latencies)} trials, the best {time(min(known))}"
    size = f"width='{WIDTH}' height='{HEIGHT}' font-size='11' font-family='sans-serif'"
    return f"<svg {size} role='img' aria-label='{label}'>{''.join(parts())}</svg>"


def time(seconds: float) -> str:
    """
    >>> time(3.21e-5)
    '32.1 us'
    """
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    unit, name = next((one for one in units if seconds >= one[0]), (1e-9, "ns"))
    return f"{seconds / unit:.3g} {name}"
