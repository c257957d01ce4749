"""`Graph`: a model as calls of operators on values, after tracing and before fusion.

A `Value` is one tensor: an input of the model, a constant (a weight) or a result of a `Node`. A node calls an
ATen overload, or an operator of ours by its name, on values and plain Python arguments. There is no mutation
and no aliasing: a value is what its node computes, whatever memory it will live in.

>>> import torch
>>> graph = Graph()
>>> x = graph.input("x", (2, 3))
>>> w = graph.constant("w", torch.ones(3))
>>> y = graph.call(torch.ops.aten.mul.Tensor, x, w)
>>> graph.outputs = [graph.call(torch.ops.aten.relu.default, y)]
>>> print(graph)
graph(x: float32[2, 3])
  w: float32[3] = constant
  mul: float32[2, 3] = aten.mul.Tensor(x, w)
  relu: float32[2, 3] = aten.relu.default(mul)
  return relu

A pass goes over `list(graph.nodes)`, adds calls `before=node`, has readers read another value
(`graph.replace`) and leaves what nobody reads any more to `graph.prune`:

>>> node = y.node
>>> graph.replace(y, graph.call(torch.ops.aten.add.Tensor, x, w, before=node))
>>> graph.prune()
>>> print(graph)
graph(x: float32[2, 3])
  w: float32[3] = constant
  add: float32[2, 3] = aten.add.Tensor(x, w)
  relu: float32[2, 3] = aten.relu.default(add)
  return relu
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .graph_key import Source
    from .passes.narrow_weights import Narrowing
    from .sizes import Family

from ..runtime.gpu.program import ALIGNMENT as ON_GPU
from ..runtime.kernel import ALIGNMENT

Target = torch._ops.OpOverload | str  # a string names an operator of ours
Spec = tuple[tuple[int, ...], str]  # shape and dtype of a tensor


@dataclass(frozen=True)
class Window:
    """Part of the memory of a value: the first element is `offset` elements behind that of `root`, the others
    are `strides` elements apart; None: dense and row-major."""

    root: Value
    offset: int = 0
    strides: tuple[int, ...] | None = None


@dataclass(eq=False, slots=True, repr=False)
class Value:
    """A tensor. `node` computes it as its result number `index`; None for inputs and constants. Fusion finds
    those that nobody has to compute: they are a `window` of another."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # torch's name without "torch."
    node: Node | None = None
    index: int = 0
    window: Window | None = None

    @property
    def spec(self) -> Spec:
        return self.shape, self.dtype

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """A call. Values stand anywhere in `args` and `kwargs`, also within lists and tuples; `reads` are these
    values, each once."""

    target: Target
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Value, ...] = ()
    reads: list[Value] = field(init=False)

    def __post_init__(self) -> None:
        self.reads = list(dict.fromkeys(values_in((self.args, self.kwargs))))

    def change_reads(self, change: Callable[[Value], Value]) -> None:
        """Read other values in their place."""
        self.args, self.kwargs = map_values((self.args, self.kwargs), change)
        self.reads = list(dict.fromkeys(map(change, self.reads)))

    @property
    def result(self) -> Value:
        """The first result: the only one of most operators."""
        return self.results[0]

    @property
    def has_effect(self) -> bool:
        """Whether a call does more than give its results: it asserts something, or draws random numbers."""
        if isinstance(self.target, str):
            return False
        return not self.results or torch.Tag.nondeterministic_seeded in self.target.tags

    def __repr__(self) -> str:
        results = ", ".join(map(repr, self.results)) or "()"
        arguments = [describe_argument(a) for a in self.args] + [
            f"{k}={describe_argument(v)}" for k, v in self.kwargs.items()
        ]
        return f"{results} = {self.target}({', '.join(arguments)})"


class Graph:
    """`nodes` are in an order in which they can run. `outputs` are values, or whatever else a model returns
    (None, a number); the last of them are no results, but what the inputs `written` hold afterwards."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.constants: dict[Value, torch.Tensor] = {}
        self.nodes: list[Node] = []
        self.outputs: list[Any] = []
        self.written: list[Value] = []
        self.in_place: dict[Value, Value] = {}  # values that are written into the memory of an input
        self.strides: dict[Value, tuple[int, ...]] = {}  # of values as traced; a model returns them so
        self._names: dict[str, int] = {}
        self.family: Family | None = None  # kernels of graphs that are this one in other sizes
        self.narrowing: Narrowing | None = None  # what weights of products are to become
        self.source: Source | None = None  # what it was captured from
        self.device = torch.device("cpu")  # where its tensors are
        self.on_gpu = False  # whether its kernels are for one

    @property
    def alignment(self) -> int:
        """The bytes that memory of a kernel's arguments is aligned to, within larger memory."""
        return ON_GPU if self.on_gpu else ALIGNMENT

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        value = Value(self._fresh(name), tuple(shape), dtype)
        self.inputs.append(value)
        return value

    def constant(self, name: str, tensor: torch.Tensor) -> Value:
        """A value that is known now; the tensor is used as it is."""
        value = Value(self._fresh(name), *spec_of(tensor))
        self.constants[value] = tensor
        return value

    def call(
        self,
        target: Target,
        *args: Any,
        results: Sequence[Spec] | None = None,
        name: str | None = None,
        before: Node | None = None,
        **kwargs: Any,
    ) -> Value:
        """Add a call, at the end or `before` a node, and return its first result. Shapes and dtypes of the
        `results` must be told for operators of ours; for ATen's torch is asked."""
        if results is None:
            results = infer_specs(target, args, kwargs)
        return self.add(target, args, kwargs, results, name, before).result

    def add(
        self,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        results: Sequence[Spec],
        name: str | None = None,
        before: Node | None = None,
    ) -> Node:
        """Add a call that may have no results at all."""
        node = Node(target, args, kwargs)
        name = self._fresh(name or str(target).removeprefix("aten.").partition(".")[0])
        names = [name, *(f"{name}_{chr(ord('a') + i)}" for i in range(1, len(results)))]
        node.results = tuple(Value(n, *spec, node, i) for i, (n, spec) in enumerate(zip(names, results)))
        self.nodes.insert(len(self.nodes) if before is None else self.nodes.index(before), node)
        return node

    def readers(self, value: Value) -> list[Node]:
        """The nodes that read a value. It may be an output besides."""
        return [node for node in self.nodes if value in node.reads]

    def is_read(self, value: Value) -> bool:
        return value in self.outputs or bool(self.readers(value))

    def replace(self, old: Value, new: Value) -> None:
        """Whatever read `old` reads `new`, which must be computed early enough."""
        for node in self.readers(old):
            node.change_reads(lambda v: new if v is old else v)
        self.outputs = [new if v is old else v for v in self.outputs]

    def prune(self) -> None:
        """Remove nodes and constants that no output and no effect needs."""
        needed = set(values_in(self.outputs))
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if node.has_effect or needed & set(node.results):
                needed.update(node.reads)
                kept.append(node)
        self.nodes = kept[::-1]
        self.constants = {v: tensor for v, tensor in self.constants.items() if v in needed}

    def _fresh(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self._fresh(f"{name}_{count}") if count else name

    def __str__(self) -> str:
        lines = [f"graph({', '.join(map(repr, self.inputs))})"]
        lines += [f"  {value!r} = constant" for value in self.constants]
        lines += [f"  {node!r}" for node in self.nodes]
        lines += [f"  return {', '.join(map(describe_argument, self.outputs))}"]
        return "\n".join(lines)


def values_in(argument: Any) -> Iterator[Value]:
    """The values anywhere in an argument."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from values_in(item)
    elif isinstance(argument, dict):
        yield from values_in(list(argument.values()))


def map_values(argument: Any, change: Callable[[Value], Any]) -> Any:
    """The argument with something else in place of each value."""
    return map_argument(argument, Value, change)


def map_argument(argument: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The argument with something else in place of each object of a kind."""
    if isinstance(argument, kind):
        return change(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)([map_argument(item, kind, change) for item in argument])
    if isinstance(argument, dict):
        return {key: map_argument(item, kind, change) for key, item in argument.items()}
    return argument


def spec_of(tensor: torch.Tensor) -> Spec:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def infer_specs(target: Target, args: Any, kwargs: Any) -> list[Spec]:
    """What torch says an overload returns, without computing it."""
    if isinstance(target, str):
        raise ValueError(f"{target}: torch does not know this operator; give the `results` of the call")

    def meta(value: Value) -> torch.Tensor:
        return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device="meta")

    found = target(*map_values(args, meta), **map_values(kwargs, meta))
    return [spec_of(t) for t in (found if isinstance(found, (tuple, list)) else (found,))]


def describe_argument(argument: Any) -> str:
    if isinstance(argument, Value):
        return argument.name
    if isinstance(argument, (list, tuple)):
        inner = ", ".join(map(describe_argument, argument))
        return f"[{inner}]" if isinstance(argument, list) else f"({inner})"
    return str(argument) if not isinstance(argument, str) else repr(argument)
