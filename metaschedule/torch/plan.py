"""`Plan`: what a call of a model does, settled beforehand. `planned` makes one from the groups of a graph.

Every tensor has a *place* (`runtime.sequence`): an offset behind a base. Base 0 are the constants, base 1 is
the memory for intermediate results, then come the inputs of the model, tensors that it returns, and results
of eager steps. A plan is data; `runner.py` carries it out, `artefact.py` stores it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from ..errors import InternalError
from ..ir import Program, numpy_dtype
from ..runtime.sequence import Place
from .fuse import Group, parameter_names, program_of
from .graph import Graph, Node, Spec, Value, values_in, with_values
from .kernels import Compiled
from .lowering import Kind
from .memory import Need, placed

aten = torch.ops.aten
CONSTANTS, MEMORY, FIRST = 0, 1, 2  # bases


@dataclass(frozen=True)
class Ref:
    """A tensor among the arguments of an eager step, or one that is returned."""

    place: Place
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class KernelStep:
    """`arguments` are the places of the kernel's parameters; with base 0 the offset is a constant's index."""

    kernel: int
    arguments: tuple[Place, ...]
    workspace: Place
    name: str


@dataclass(frozen=True)
class EagerStep:
    """A node that torch computes; its results are the bases from `base` on. `why` it is not ours."""

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    base: int
    results: int
    why: str


@dataclass(frozen=True)
class Output:
    """A tensor that the model returns, as `views` of something; or a plain value."""

    source: Any  # a Ref, or what is returned
    views: tuple[ViewCall, ...] = ()


@dataclass(frozen=True)
class ViewCall:
    """A view by torch: result number `index` of a call whose first argument is what it looks at."""

    target: OpOverload
    args: tuple[Any, ...]
    index: int


@dataclass
class Plan:
    inputs: list[Spec]
    returned: list[Spec]  # tensors that a call makes for what it returns
    eager_results: int
    constants: list[torch.Tensor]
    kernels: list[Compiled]
    steps: list[KernelStep | EagerStep]
    outputs: list[Output]
    memory: int  # bytes
    threads: int  # for which there is memory

    @property
    def bases(self) -> int:
        return MEMORY + len(self.inputs) + len(self.returned) + self.eager_results


def without_views(graph: Graph) -> list[Output]:
    """Views among the outputs are left to torch, which gives them the strides that they have in eager: the
    graph then returns what they look at. The sources are values, still without a place."""
    outputs: list[Output] = []
    for value in graph.outputs:
        views: list[ViewCall] = []
        while isinstance(value, Value) and value.node is not None and is_view(value.node):
            node = value.node
            views.append(ViewCall(viewing(node), node.args[1:], value.index))
            value = node.args[0]
        outputs.append(Output(value, tuple(views[::-1])))
    graph.outputs = [output.source for output in outputs]
    graph.prune()
    return outputs


def is_view(node: Node) -> bool:
    plain = not node.kwargs and len(node.reads) == 1
    return isinstance(node.target, OpOverload) and node.target.is_view and plain


def viewing(node: Node) -> OpOverload:
    """What makes the view; strides may differ from those traced, so `view` must be able to copy."""
    assert isinstance(node.target, OpOverload)
    return aten.reshape.default if node.target is aten.view.default else node.target


def planned(
    graph: Graph,
    groups: Sequence[Group],
    outputs: Sequence[Output],
    compile: Callable[[Program], Compiled],
    threads: int,
) -> Plan:
    """Places for all values and calls of compiled programs; `outputs` are those of `without_views`."""
    return Planner(graph, groups, outputs, compile, threads).plan()


@dataclass
class Life:
    """The steps between which a value is needed."""

    first: int
    last: int


class Planner:
    def __init__(
        self,
        graph: Graph,
        groups: Sequence[Group],
        outputs: Sequence[Output],
        compile: Callable[[Program], Compiled],
        threads: int,
    ) -> None:
        self.graph, self.outputs, self.compile, self.threads = graph, outputs, compile, threads
        self.alias: dict[Value, Value] = {}
        self.groups: list[Group] = []
        self.constants: list[torch.Tensor] = []
        self.kernels: list[Compiled] = []
        self.places: dict[Value, Place] = {}
        sources = set(values_in([o.source for o in outputs]))
        for group in groups:
            if group.kind == Kind.VIEW and not self.must_copy(group, sources):
                self.alias[group.sink.result] = self.root(group.inputs[0])
            else:
                self.groups.append(group)

    def must_copy(self, group: Group, sources: set[Value]) -> bool:
        """Whether a value that is returned shares memory which is not its own."""
        if group.sink.result not in sources:
            return False
        root = self.root(group.inputs[0])
        return root.node is None or any(self.root(v) is root for v in sources - {group.sink.result})

    def root(self, value: Value) -> Value:
        """The value in whose memory this one is."""
        return self.alias.get(value, value)

    def plan(self) -> Plan:
        graph = self.graph
        base = FIRST
        for value in graph.inputs:
            self.places[value], base = Place(base, 0), base + 1
        returned = [v for v in self.made() if v in {self.root(o) for o in values_in(graph.outputs)}]
        eager = [v for group in self.groups if is_eager(group) for v in group.sink.results]
        returned = [v for v in returned if v not in eager]
        for value in [*returned, *eager]:
            self.places[value], base = Place(base, 0), base + 1
        compiled = [
            None if is_eager(group) else self.compile(program_of(group, graph)) for group in self.groups
        ]
        workspaces, memory = self.place_others(compiled)
        steps = [
            self.eager_step(group) if one is None else self.kernel_step(group, one, Place(MEMORY, workspace))
            for group, one, workspace in zip(self.groups, compiled, workspaces)
        ]
        return Plan(
            [v.spec for v in graph.inputs],
            [v.spec for v in returned],
            len(eager),
            self.constants,
            self.kernels,
            steps,
            [Output(with_values(o.source, self.ref), o.views) for o in self.outputs],
            memory,
            self.threads,
        )

    def made(self) -> list[Value]:
        return [v for group in self.groups for v in group.outputs]

    def constant(self, tensor: Any) -> Place:
        self.constants.append(tensor)
        return Place(CONSTANTS, len(self.constants) - 1)

    def place_others(self, compiled: Sequence[Compiled | None]) -> tuple[list[int], int]:
        """Places in memory for intermediate results. Also the offsets of the kernels' workspaces, and the
        size of it all."""
        lives: dict[Value, Life] = {}
        for n, group in enumerate(self.groups):
            for value in group.outputs:
                lives[value] = Life(n, n)
            for value in map(self.root, group.inputs):
                if value in lives:
                    lives[value].last = n
        inner = [v for v in lives if v not in self.places]
        needs = [Need(nbytes(v), lives[v].first, lives[v].last) for v in inner]
        needs += [
            Need(one.kernel.kernel.workspace_bytes(self.threads) if one else 0, n, n)
            for n, one in enumerate(compiled)
        ]
        offsets, memory = placed(needs)
        self.places |= {v: Place(MEMORY, offset) for v, offset in zip(inner, offsets)}
        return offsets[len(inner) :], memory

    def place(self, value: Value) -> Place:
        root = self.root(value)
        if root not in self.places:
            self.places[root] = self.constant(self.weight(root))
        return self.places[root]

    def ref(self, value: Value) -> Ref:
        return Ref(self.place(value), value.shape, value.dtype)

    def weight(self, value: Value) -> torch.Tensor:
        return self.graph.constants[value].contiguous()

    def kernel_step(self, group: Group, compiled: Compiled, workspace: Place) -> KernelStep:
        if compiled not in self.kernels:
            self.kernels.append(compiled)
        takes = dict(zip(parameter_names(group, self.graph), group.inputs))
        prepared = compiled.prepared(
            {name: self.weight(v) for name, v in takes.items() if v in self.graph.constants}
        )
        inputs = [
            self.constant(prepared[spec.name]) if spec.name in prepared else self.place(takes[spec.name])
            for spec in compiled.kernel.kernel.inputs
        ]
        outputs = [self.place(v) for v in group.outputs]
        return KernelStep(self.kernels.index(compiled), (*inputs, *outputs), workspace, group.name)

    def eager_step(self, group: Group) -> EagerStep:
        node = group.sink
        if not isinstance(node.target, OpOverload):
            raise InternalError(f"{node} has no lowering: {group.eager}")
        args, kwargs = with_values((node.args, node.kwargs), self.ref)
        base = self.places[node.result].base
        return EagerStep(node.target, args, kwargs, base, len(node.results), group.eager)


def is_eager(group: Group) -> bool:
    return bool(group.eager) or group.kind == Kind.VIEW


def nbytes(value: Value) -> int:
    return math.prod(value.shape) * numpy_dtype(value.dtype).itemsize
