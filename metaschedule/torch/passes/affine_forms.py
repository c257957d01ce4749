"""Values that stand for integers: `(number - zero) * scale`, with a narrow integer `number`.

Whoever dequantises, in whatever words, computes such a value. Its form follows it through what moves elements
or compares them, since that can be done to the integers first:

    max_pool(dequantize(q)) == dequantize(max_pool(q)),  relu(dequantize(q)) == dequantize(max(q, zero))

and what wants the integers (a product, or another quantisation with the same scale) finds them behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...ir import integer_limits, is_integer
from ..graph import Graph, Node, Value
from .batch_norm import arguments
from .constants import compute_node
from .views import order_of, permute, shape_behind, view

aten = torch.ops.aten
NARROW = ("int8", "uint8")
Parameter = Value | int | float  # one number, or a value that is broadcast to the rank of the numbers


@dataclass(frozen=True)
class AffineForm:
    """`zero` is an integer, None for 0; no `scales` are 1."""

    number: Value
    zero: Parameter | None = None
    scales: tuple[Parameter, ...] = ()

    @property
    def parameters(self) -> list[Value]:
        return [p for p in (self.zero, *self.scales) if isinstance(p, Value)]

    def varies_along(self, dims: Sequence[int]) -> bool:
        """Whether zero or scale are not the same along some dimensions."""
        return any(p.shape[d] != 1 for p in self.parameters for d in dims)

    @property
    def is_uniform(self) -> bool:
        return all(math.prod(p.shape) == 1 for p in self.parameters)


class AffineForms:
    """Finds the form of values. What it has to add to the graph for that comes right behind the value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[Value, AffineForm | None] = {}
        self.tensors: dict[Value, torch.Tensor] = dict(graph.constants)
        self.fixed: set[Value] = set(graph.constants)  # what depends on constants alone
        for node in graph.nodes:
            self.note(node)

    def find(self, value: Value) -> AffineForm | None:
        if value not in self.known:
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: Value) -> AffineForm | None:
        node = value.node
        if value.dtype in NARROW:
            return AffineForm(value)
        if node is None or value.index:
            return None
        rule = RULES.get(node.target)
        return rule(self, node) if rule is not None else None

    def add(self, node: Node, target: Any, *args: Any, **kwargs: Any) -> Value:
        """A call behind a node."""
        at = self.graph.nodes.index(node) + 1
        after = self.graph.nodes[at] if at < len(self.graph.nodes) else None
        return self.noted(self.graph.call(target, *args, before=after, **kwargs))

    def note(self, node: Node) -> None:
        computable = not isinstance(node.target, str) and not node.has_effect
        if computable and node.reads and self.fixed.issuperset(node.reads):
            self.fixed.update(node.results)

    def noted(self, value: Value) -> Value:
        """A value that has been added to the graph."""
        assert value.node is not None
        self.note(value.node)
        return value

    def operand(self, node: Node, parameter: Any, rank: int) -> Parameter | None:
        """A parameter of a form: a number, or a value in the rank of the form's numbers."""
        if not isinstance(parameter, Value):
            return parameter
        if len(parameter.shape) == rank:
            return parameter
        return self.add(node, view, parameter, [1] * (rank - len(parameter.shape)) + list(parameter.shape))

    def tensor(self, value: Parameter | None) -> torch.Tensor | None:
        """What a value is known to be already."""
        if not isinstance(value, Value) or (value not in self.fixed and value not in self.graph.constants):
            return None
        if value in self.graph.constants:
            return self.graph.constants[value]
        if value not in self.tensors:
            assert value.node is not None
            inner = {read: found for read in value.node.reads if (found := self.tensor(read)) is not None}
            self.tensors.update(zip(value.node.results, compute_node(value.node, inner)))
        return self.tensors[value]

    def is_zero(self, parameter: Parameter | None) -> bool:
        """Whether a zero point is known to be 0 everywhere."""
        if parameter is None or isinstance(parameter, (int, float)):
            return not parameter
        tensor = self.tensor(parameter)
        return tensor is not None and not tensor.any()


Rule = Callable[[AffineForms, Node], AffineForm | None]
RULES: dict[Any, Rule] = {}


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(targets, function))
        return function

    return register


@rule(aten._to_copy.default)
def converted(forms: AffineForms, node: Node) -> AffineForm | None:
    """To a type that holds all the numbers and their differences."""
    if node.result.dtype not in ("int16", "int32", "int64", "float32", "float64"):
        return None
    form = forms.find(node.args[0])
    return None if form is None or form.scales else form


@rule(aten.sub.Tensor)
def shifted(forms: AffineForms, node: Node) -> AffineForm | None:
    """Only integers are taken off, from numbers without a scale."""
    x, y = node.args
    form = forms.find(x) if isinstance(x, Value) else None
    if form is None or form.scales or form.zero is not None or node.kwargs:
        return None
    if isinstance(y, Value):
        if not is_broadcast(y, node.result) or not is_whole_number(forms, y):
            return None
    elif y != int(y):
        return None
    zero = forms.operand(node, y, len(node.result.shape))
    if node.result.dtype in NARROW or form.number.shape != node.result.shape:
        return None
    return AffineForm(form.number, zero)


def is_whole_number(forms: AffineForms, value: Value) -> bool:
    if is_integer(value.dtype):
        return True
    node = value.node
    if node is not None and node.target in (aten._to_copy.default, view):
        return is_whole_number(forms, node.args[0])
    tensor = forms.tensor(value)
    return tensor is not None and bool((tensor == tensor.round()).all())


def is_broadcast(value: Value, result: Value) -> bool:
    """Whether a value is smaller than the result; one that varies with every element is no parameter."""
    return math.prod(value.shape) < math.prod(result.shape) or math.prod(value.shape) == 1


@rule(aten.mul.Tensor, aten.mul.Scalar)
def scaled(forms: AffineForms, node: Node) -> AffineForm | None:
    if node.result.dtype != "float32":
        return None
    x, y = node.args
    for own, other in ((x, y), (y, x)):
        form = forms.find(own) if isinstance(own, Value) else None
        if form is None or form.number.shape != node.result.shape:
            continue
        if isinstance(other, Value) and (other.dtype != "float32" or not is_broadcast(other, node.result)):
            continue
        scale = forms.operand(node, other, len(node.result.shape))
        assert scale is not None
        return replace(form, scales=(*form.scales, scale))
    return None


def moved(forms: AffineForms, node: Node, form: AffineForm, move: Callable[[Value], Value]) -> AffineForm:
    """The form of what is moved, each of its parts in the same way."""

    def part(parameter: Parameter | None) -> Any:
        return move(parameter) if isinstance(parameter, Value) else parameter

    return AffineForm(move(form.number), part(form.zero), tuple(map(part, form.scales)))


@rule(permute, aten.transpose.int, aten.t.default)
def permuted(forms: AffineForms, node: Node) -> AffineForm | None:
    form = forms.find(node.args[0])
    if form is None:
        return None
    return moved(forms, node, form, lambda v: forms.add(node, permute, v, order_of(node)))


@rule(view, aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dim)
def viewed(forms: AffineForms, node: Node) -> AffineForm | None:
    """Of parameters those views that keep broadcast dimensions apart from others."""
    form = forms.find(node.args[0])
    if form is None:
        return None
    before, after = form.number.shape, node.result.shape
    shapes = {p: shape_behind(before, after, p.shape) for p in form.parameters}
    if any(shape is None for shape in shapes.values()):
        return None
    return moved(
        forms,
        node,
        form,
        lambda v: forms.add(node, view, v, list(shapes.get(v, after))),  # pyright: ignore
    )


@rule(aten.relu.default)
def rectified(forms: AffineForms, node: Node) -> AffineForm | None:
    """0.0 is `zero`."""
    form = forms.find(node.args[0])
    if form is None or not is_positive(forms, form):
        return None
    zero = 0 if form.zero is None else form.zero
    if isinstance(zero, Value):
        narrow = forms.add(node, aten._to_copy.default, zero, dtype=getattr(torch, form.number.dtype))
        return replace(form, number=forms.add(node, aten.maximum.default, form.number, narrow))
    low, high = integer_limits(form.number.dtype)
    if not low <= zero <= high:
        return None
    return replace(form, number=forms.add(node, aten.clamp.default, form.number, int(zero), None))


@rule(aten.max_pool2d.default, aten.max_pool2d_with_indices.default)
def pooled(forms: AffineForms, node: Node) -> AffineForm | None:
    """The greatest number is the greatest value, if all have one positive scale."""
    x, *window = arguments(node)
    form = forms.find(x)
    if form is None or not form.is_uniform or not is_positive(forms, form):
        return None
    return replace(form, number=forms.add(node, node.target, form.number, *window))


def is_positive(forms: AffineForms, form: AffineForm) -> bool:
    """Scales that nobody knows yet come from ranges, and are."""
    for scale in form.scales:
        tensor = forms.tensor(scale)
        if isinstance(scale, (int, float)) and scale <= 0:
            return False
        if tensor is not None and bool((tensor <= 0).any()):
            return False
    return True
