"""`profile`: where the time of a model goes, kernel by kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Column, Table

from ..measure.peak import measure_peak
from ..target import resolve
from ..workloads import operations
from .backend import functional
from .copies import on_copies
from .explain import key_of
from .graph import Graph
from .kernels import Compiler
from .pipeline import FusedGraph, fuse_graph
from .plan import EagerStep, KernelStep, Plan, plan_calls
from .runner import KernelSequence, Runner
from .tasks import DatabaseLike, open_database


class Clocked(Runner):
    """Makes every step by itself and keeps the times of the last call."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.seconds = [0.0] * len(plan.steps)

    def _divide(self, steps: Sequence[KernelStep | EagerStep]) -> list[KernelSequence | EagerStep]:
        return [self._sequence([step]) if isinstance(step, KernelStep) else step for step in steps]

    def _in_turn(self) -> Iterator[KernelSequence | EagerStep]:
        for n, part in enumerate(self._parts):
            start = time.perf_counter()
            yield part
            self.seconds[n] = time.perf_counter() - start


@dataclass
class Share:
    """A kernel, or what torch computes, in all its `calls` in a call of the model."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    operations: int = 0
    tuned: bool = False


@dataclass(frozen=True)
class Profile:
    """`whole` is the time of a call, with what is not in any kernel; `peak` in GFLOPS."""

    shares: list[Share]
    whole: float
    peak: float

    def table(self) -> Table:
        right = [Column(title, justify="right") for title in ("calls", "ms", "share", "GFLOPS", "of peak")]
        title = f"{1e3 * self.whole:.2f} ms a call; peak {self.peak:.0f} GFLOPS"
        table = Table("kernel", "tuned", *right, title=title, box=box.SIMPLE, padding=(0, 1))
        for one in sorted(self.shares, key=lambda one: -one.seconds):
            rate = one.operations / one.seconds / 1e9
            table.add_row(
                one.name, "yes" if one.tuned else "no", str(one.calls), f"{1e3 * one.seconds:.3f}",
                f"{one.seconds / self.whole:.1%}", f"{rate:.1f}", f"{rate / self.peak:.0%}",
            )  # fmt: skip
        between = self.whole - sum(one.seconds for one in self.shares)
        table.add_row("between kernels", "", "", f"{1e3 * between:.3f}", f"{between / self.whole:.1%}")
        return table

    def __str__(self) -> str:
        console = Console(width=120)
        with console.capture() as text:
            console.print(self.table())
        return text.get()


def profile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: DatabaseLike = None,
    calls: int = 20,
) -> Profile:
    """The time of every kernel of a model in its place, in the shortest of some calls.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> [(one.name, one.calls) for one in profile(model, (torch.ones(2, 8),)).shares]
    [('addmm_relu', 1)]
    """
    target = resolve("native").with_cores(torch.get_num_threads())
    made: list[tuple[FusedGraph, Clocked]] = []

    def build(graph: Graph) -> Runner:
        with open_database(database, readonly=True) as db:
            parts = fuse_graph(graph)
            made.append((parts, Clocked(plan_calls(parts, Compiler(target, db), target.cores))))
        return made[-1][1]

    torch._dynamo.reset()
    whole = math.inf
    times: list[list[float]] = []
    with torch.no_grad(), on_copies(model, args, kwargs) as (own, own_args, own_kwargs):
        run = torch.compile(own, backend=lambda graph, inputs: functional(graph, inputs, build, copy=True))
        run(*own_args, **own_kwargs)
        for _ in range(calls):
            start = time.perf_counter()
            run(*own_args, **own_kwargs)
            took = time.perf_counter() - start
            if took < whole:
                whole, times = took, [list(runner.seconds) for _, runner in made]
    shares: dict[str, Share] = {}
    for (parts, runner), seconds in zip(made, times, strict=True):
        add(shares, parts, runner.plan, seconds)
    return Profile(list(shares.values()), whole, measure_peak(target))


def add(shares: dict[str, Share], parts: FusedGraph, plan: Plan, times: Sequence[float]) -> None:
    groups = [group for group in parts.groups if group in parts.programs or group.eager]
    for group, step, seconds in zip(groups, plan.steps, times, strict=True):
        program = parts.programs.get(group)
        name = program.name if program else group.name
        share = shares.setdefault(key_of(group, program), Share(name))
        share.calls += 1
        share.seconds += seconds
        share.operations += operations(program) if program else 0
        share.tuned = isinstance(step, KernelStep) and plan.kernels[step.kernel].latency is not None
