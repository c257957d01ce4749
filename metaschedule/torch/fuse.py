"""Fusion: nodes to groups, each of which becomes one program.

A group has one *sink*, whose results others read; every other node of it is read within the group alone, so
nothing is computed twice and groups cannot wait for each other. (But see 3.) Groups grow from their sink
upwards:

1. Epilogues. Element-wise nodes join the element-wise group that reads them, and the convolution, product or
   reduction at its head becomes its *anchor*, if its result has the shape of the sink.
2. Prologues. What is left is taken by its reader where that costs nothing: element-wise and injective nodes
   by each other and by reductions; by a heavy anchor only copies that its space packs anyway. Costly
   functions (exp, erf) are never computed more than once for an element.

3. Rows. Groups that reduce and compute the same rows are one, which has more results than its sink's
   (`rows.py`).

Views that end up at the border of a group leave it again: other shapes of the same memory are free. So do
slices, which are arguments at another address, where a group reads less than the whole of a value.

Each node is lowered once, out of what the nodes before it were lowered to; the program of a group is what is
between its inputs and its results.

>>> from torch import ops
>>> graph = Graph()
>>> x, w, r = (graph.input(name, (8, 8)) for name in "xwr")
>>> y = graph.call(ops.aten.mm.default, x, w)
>>> graph.outputs = [graph.call(ops.aten.relu.default, graph.call(ops.aten.add.Tensor, y, r))]
>>> [group.name for group in fuse(graph)]
['mm_add_relu']
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .. import te
from ..errors import InternalError
from ..ir import Call, Layout, Program, numpy_dtype, subexpressions
from ..space.block_predicates import EXPENSIVE
from ..te.lower import program_between
from .fallback import about
from .graph import Graph, Node, Spec, Value, Window, map_values, values_in
from .lowering import LOWERINGS, Kind, NotLowered, lower
from .own_programs import OWN_PROGRAMS
from .rows import join_rows
from .windows import CUTS, whole, window_of

LARGEST = 32  # nodes of a group
LONGEST_NAME = 48
MOVING = (Kind.VIEW, Kind.INJECTIVE)


@dataclass(frozen=True)
class Facts:
    """What fusion asks about a node. `eager` is why it has no program, empty if it has one. One of its `own`
    it shares with no other node."""

    kind: Kind
    costly: bool = False
    eager: str = ""
    own: bool = False


class Group:
    """Nodes in the order in which they run; the last is the sink. `anchor` is its reduction or its heavy
    operator."""

    def __init__(self, node: Node, facts: Facts, tensors: Mapping[Value, te.Tensor]) -> None:
        self.nodes = [node]
        self.tensors = tensors  # what the values of the graph were lowered to
        self.kind = facts.kind
        self.costly = facts.costly
        self.eager = facts.eager
        self.own = facts.own
        self.anchor = node if facts.kind >= Kind.REDUCTION else None
        self.outputs: list[Value] = []  # results that others read

    @property
    def sink(self) -> Node:
        return self.nodes[-1]

    @property
    def is_window(self) -> bool:
        """Whether there is nothing to compute: its result is part of what it reads."""
        return bool(self.sink.results) and self.sink.result.window is not None

    @cached_property
    def inputs(self) -> list[Value]:
        """Values from outside, in the order in which they are read. Once the group is complete."""
        inner = set(self.nodes)
        return list(dict.fromkeys(v for n in self.nodes for v in n.reads if v.node not in inner))

    @property
    def name(self) -> str:
        """Its operators, for people; without those that only move elements, if there are others."""
        computing = [
            n for n in self.nodes if n.target in LOWERINGS and LOWERINGS[n.target].kind not in MOVING
        ]
        targets = [str(node.target).removeprefix("aten.") for node in computing or self.nodes]
        names = [target.partition(".")[0].strip("_") for target in targets]
        return "_".join(names)[:LONGEST_NAME].rstrip("_")

    def feeds_anchor(self, node: Node) -> bool:
        """Whether the anchor needs the node."""
        needed = [self.anchor] if self.anchor else []
        for other in needed:
            needed += [v.node for v in other.reads if v.node in self.nodes and v.node not in needed]
        return node in needed

    def take(self, other: Group) -> None:
        """Grow upwards by the group of what this one reads."""
        self.nodes = other.nodes + self.nodes
        self.kind = max(self.kind, other.kind)
        self.costly |= other.costly
        self.anchor = self.anchor or other.anchor


def fuse(graph: Graph) -> list[Group]:
    """The groups of all nodes, in an order in which they can run. The results of some are windows of what
    they read; those with `eager` are one node that torch computes."""
    fusion = Fusion(graph)
    for node in reversed(graph.nodes):
        fusion.try_epilogue(node)
    for node in reversed(graph.nodes):
        fusion.try_prologue(node)
    join_rows(fusion)
    return fusion.finish()


class Fusion:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = {node: n for n, node in enumerate(graph.nodes)}
        self.read = {v for node in graph.nodes for v in node.reads} | set(values_in(graph.outputs))
        self.readers: dict[Node, list[Node]] = {node: [] for node in graph.nodes}
        for node in graph.nodes:
            for value in node.reads:
                if value.node is not None:
                    self.readers[value.node].append(node)
        self.outputs = set(values_in(graph.outputs))
        self.returned = {v.node for v in self.outputs}
        self.tensors: dict[Value, te.Tensor] = {}
        self.facts = {node: self.lower(node) for node in graph.nodes}
        self.group = {node: Group(node, facts, self.tensors) for node, facts in self.facts.items()}

    def lower(self, node: Node) -> Facts:
        """Lower a node; gives whether that works, and whether it calls costly functions."""
        if node.target in OWN_PROGRAMS:
            return Facts(Kind.HEAVY, own=True)
        try:
            with about(node):
                self.tensors |= {v: placeholder(v) for v in node.reads if v not in self.tensors}
                results = lower_node(node, self.tensors, self.read)
        except NotLowered as why:
            return Facts(Kind.HEAVY, eager=str(why))
        before = {self.tensors[v] for v in node.reads}  # what only moves on has been computed
        made = {v: t for v, t in zip(node.results, results, strict=True) if t is not None}
        self.tensors |= made
        stages = {t.stage for t in made.values() if t.stage is not None and t not in before}
        expressions = [e for stage in stages for value in stage.values for e in subexpressions(value)]
        costly = any(isinstance(e, Call) and e.name in EXPENSIVE for e in expressions)
        return Facts(LOWERINGS[node.target].kind, costly)

    def reading_group(self, node: Node) -> Group | None:
        """The one group that all readers of a node belong to; None if it has none, or several."""
        groups = {self.group[reader] for reader in self.readers[node]}
        if node in self.returned or len(groups) != 1:
            return None
        (group,) = groups
        return None if group.eager or group.own or len(group.nodes) >= LARGEST else group

    def try_epilogue(self, node: Node) -> None:
        facts, group = self.facts[node], self.reading_group(node)
        if group is None or group.kind != Kind.ELEMENTWISE or facts.eager or facts.own:
            return
        whole = node.result.shape == group.sink.result.shape
        cheap = facts.kind == Kind.ELEMENTWISE and not facts.costly
        if cheap or (whole and facts.kind in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.HEAVY)):
            self.merge(self.group[node], group)

    def try_prologue(self, node: Node) -> None:
        own, group = self.group[node], self.reading_group(node)
        if group is None or node is not own.sink or own.anchor is not None:
            return
        if (
            group.kind > Kind.VIEW
            and len(own.nodes) + len(group.nodes) <= LARGEST
            and self.is_free(own, group)
        ):
            self.merge(own, group)

    def is_free(self, own: Group, group: Group) -> bool:
        """Whether the reader may compute each element where it reads it."""
        copies = all(self.facts[n].kind != Kind.ELEMENTWISE for n in own.nodes)
        gathers = any(self.facts[n].kind == Kind.INJECTIVE and len(n.reads) > 1 for n in own.nodes)
        if group.kind <= Kind.INJECTIVE:
            return not own.costly or elements(group.sink) <= elements(own.sink)
        if own.costly or gathers:
            return False
        feeds = any(group.feeds_anchor(reader) for reader in self.readers[own.sink])
        return group.kind == Kind.REDUCTION or copies or not feeds

    def merge(self, own: Group, group: Group) -> None:
        group.take(own)
        for node in own.nodes:
            self.group[node] = group

    def finish(self) -> list[Group]:
        for node in self.graph.nodes:  # a view behind another one follows it
            self.release_window(node)
        groups = list(dict.fromkeys(self.group.values()))
        for group in groups:
            group.nodes.sort(key=self.order.__getitem__)
            group.outputs = [v for node in group.nodes for v in node.results if self.leaves(v, group)]
        return self.in_order(groups)

    def leaves(self, value: Value, group: Group) -> bool:
        """Whether others than its own group read a value."""
        if value in self.outputs or value.node is None:
            return True
        return any(
            self.group[reader] is not group for reader in self.readers[value.node] if value in reader.reads
        )

    def in_order(self, groups: list[Group]) -> list[Group]:
        """Each behind what it reads; else by their sinks."""
        waiting = sorted(groups, key=lambda group: self.order[group.sink], reverse=True)
        done: dict[Group, None] = {}
        while waiting:
            group = waiting[-1]
            before = {self.group[v.node] for v in group.inputs if v.node is not None} - done.keys()
            if before and group not in done:
                waiting += sorted(before, key=lambda other: self.order[other.sink], reverse=True)
            else:
                done.setdefault(waiting.pop())
        return list(done)

    def release_window(self, node: Node) -> None:
        """Out of its group with a view, or a part, of what comes from outside."""
        group, facts = self.group[node], self.facts[node]
        outside = all(v.node is None or self.group[v.node] is not group for v in node.reads)
        moves = facts.kind == Kind.VIEW or node.target in CUTS
        if facts.eager or not moves or not outside:
            return
        source = whole(node.reads[0])
        window = window_of(node, source)
        if window is None or not self.is_aligned(window) or not self.readers_can_use(node, window):
            return
        if node.target in CUTS and not self.takes_part(node, group, source.root):
            return
        node.result.window = window
        if len(group.nodes) > 1:
            group.nodes.remove(node)
            self.group[node] = Group(node, facts, self.tensors)

    def is_aligned(self, window: Window) -> bool:
        """Whether a window begins where the arguments of a GPU's kernels may."""
        if not self.graph.on_gpu or not window.offset:
            return True
        return window.offset * numpy_dtype(window.root.dtype).itemsize % self.graph.alignment == 0

    def readers_can_use(self, node: Node, window: Window) -> bool:
        """Whether all that only look at a value can look at a window."""
        views = [reader for reader in self.readers[node] if self.group[reader].kind == Kind.VIEW]
        found = [(reader, window_of(reader, window)) for reader in views]
        return all(w is not None and self.readers_can_use(reader, w) for reader, w in found)

    def takes_part(self, node: Node, group: Group, root: Value) -> bool:
        """Whether a group reads fewer elements than a value has: it takes the parts then, and not the value.
        What is returned has memory of its own."""
        if self.returned & {node, *self.readers[node]} or root in self.graph.constants:
            return False
        read = [
            math.prod((other.result if other.target in CUTS else v).shape)
            for other in group.nodes
            for v in other.reads
            if whole(v).root is root
        ]
        return sum(read) < math.prod(root.shape)


def elements(node: Node) -> int:
    return math.prod(node.result.shape)


def placeholder(value: Value, name: str = "x", constant: bool = False) -> te.Tensor:
    strides = value.window.strides if value.window else None
    layout = None if strides is None else Layout(strides)
    try:
        return te.placeholder(value.shape, value.dtype, name, constant, layout=layout)
    except ValueError as why:  # a dtype that no program has
        raise NotLowered(str(why)) from None


def lower_node(
    node: Node, known: Mapping[Value, te.Tensor], read: set[Value]
) -> tuple[te.Tensor | None, ...]:
    """The results of a node as tensor expressions of what it reads."""
    if not all(math.prod(v.shape) for v in [*node.reads, *node.results] if v in known or v in read):
        raise NotLowered("it has no elements")
    outputs: list[Spec | None] = [v.spec if v in read else None for v in node.results]
    args, kwargs = map_values((node.args, node.kwargs), known.__getitem__)
    return lower(node.target, args, kwargs, outputs)


def parameter_names(group: Group, graph: Graph) -> list[str]:
    """What the group's program calls its inputs; the same in all equal programs."""
    return [f"w{n}" if value in graph.constants else f"x{n}" for n, value in enumerate(group.inputs)]


def program_of(group: Group, graph: Graph) -> Program:
    """The program of a group: it takes `group.inputs` and gives `group.outputs`."""
    parameters = [
        placeholder(value, name, constant=value in graph.constants)
        for name, value in zip(parameter_names(group, graph), group.inputs)
    ]
    inputs: list[te.Tensor] = []
    for value, parameter in zip(group.inputs, parameters):
        tensor = group.tensors.get(value, parameter)
        inputs.append(parameter if tensor in inputs else tensor)  # of two names of one value one is read
    outputs: list[te.Tensor] = []
    for value in group.outputs:
        result = group.tensors[value]
        if result.stage is None or result in inputs or result in outputs:
            result = te.compute(result.shape, lambda *i, t=result: t[i], name="copy")
        outputs.append(result)
    try:
        return program_between(inputs, parameters, outputs, group.name)
    except ValueError as why:
        raise InternalError(f"{group.name} gives no program: {why}") from why
