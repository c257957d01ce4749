"""`explain`: what becomes of a model. `tune`: its programs made fast. Neither compiles the model."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram
from torch.utils._pytree import tree_leaves

from ..ir import Program, structural_hash
from ..markup import html
from ..search import Result
from ..target import resolve
from .backend import OnlyLooking, functional
from .capture import capture_exported
from .copies import copy_tensor, on_copies
from .eager import follow_choices
from .fallback import REASONS, attempt
from .fuse import Group
from .graph import Graph
from .kernels import Compiler, name_model
from .pipeline import FusedGraph, fuse_graph
from .placement import GraphCall
from .resize import Sizes, arguments_of_sizes
from .tasks import DatabaseLike, open_database, tasks, tune_programs

COLUMNS = ("kernel", "nodes", "calls", "by", "record")


def models(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> list[FusedGraph]:
    """The graphs of a model, in pieces: several where Dynamo cannot trace it in one. A copy of it is run
    once, in eager."""
    return [one.parts for one in look(model, args, kwargs)]


def look(model: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> list[GraphCall]:
    """The same, each with the tensors that come to it."""
    if isinstance(model, ExportedProgram):
        return [look_at_exported(model)]
    found: list[GraphCall] = []

    def watch(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        def keep(graph: Graph) -> Any:
            seen = GraphCall(fuse_graph(graph), [])
            found.append(seen)

            def run(tensors: Sequence[torch.Tensor]) -> Any:
                if not seen.inputs:
                    seen.inputs.extend(copy_tensor(t) for t in tensors)
                raise OnlyLooking

            return run

        return functional(module, inputs, keep, copy=True)

    failures = REASONS.total()
    for _ in range(2):
        with torch.no_grad(), on_copies(model, args, kwargs) as (own, own_args, own_kwargs):
            torch.compile(own, backend=watch)(*own_args, **own_kwargs)
        if found or REASONS.total() > failures:
            return found
        torch._dynamo.reset()  # Dynamo gives up on code that it has compiled often
    if isinstance(model, torch.nn.Module):  # Dynamo leaves some alone that can be exported: nn.LSTM
        exported = attempt(lambda: export(model, args, kwargs))
        if exported is not None:
            return [look_at_exported(exported)]
    raise RuntimeError("torch.compile found no graph in the model; see TORCH_LOGS=graph_breaks,recompiles")


def look_at_exported(exported: ExportedProgram) -> GraphCall:
    given = [copy_tensor(t) for t in tree_leaves(exported.example_inputs) if isinstance(t, torch.Tensor)]
    return GraphCall(fuse_graph(capture_exported(exported)), given)


def export(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> ExportedProgram:
    with (
        torch.no_grad(),
        warnings.catch_warnings(action="ignore"),  # of what exporting thinks of nn.LSTM
        on_copies(model, args, kwargs) as (own, own_args, own_kwargs),
    ):
        return torch.export.export(own, own_args, own_kwargs, strict=False)


def look_at_sizes(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, sizes: Sizes | None
) -> list[GraphCall]:
    """The graphs of a model for all of some sizes of its inputs."""
    if not sizes:
        return look(model, args, kwargs)
    if isinstance(model, ExportedProgram):
        raise ValueError(
            "sizes are for models that can be called: an exported one has the sizes of its examples"
        )
    found: list[GraphCall] = []
    for own_args, own_kwargs in arguments_of_sizes(args, kwargs, sizes):
        torch._dynamo.reset()  # or the second size is taken for one of many
        found += look(model, own_args, own_kwargs)
    return found


@dataclass(frozen=True)
class Row:
    """A kernel, or a node that torch computes, and how often a call runs it."""

    name: str
    nodes: list[str]
    calls: int
    eager: str  # why it is not ours
    latency: float | None  # seconds, if there is a record


@dataclass(frozen=True)
class Explanation:
    """`fallbacks` counts the graphs that have run in eager as a whole in this process, by reason."""

    rows: list[Row]
    views: int  # nodes that cost nothing
    graphs: int
    fallbacks: Counter[str] = field(default_factory=Counter)

    @property
    def eager(self) -> list[Row]:
        """What is not ours."""
        return [row for row in self.rows if row.eager]

    def table(self) -> Table:
        table = Table(*COLUMNS, title=self.title())
        for row in self.cells():
            table.add_row(*row)
        return table

    def cells(self) -> Iterator[tuple[str, ...]]:
        for row in self.rows:
            record = "-" if row.latency is None else f"{1e6 * row.latency:.1f} us"
            by = f"eager: {row.eager}" if row.eager else "ours"
            yield row.name, ", ".join(row.nodes), str(row.calls), by, record

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        return html.view(html.paragraph(self.title()), html.table(COLUMNS, self.cells()))

    def title(self) -> str:
        kernels = sum(row.calls for row in self.rows if not row.eager)
        eager = sum(row.calls for row in self.eager)
        return f"{self.graphs} graph(s): {kernels} kernel calls, {eager} in eager, {self.views} views"

    def __str__(self) -> str:
        console = Console(width=120)
        with console.capture() as text:
            console.print(self.table())
            for reason, count in self.fallbacks.most_common():
                console.print(f"{count} graph(s) in this process in eager: {reason}", markup=False)
        return text.get()


def explain(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: DatabaseLike = None,
) -> Explanation:
    """Which kernels a model becomes, which nodes run in eager and why, and what the database knows of each.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    >>> [(row.name, row.eager) for row in explain(model, (torch.ones(2, 8),)).rows]
    [('addmm_relu', '')]
    """
    before = Counter(REASONS)
    found = models(model, args, kwargs)
    target = resolve("native").with_cores(torch.get_num_threads())
    rows: dict[str, Row] = {
        reason: Row("whole graph", [], count, reason, None) for reason, count in (REASONS - before).items()
    }
    with open_database(database, readonly=True) as db:
        for one in found:
            compiler = Compiler(target, db, name_model(one.programs.values()))
            one = follow_choices(one, compiler)
            for group in one.groups:
                program = one.programs.get(group)
                if program is not None or group.eager:
                    record = compiler.find_record(program) if program else None
                    add(rows, group, program, record and record.latency)
    views = sum(g.is_window for one in found for g in one.groups)
    return Explanation(list(rows.values()), views, len(found), Counter(REASONS))


def add(rows: dict[str, Row], group: Group, program: Program | None, latency: float | None) -> None:
    key = key_of(group, program)
    nodes = [str(node.target).removeprefix("aten.") for node in group.nodes]
    before = rows[key].calls if key in rows else 0
    name = program.name if program else group.name
    rows[key] = Row(name, nodes, before + 1, group.eager, latency)


def key_of(group: Group, program: Program | None) -> str:
    """What equal kernels share."""
    return f"{group.name}: {group.eager}" if program is None else structural_hash(program)


def tune(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: DatabaseLike,
    trials: int | None = None,
    minutes: float | None = None,
    show: bool = True,
    sizes: Sizes | None = None,
    **options: Any,
) -> list[Result]:
    """Tune the programs of a model for inputs like these; the records go to the database.

    With `sizes`, as `{"seq": [1, 16, 128, 512]}`, for inputs of each of these sizes (`resize.py`). Kernels
    for any size are scheduled as the largest of its class is (1, 16, 128, 512, then four times as large), if
    that has a record.

    The budget is shared by what each program can still win for the whole model; the same call again goes on
    where it was interrupted. `show` displays that; `options` are those of `metaschedule.tune`.
    """
    seen = look_at_sizes(model, args, kwargs, sizes)
    graphs = [one.parts for one in seen]
    found = tasks(graphs)
    eager = Counter((g.name, g.eager) for one in graphs for g in one.groups if g.eager)
    details = {"eager": [[name, why, times] for (name, why), times in eager.most_common()]}
    with open_database(database) as db:
        options = {"label": type(model).__name__, "details": details, **options}
        return tune_programs(found, db, show, seen, trials=trials, minutes=minutes, **options)
