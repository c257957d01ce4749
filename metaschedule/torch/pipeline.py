"""From a captured graph to the programs of a model: passes, then fusion."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..ir import Program, changed
from ..ir.annotations import ROUNDING
from .fallback import about
from .fuse import Group, fuse, program_of
from .graph import Graph, Target
from .lowering import NotLowered
from .lowerings.winograd import CANCELLATION
from .outputs import Output, without_views
from .passes import rewrite

ALTERNATIVES: dict[Target, Target] = {"conv2d_channels_last": "winograd"}  # computing the same otherwise


@dataclass(frozen=True)
class Pieces:
    """A model in groups. Those in `programs` are kernels to be; the others are windows, or run in eager. Some
    have a second program, the `alternatives`."""

    graph: Graph
    groups: list[Group]
    programs: dict[Group, Program]
    alternatives: dict[Group, Program]
    outputs: list[Output]


def pieces(graph: Graph) -> Pieces:
    """The graph is changed on the way."""
    outputs = without_views(graph)
    rewrite(graph)
    outputs = [replace(output, source=value) for output, value in zip(outputs, graph.outputs, strict=True)]
    groups = fuse(graph)
    programs = {g: program(g, graph) for g in groups if not g.is_window and not g.eager}
    alternatives = {g: other for g in programs if (other := alternative(g, graph))}
    return Pieces(graph, groups, programs, alternatives, outputs)


def program(group: Group, graph: Graph) -> Program:
    with about(group.name):
        return program_of(group, graph)


def alternative(group: Group, graph: Graph) -> Program | None:
    """The program of a group with another operator in the place of its anchor, if there is one for it."""
    anchor = group.anchor
    if anchor is None or anchor.target not in ALTERNATIVES:
        return None
    try:
        program = program_of(group, graph, {anchor: ALTERNATIVES[anchor.target]})
    except NotLowered:
        return None
    return changed(program, annotations={ROUNDING.key: CANCELLATION})
