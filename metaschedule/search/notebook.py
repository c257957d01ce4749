"""The progress bar of a notebook: what `Display` is in a terminal, as one output that changes."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..markup import html
from .display import microseconds, phase, time_left
from .progress import Progress

PERIOD = 0.25  # seconds between two pictures, unless the run is over


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class ProgressBar:
    """Listens to `metaschedule.tune` and shows how far it is below the cell that calls it."""

    def __init__(self, output: Any = None) -> None:
        """`output` is IPython's handle of a display, or what updates like one."""
        self.output = output
        self.drawn = 0.0
        self.rows: dict[int, Progress] = {}

    def __call__(self, p: Progress) -> None:
        self.rows[p.number] = p
        now = time.monotonic()
        if p.event in ("confirmed", "stopped") or now - self.drawn >= PERIOD:
            self.drawn = now
            self.update(Picture(self.picture(p)))

    def update(self, picture: Picture) -> None:
        if self.output is None:
            from IPython.display import display  # there, as `is_notebook` says

            self.output = display(picture, display_id=True)
        else:
            self.output.update(picture)

    def picture(self, p: Progress) -> str:
        """HTML of the bar, what goes on, and the best of each program."""
        of = "" if p.budget is None else f" of {p.budget}"
        now = f"; {p.program}: {phase(p)}" if phase(p) else ""
        left = time_left(p.left or None)  # the bar stays: where nothing is left, it says nothing of it
        said = f"{p.trials}{of} trials, {p.elapsed:.0f} s{left}{now}"
        if p.budget is None and p.minutes is not None:  # limited by time alone
            bar = html.progress(int(p.elapsed), max(1, int(60 * p.minutes)), said)
        else:
            bar = html.progress(p.trials, p.budget, said)
        rows = [
            [one.program, microseconds(one.latency), microseconds(one.untuned), sum(one.outcomes.values())]
            for _, one in sorted(self.rows.items())
        ]
        return html.view(bar, html.table(["program", ">best", ">untuned", ">trials"], rows))


class Picture:
    """HTML that a notebook shows; its text for what keeps no HTML."""

    def __init__(self, markup: str) -> None:
        self.markup = markup

    def _repr_html_(self) -> str:
        return self.markup

    def __repr__(self) -> str:
        return "tuning"
