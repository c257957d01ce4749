"""From a captured graph to the programs of a model: passes, then fusion."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir import Program
from . import attention  # noqa: F401  (registers its program)
from .fallback import about
from .fuse import Group, fuse, program_of
from .graph import Graph
from .in_order import go_in_order
from .in_place import write_in_place
from .outputs import Output, return_view_bases
from .own_programs import OWN_PROGRAMS, own_program
from .passes import rewrite


@dataclass(frozen=True)
class FusedGraph:
    """A model in groups. Those in `programs` are kernels to be; the others are windows, or run in eager."""

    graph: Graph
    groups: list[Group]
    programs: dict[Group, Program]
    outputs: list[Output]


def fuse_graph(graph: Graph) -> FusedGraph:
    """The graph is changed on the way."""
    outputs = return_view_bases(graph)
    rewrite(graph)
    if not graph.on_gpu:  # where no kernel is written by hand
        write_in_place(graph, outputs)
        go_in_order(graph)
    outputs = [replace(output, source=value) for output, value in zip(outputs, graph.outputs, strict=True)]
    groups = fuse(graph)
    programs = {g: program(g, graph) for g in groups if not g.is_window and not g.eager}
    return FusedGraph(graph, groups, programs, outputs)


def program(group: Group, graph: Graph) -> Program:
    with about(group.name):
        return (own_program if group.sink.target in OWN_PROGRAMS else program_of)(group, graph)
