"""Groups that torch computes although we could, because it is faster: node by node, by its own operators.

Which those are has been measured in the model (`placement.py`) and is in the database.
"""

from __future__ import annotations

from collections.abc import Collection

from torch._ops import OpOverload

from ..ir import structural_hash
from .fuse import Facts, Group
from .graph import Node
from .kernels import Compiler
from .pipeline import FusedGraph
from .windows import CUTS, is_view, whole, window_of

FASTER = "eager is faster, as measured in the model"


def follow_choices(parts: FusedGraph, compiler: Compiler) -> FusedGraph:
    """The graph with those groups left to torch that the database says so of."""
    db = compiler.database
    if db is None:
        return parts
    wanted: set[str] = set()
    for program in parts.programs.values():
        choice = db.choice(program, compiler.target, compiler.model)
        if choice is not None and choice.how == "eager":
            wanted.add(structural_hash(program))
    return leave_to_eager(parts, wanted)


def leave_to_eager(parts: FusedGraph, programs: Collection[str]) -> FusedGraph:
    """The graph with the groups of some programs, by hash, divided into nodes that torch computes; those that
    it has no operators for stay as they are."""
    if not programs:
        return parts
    groups: list[Group] = []
    kept = dict(parts.programs)
    for group in parts.groups:
        program = parts.programs.get(group)
        if program is None or structural_hash(program) not in programs or not is_eagers(group, parts):
            groups.append(group)
            continue
        del kept[group]
        groups += [as_eager(node, group) for node in group.nodes]
    return FusedGraph(parts.graph, groups, kept, parts.outputs)


def is_eagers(group: Group, parts: FusedGraph) -> bool:
    """Whether torch has operators for a group, and nothing is written in place."""
    plain = all(isinstance(node.target, OpOverload) for node in group.nodes)
    return plain and parts.graph.in_place.keys().isdisjoint(group.outputs)


def as_eager(node: Node, group: Group) -> Group:
    """A group of its own; within the group a view of what is there needs no call."""
    if (is_view(node) or node.target in CUTS) and not set(node.results) & set(group.outputs):
        window = window_of(node, whole(node.reads[0]))
        if window is not None:
            node.result.window = window
            return Group(node, Facts(group.kind), group.tensors)
    one = Group(node, Facts(group.kind, eager=FASTER), group.tensors)
    one.outputs = list(node.results)
    return one
