"""`Plan`: what a call of a model does, settled beforehand. `plan_calls` makes one of a fused graph.

Every tensor has a *place* (`runtime.sequence`): an offset behind a base. Base 0 are the constants, base 1 is
the memory for intermediate results, then come the inputs of the model, tensors that it returns, and results
of eager steps. A plan is data; `runner.py` carries it out, `artefact.py` stores it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload

from ..errors import InternalError
from ..ir import Program, numpy_dtype
from ..runtime.sequence import Place
from .fuse import Group, parameter_names
from .graph import Spec, Value, map_values, values_in
from .kernels import Compiled
from .memory import Need, assign_offsets
from .outputs import COPY, Given, Output
from .pipeline import FusedGraph
from .windows import whole

CONSTANTS, MEMORY, FIRST = 0, 1, 2  # bases


@dataclass(frozen=True)
class Ref:
    """A tensor among the arguments of an eager step, or one that is returned."""

    place: Place
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None  # None: dense and row-major


@dataclass(frozen=True)
class KernelStep:
    """`arguments` are the places of the kernel's parameters; with base 0 the offset is a constant's index."""

    kernel: int
    arguments: tuple[Place, ...]
    workspace: Place
    name: str


@dataclass(frozen=True)
class EagerStep:
    """A node that torch computes; its results are the bases from `base` on. `why` it is not ours. `name` is
    that of the node."""

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    base: int
    results: tuple[Spec, ...]
    why: str
    name: str


@dataclass(frozen=True)
class Write:
    """An input, by its number, is changed: by kernels in its memory, or at the end to what an output is."""

    input: int
    output: Output | None = None


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
    writes: list[Write] = field(default_factory=list)

    @property
    def bases(self) -> int:
        return MEMORY + len(self.inputs) + len(self.returned) + self.eager_results


Compile = Callable[[Sequence[Program]], list[Compiled]]


def plan_calls(fused: FusedGraph, compile: Compile, threads: int) -> Plan:
    """Places for all values, and calls of compiled programs by up to so many threads."""
    return Planner(fused, compile, threads).plan()


@dataclass
class Life:
    """The steps between which a value is needed."""

    first: int
    last: int


class Planner:
    def __init__(self, fused: FusedGraph, compile: Compile, threads: int) -> None:
        self.graph, self.programs, self.outputs = fused.graph, fused.programs, fused.outputs
        self.compile, self.threads = compile, threads
        self.groups = [g for g in fused.groups if not g.is_window]  # that do something
        self.constants: list[torch.Tensor] = []
        self.kernels: list[Compiled] = []
        self.places: dict[Value, Place] = {}

    def root(self, value: Value) -> Value:
        """The value in whose memory this one is."""
        return whole(value).root

    def plan(self) -> Plan:
        graph = self.graph
        base = FIRST
        for value in graph.inputs:
            self.places[value], base = Place(base, 0), base + 1
        self.places |= {value: self.places[x] for value, x in graph.in_place.items()}
        roots = {self.root(value) for value in values_in(graph.outputs)}
        returned = [
            v for group in self.programs for v in group.outputs if v in roots and v not in self.places
        ]
        eager = [v for group in self.groups if group.eager for v in group.sink.results]
        for value in [*returned, *eager]:
            self.places[value], base = Place(base, 0), base + 1
        kernels = dict(zip(self.programs, self.compile(list(self.programs.values()))))
        compiled = [kernels.get(group) for group in self.groups]
        workspaces, memory = self.place_others(compiled)
        steps = [
            self.eager_step(group) if one is None else self.kernel_step(group, one, Place(MEMORY, workspace))
            for group, one, workspace in zip(self.groups, compiled, workspaces)
        ]
        outputs = self.place_outputs()
        results = len(outputs) - len(graph.written)
        return Plan(
            [v.spec for v in graph.inputs],
            [v.spec for v in returned],
            len(eager),
            self.constants,
            self.kernels,
            steps,
            outputs[:results],
            memory,
            self.threads,
            [
                self.place_write(x, *pair)
                for x, *pair in zip(graph.written, self.outputs[results:], outputs[results:])
            ],
        )

    def place_write(self, x: Value, output: Output, placed: Output) -> Write:
        number = self.graph.inputs.index(x)
        return Write(number, None if output.source in self.graph.in_place else placed)

    def place_outputs(self) -> list[Output]:
        """Outputs by their places. One that is its own in eager is copied if here it would share memory."""
        owners: dict[Value, Value | None] = {}
        found: list[Output] = []
        for output in self.outputs:
            views = output.views
            if output.origin in self.graph.inputs:
                found.append(Output(Given(self.graph.inputs.index(output.origin)), None, views))
                continue
            if isinstance(output.source, Value):
                root = self.root(output.source)
                shared = root.node is None or owners.setdefault(root, output.origin) is not output.origin
                views = (COPY, *views) if shared and output.is_own else views
            source = map_values(output.source, self.ref)
            found.append(Output(source, None, views, output.strides))
        return found

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
        offsets, memory = assign_offsets(needs, self.graph.alignment)
        self.places |= {v: Place(MEMORY, offset) for v, offset in zip(inner, offsets)}
        return offsets[len(inner) :], memory

    def place(self, value: Value) -> Place:
        window = whole(value)
        if window.root not in self.places:
            self.places[window.root] = self.constant(self.weight(window.root))
        base, offset = self.places[window.root]
        if window.offset:
            offset += window.offset * numpy_dtype(value.dtype).itemsize
        return Place(base, offset)

    def ref(self, value: Value) -> Ref:
        return Ref(self.place(value), value.shape, value.dtype, whole(value).strides)

    def weight(self, value: Value) -> torch.Tensor:
        return self.graph.constants[value].contiguous()

    def kernel_step(self, group: Group, compiled: Compiled, workspace: Place) -> KernelStep:
        if compiled not in self.kernels:
            self.kernels.append(compiled)
        takes = dict(zip(parameter_names(group, self.graph), group.inputs))
        prepared = compiled.prepare_constants(
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
        args, kwargs = map_values((node.args, node.kwargs), self.ref)
        base = self.places[node.result].base if node.results else FIRST
        results = tuple([value.spec for value in node.results])
        name = node.result.name if node.results else str(node.target)
        return EagerStep(node.target, args, kwargs, base, results, group.eager, name)


def nbytes(value: Value) -> int:
    return math.prod(value.shape) * numpy_dtype(value.dtype).itemsize
