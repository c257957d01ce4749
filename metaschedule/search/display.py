"""What a person sees while tuning: progress, time left, the best so far; and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..measure import WorkerNode
from ..measure.peak import measure_peak
from ..target import Target
from .progress import Progress as Snapshot
from .result import Result

NARROW = 72  # columns, below which a table is a line for each program
MINUTE = 60.0
PERIOD = 5.0  # seconds after which a line says what goes on, where lines are all there is
PHASES = {
    "search": "choosing candidates",
    "model": "learning",
    "build": "building",
    "run": "measuring",
    "confirm": "confirming the leaders",
    "wait": "waiting",
    "place": "timing kernels in the model",
}


class Display:
    """A live table on a terminal; elsewhere a line per step, and some within long ones."""

    def __init__(
        self, console: Console, work: Mapping[str, int], target: Target, nodes: Sequence[WorkerNode] = ()
    ) -> None:
        """`work` is how many floating-point operations each program takes; `nodes` are the machines that
        run it, if not this one."""
        self.console = console
        self.work = work
        known = [node.peak for node in nodes if node.peak and node.target.cpu == target.cpu]
        if target.gpu is not None:
            self.peak = target.gpu.peak("float32") / 1e9
        else:
            self.peak = known[0] if known else measure_peak(target)  # GFLOPS, before anything else runs
        self.rows: dict[int, Snapshot] = {}
        self.last: Snapshot | None = None
        self.told = self.heard = time.monotonic()  # when the last line was printed; when the last news came
        self.minutes = 0  # that were told of
        live = console.is_terminal and not console.quiet
        self.live = Live(self, console=console, refresh_per_second=4) if live else None

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
        self.last, self.heard = snapshot, time.monotonic()
        self.tell_minutes(snapshot)
        if self.live is None and self.is_worth_a_line(snapshot):
            self.console.print(self.line(snapshot), markup=False, highlight=False, soft_wrap=True)
            self.told = self.heard

    def is_worth_a_line(self, p: Snapshot) -> bool:
        done = p.event in ("measured", "confirmed", "stopped", "wait")
        begun = p.event == "confirm" and p.of == 1
        return done or begun or self.heard - self.told > PERIOD

    def line(self, p: Snapshot) -> str:
        of = "" if p.budget is None else f"/{p.budget}"
        counts = ", ".join(f"{n} {kind}" for kind, n in p.outcomes.items()) or "none yet"
        return (
            f"{p.elapsed:6.1f} s  {p.program}: {p.trials}{of} trials ({counts}), best {self.best(p)}"
            f"{'; ' if phase(p) else ''}{phase(p)}{time_left(p.left)}"
        )

    def tell_minutes(self, p: Snapshot) -> None:
        """Once a minute, what stopping now would give."""
        if p.elapsed >= MINUTE * (self.minutes + 1) and won(p):
            self.minutes = int(p.elapsed // MINUTE)
            text = f"after {self.minutes} min: {won(p)}{time_left(p.left)}"
            self.console.print(text, markup=False, highlight=False)

    def best(self, p: Snapshot) -> str:
        return describe_latency(p.latency, self.work[p.program], self.peak)

    def __rich__(self) -> RenderableType:
        """Drawn several times a second, whether there is news or not: the clock goes on."""
        if self.last is None:
            return Text("preparing")
        table = Table("program", "best", "untuned", "outcomes", "model")
        lines: list[Text] = []
        for p in [self.rows[n] for n in sorted(self.rows)]:
            counts = ", ".join(f"{n} {kind}" for kind, n in p.outcomes.items())
            model = "-" if p.accuracy is None else f"{p.accuracy:.2f}"
            table.add_row(p.program, self.best(p), microseconds(p.untuned), counts, model)
            lines.append(Text(f"{p.program}: {microseconds(p.latency)}"))
        if self.console.width < NARROW:
            return Group(Text(self.headline(self.last)), *lines)
        parts = [Text(self.headline(self.last)), table]
        return Group(*parts, node_table(self.last.nodes)) if self.last.nodes else Group(*parts)

    def headline(self, p: Snapshot) -> str:
        since = time.monotonic() - self.heard
        left = None if p.left is None else max(0.0, p.left - since)
        of = "" if p.budget is None else f" of {p.budget}"
        where = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in p.seconds.items())
        now = f"; {p.program}: {phase(p)}" if phase(p) else ""
        gain = f"; {won(p)}" if won(p) else ""
        return f"{p.trials}{of} trials, {p.elapsed + since:.0f} s{time_left(left)} ({where}){now}{gain}"


def node_table(nodes: Sequence[WorkerNode]) -> Table:
    """The machines of a cluster, and what each does."""
    table = Table("machine", "kind", "now", "program", "trials", "a minute", "disturbed", box=box.SIMPLE)
    for node in nodes:
        kind = f"{node.target.cpu}, {node.target.cores} cores"
        disturbed = f"{node.disturbed:.0%}" if node.trials else "-"
        rate = f"{node.rate:.0f}"
        table.add_row(node.name, kind, node.state, node.program, str(node.trials), rate, disturbed)
    return table


def phase(p: Snapshot) -> str:
    """What goes on, and how far it is."""
    if p.event not in PHASES:
        return ""
    far = f" {p.done} of {p.of}" if p.of > 1 else ""
    return f"{PHASES[p.event]}{far}{': ' if p.detail else ''}{p.detail}"


def won(p: Snapshot) -> str:
    """What the whole that programs are part of has won so far."""
    if not p.whole or not p.whole_untuned:
        return ""
    times = f"{1e3 * p.whole:.3g} ms, untuned {1e3 * p.whole_untuned:.3g} ms"
    return f"the kernels of the model take {times}: {p.whole_untuned / p.whole:.2f} times as fast"


def time_left(seconds: float | None) -> str:
    return "" if seconds is None else f", about {seconds:.0f} s left"


def microseconds(latency: float | None) -> str:
    return "-" if latency is None else f"{1e6 * latency:.1f} us"


def describe_latency(latency: float | None, work: float, peak: float) -> str:
    """A latency with what it means: GFLOPS and the share of the peak."""
    if latency is None or not work:
        return microseconds(latency)
    rate = work / latency / 1e9
    return f"{microseconds(latency)}, {rate:.1f} GFLOPS, {100 * rate / peak:.0f}% of peak"


def summary(results: Sequence[Result], display: Display, width: int) -> RenderableType:
    """One row for each program; a line where there is no room for a table. Then what there is to note."""
    title = f"peak {display.peak:.0f} GFLOPS"
    table = Table("program", "best", "won over untuned", "trials", "seconds", title=title)
    lines = [Text(title)]
    for r in results:
        won = f"{r.untuned / r.latency:.2f}x" if r.untuned and r.latency else "-"
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in r.seconds.items())
        counts = ", ".join(f"{n} {kind}" for kind, n in r.outcomes.most_common())
        best = describe_latency(r.latency, display.work[r.program.name], display.peak)
        best += ", predicted" if r.kind == "predicted" else ""
        table.add_row(r.program.name, best, won, counts, spent)
        lines.append(Text(f"{r.program.name}: {best}, {won} untuned; {counts}"))
    said = [Text(f"{r.program.name}: {what}") for r in results for what in (r.stopped, *r.notes) if what]
    return Group(*lines, *said) if width < NARROW else Group(table, *said)
