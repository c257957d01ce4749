"""What a person sees while tuning: progress, time left, the best so far; and the table at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..search import Progress as Snapshot
from ..search import Result
from ..target import Target
from .peak import measured_peak


class Display:
    """A live table on a terminal; a line per step elsewhere."""

    def __init__(self, console: Console, work: Mapping[str, int], target: Target) -> None:
        """`work` is how many floating-point operations each program takes."""
        self.console = console
        self.work = work
        self.untuned: dict[str, float | None] = {}
        self.peak = measured_peak(target)  # GFLOPS, before anything else runs
        self.rows: dict[int, Snapshot] = {}
        self.live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def update(self, snapshot: Snapshot) -> None:
        self.rows[snapshot.number] = snapshot
        self.untuned[snapshot.program] = snapshot.untuned
        if self.live:
            self.live.update(self.table(snapshot))
        elif snapshot.event in ("measured", "stopped"):
            self.console.print(self.line(snapshot), highlight=False, soft_wrap=True)

    def line(self, p: Snapshot) -> str:
        of = "" if p.budget is None else f"/{p.budget}"
        counts = ", ".join(f"{n} {kind}" for kind, n in p.outcomes.items())
        return f"{p.elapsed:6.1f} s  {p.program}: {p.trials}{of} trials ({counts}), best {self.best(p)}"

    def best(self, p: Snapshot) -> str:
        return described(p.latency, self.work[p.program], self.peak)

    def table(self, last: Snapshot) -> Table:
        table = Table("program", "best", "untuned", "outcomes", "model", title=self.headline(last))
        for p in [self.rows[n] for n in sorted(self.rows)]:
            counts = ", ".join(f"{n} {kind}" for kind, n in p.outcomes.items())
            model = "-" if p.accuracy is None else f"{p.accuracy:.2f}"
            table.add_row(p.program, self.best(p), microseconds(p.untuned), counts, model)
        return table

    def headline(self, p: Snapshot) -> str:
        done = p.trials / p.budget if p.budget else 0.0
        if p.minutes:
            done = max(done, p.elapsed / (60 * p.minutes))
        left = p.elapsed / done - p.elapsed if 0 < done < 1 else 0.0
        of = "" if p.budget is None else f" of {p.budget}"
        where = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in p.seconds.items())
        return f"{p.trials}{of} trials, {p.elapsed:.0f} s, about {left:.0f} s left ({where})"


def microseconds(latency: float | None) -> str:
    return "-" if latency is None else f"{1e6 * latency:.1f} us"


def described(latency: float | None, work: float, peak: float) -> str:
    """A latency with what it means: GFLOPS and the share of the peak."""
    if latency is None or not work:
        return microseconds(latency)
    rate = work / latency / 1e9
    return f"{microseconds(latency)}, {rate:.1f} GFLOPS, {100 * rate / peak:.0f}% of peak"


def summary(results: Sequence[Result], display: Display) -> Table:
    """One row for each program."""
    title = f"peak {display.peak:.0f} GFLOPS"
    table = Table("program", "best", "won over untuned", "trials", "seconds", title=title)
    for r in results:
        before = display.untuned.get(r.program.name)
        won = f"{before / r.latency:.2f}x" if before and r.latency else "-"
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in r.seconds.items())
        counts = ", ".join(f"{n} {kind}" for kind, n in r.outcomes.most_common())
        best = described(r.latency, display.work[r.program.name], display.peak)
        table.add_row(r.program.name, best, won, counts, spent)
    return table
