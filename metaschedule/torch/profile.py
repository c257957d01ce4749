"""`profile`: where the time of a model goes, kernel by kernel."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Column, Table

from ..markup import html
from ..measure.peak import measure_peak
from ..target import resolve
from ..workloads import operations
from .backend import functional
from .clocked import Clocked
from .copies import on_copies
from .eager import follow_choices
from .explain import key_of
from .graph import Graph
from .kernels import Compiler, name_model
from .pipeline import FusedGraph, fuse_graph
from .plan import CONSTANTS, KernelStep, Plan, plan_calls
from .runner import Runner
from .tasks import DatabaseLike, open_database

NUMBERS = ("calls", "ms", "share", "GFLOPS", "of peak", "MB")


@dataclass
class Share:
    """A kernel, or what torch computes, in all its `calls` in a call of the model. `constants` are the bytes
    of weights as it takes them, by address: several calls may take the same."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    operations: int = 0
    tuned: bool = False
    constants: dict[int, int] = field(default_factory=dict)

    @property
    def memory(self) -> int:
        return sum(self.constants.values())


@dataclass(frozen=True)
class Profile:
    """`whole` is the time of a call, with what is not in any kernel; `dynamo` what of it is before and after
    our graphs: guards. `peak` in GFLOPS. `memory` are the bytes of intermediate results, for each call that
    runs at a time."""

    shares: list[Share]
    whole: float
    peak: float
    memory: int = 0
    dynamo: float = 0.0

    @property
    def constants(self) -> int:
        """Bytes of weights, of which a process has one copy."""
        found: dict[int, int] = {}
        for one in self.shares:
            found |= one.constants
        return sum(found.values())

    def cells(self) -> Iterator[tuple[str, ...]]:
        """The rows of the table, slowest kernels first, then what is in none: ours, and Dynamo's."""
        for one in sorted(self.shares, key=lambda one: -one.seconds):
            rate = one.operations / one.seconds / 1e9
            yield (
                one.name, "yes" if one.tuned else "no", str(one.calls), f"{1e3 * one.seconds:.3f}",
                f"{one.seconds / self.whole:.1%}", f"{rate:.1f}", f"{rate / self.peak:.0%}",
                megabytes(one.memory),
            )  # fmt: skip
        between = self.whole - self.dynamo - sum(one.seconds for one in self.shares)
        for name, seconds, memory in (
            ("between kernels", between, megabytes(self.memory)),
            ("Dynamo", self.dynamo, ""),
        ):
            yield name, "", "", f"{1e3 * seconds:.3f}", f"{seconds / self.whole:.1%}", "", "", memory

    def title(self) -> str:
        memory = f"{megabytes(self.constants)} MB of weights, {megabytes(self.memory)} MB for each call"
        return f"{1e3 * self.whole:.2f} ms a call; peak {self.peak:.0f} GFLOPS; {memory}"

    def _repr_html_(self) -> str:
        """The table with a bar for each share, for notebooks."""
        columns = ["kernel", "tuned", *[f">{name}" for name in NUMBERS], ""]
        rows = [(*row, html.bar(float(row[4].rstrip("%")) / 100, row[4])) for row in self.cells()]
        return html.view(html.paragraph(self.title()), html.table(columns, rows))

    def table(self) -> Table:
        right = [Column(title, justify="right") for title in NUMBERS]
        table = Table("kernel", "tuned", *right, title=self.title(), box=box.SIMPLE, padding=(0, 1))
        for row in self.cells():
            table.add_row(*row)
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
            compiler = Compiler(target, db, name_model(parts.programs.values()))
            parts = follow_choices(parts, compiler)
            made.append((parts, Clocked(plan_calls(parts, compiler, target.cores))))
        return made[-1][1]

    inside = 0.0  # of the last call: seconds in graphs

    def watch(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        run = functional(graph, inputs, build, copy=True)

        def timed(*args: Any) -> Any:
            nonlocal inside
            start = time.perf_counter()
            results = run(*args)
            inside += time.perf_counter() - start
            return results

        return timed

    torch._dynamo.reset()
    whole = dynamo = math.inf
    times: list[list[float]] = []
    with torch.no_grad(), on_copies(model, args, kwargs) as (own, own_args, own_kwargs):
        run = torch.compile(own, backend=watch)
        run(*own_args, **own_kwargs)
        for _ in range(calls):
            inside = 0.0
            start = time.perf_counter()
            run(*own_args, **own_kwargs)
            took = time.perf_counter() - start
            if took < whole:
                whole, dynamo = took, took - inside
                times = [list(runner.seconds) for _, runner in made]
    shares: dict[str, Share] = {}
    for (parts, runner), seconds in zip(made, times, strict=True):
        add(shares, parts, runner.plan, seconds)
    memory = sum(runner.plan.memory for _, runner in made)
    return Profile(list(shares.values()), whole, measure_peak(target), memory, dynamo)


def megabytes(size: int) -> str:
    return f"{size / 1e6:.2f}"


def add(shares: dict[str, Share], parts: FusedGraph, plan: Plan, times: Sequence[float]) -> None:
    groups = [group for group in parts.groups if group in parts.programs or group.eager]
    for group, step, seconds in zip(groups, plan.steps, times, strict=True):
        program = parts.programs.get(group)
        name = program.name if program else group.name
        share = shares.setdefault(key_of(group, program), Share(name))
        share.calls += 1
        share.seconds += seconds
        share.operations += operations(program) if program else 0
        if isinstance(step, KernelStep):
            found = [plan.constants[offset] for base, offset in step.arguments if base == CONSTANTS]
            share.constants |= {tensor.data_ptr(): tensor.nbytes for tensor in found}
        share.tuned = isinstance(step, KernelStep) and plan.kernels[step.kernel].latency is not None
