"""Weights that are narrow in memory and wide in the product: what a token reads is mostly weights.

A product of few rows is as fast as its weights come from memory. Weights that a model has in bytes, with a
scale for each column or for groups within it, stay bytes until they are in a register:

    x @ (number * scale)   -->   narrow_matmul(x, number) * scale                       a scale a column
                           -->   sum of narrow_matmul(x[group], number[group]) * scale[group]     groups

The sums are of float32. Such weights are found in whichever words a model dequantises them; where there are
many rows, they are multiplied as float32, which costs memory but no conversions. With a `Narrowing` the
float32 weights of a model become narrow, for any number of rows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch

from ..graph import Graph, Node, Value
from .affine_forms import AffineForm, AffineForms
from .batch_norm import arguments
from .constants import compute_node
from .integer_products import Writer

aten = torch.ops.aten
VIEWS = (aten.permute.default, aten.reshape.default)
MOST_ROWS = 32  # of a product for which weights of a model stay narrow
SMALLEST = 1 << 12  # elements of weights that are worth it
SMALLEST_GROUP = 16


@dataclass(frozen=True)
class Narrowing:
    """What float32 weights become: `dtype` is int8 or bfloat16; `group`: how many share a scale, None for a
    whole column."""

    dtype: str
    group: int | None = None

    @staticmethod
    def parse(text: str) -> Narrowing:
        """
        >>> Narrowing.parse("int8"), Narrowing.parse("int8:64")
        (Narrowing(dtype='int8', group=None), Narrowing(dtype='int8', group=64))
        """
        found = re.fullmatch(r"(?:int8(?::(\d+))?|bfloat16)", text)
        if found is None or (found[1] is not None and int(found[1]) < SMALLEST_GROUP):
            raise ValueError(
                f"weights are 'int8', 'int8:64' (a scale for each 64, at least {SMALLEST_GROUP}) or "
                f"'bfloat16', not {text!r}"
            )
        return Narrowing(text.partition(":")[0], int(found[1]) if found[1] else None)

    def __call__(self, weight: torch.Tensor) -> Weight | None:
        """A matrix [terms, columns], narrow; None if the groups do not divide it."""
        if self.dtype == "bfloat16":
            return Weight(weight.to(torch.bfloat16), None)
        terms, columns = weight.shape
        group = self.group or terms
        if terms % group:
            return None
        parts = weight.reshape(terms // group, group, columns)
        scale = parts.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        number = (parts / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
        return Weight(number.reshape(terms, columns), scale)


@dataclass(frozen=True)
class Weight:
    """`number` [terms, columns] times `scale` [groups, columns]."""

    number: torch.Tensor
    scale: torch.Tensor | None


def narrow_weights(graph: Graph, narrowing: Narrowing | None = None) -> None:
    """Views are simplified already, and should be again."""
    forms = AffineForms(graph)
    known: dict[tuple[Value, bool], Weight | None] = {}
    for node in list(graph.nodes):
        found = operands(graph, node)
        if found is None:
            continue
        x, y, term = found
        few = math.prod(x.shape[:-1]) <= MOST_ROWS
        if y not in forms.fixed or x in forms.fixed or (narrowing is None and not few):
            continue
        if (y, few) not in known:
            known[y, few] = find_weight(forms, y, narrowing)
        weight = known[y, few]
        if weight is not None:
            new = multiply(Writer(forms, node), x, weight, node.result.shape[-1])
            new = graph.call(aten.reshape.default, new, list(node.result.shape), before=node)
            if term is not None:
                new = graph.call(aten.add.Tensor, new, term, before=node)
            graph.replace(node.result, new)
    graph.prune()


def operands(graph: Graph, node: Node) -> tuple[Value, Value, Value | None] | None:
    """What a product multiplies, and what it adds."""
    if not node.results or node.result.dtype != "float32":
        return None
    if node.target is aten.mm.default:
        return *node.args, None  # pyright: ignore[reportReturnType]
    if node.target is aten.addmm.default and not node.kwargs:
        return node.args[1], node.args[2], node.args[0]
    if node.target is aten.linear.default and len(node.args[1].shape) == 2:
        x, weight, bias = arguments(node)
        return x, graph.call(aten.permute.default, weight, [1, 0], before=node), bias
    return None


def find_weight(forms: AffineForms, y: Value, narrowing: Narrowing | None) -> Weight | None:
    forms.fixed.add(y)
    if math.prod(y.shape) < SMALLEST:
        return None
    found = find_narrow(forms, y)
    if found is not None or narrowing is None:
        return found
    tensor = forms.tensor(y)
    return None if tensor is None or tensor.dtype != torch.float32 else narrowing(tensor)


def find_narrow(forms: AffineForms, y: Value) -> Weight | None:
    """A weight that is narrow numbers times scales, behind views of it."""
    views: list[Node] = []
    value = y
    while (form := forms.find(value)) is None:
        if value.node is None or value.node.target not in VIEWS:
            return find_bfloat16(forms, value, views)
        views.insert(0, value.node)
        value = value.node.args[0]
    if value.dtype != "float32" or value.node is None:
        return None
    form = Writer(forms, value.node).folded(form)
    number = forms.tensor(form.number)
    scale = scale_of(forms, form)
    if number is None or scale is None or form.zero is not None:
        return None
    number, scale = (look(views, t) for t in (number, scale))
    if bool((scale == 1).all()):
        return Weight(number, None)
    group = find_group(scale)
    if group < SMALLEST_GROUP:
        return None
    return Weight(number, scale[::group].contiguous())


def find_bfloat16(forms: AffineForms, value: Value, views: list[Node]) -> Weight | None:
    node = value.node
    if node is None or node.target is not aten._to_copy.default or node.args[0].dtype != "bfloat16":
        return None
    tensor = forms.tensor(node.args[0])
    return None if tensor is None or value.dtype != "float32" else Weight(look(views, tensor), None)


def scale_of(forms: AffineForms, form: AffineForm) -> torch.Tensor | None:
    """The scale of every element."""
    scale: Any = torch.ones((), dtype=torch.float32)
    for one in form.scales:
        known = forms.tensor(one) if isinstance(one, Value) else one
        if known is None:
            return None
        scale = scale * known
    return scale.expand(form.number.shape)


def look(views: list[Node], tensor: torch.Tensor) -> torch.Tensor:
    for node in views:
        (tensor,) = compute_node(node, {node.args[0]: tensor})
    return tensor


def find_group(scale: torch.Tensor) -> int:
    """How many terms in a row have the same scales, and so has every such group.

    >>> find_group(torch.tensor([[1.0], [1.0], [2.0], [2.0], [2.0], [2.0]]))
    2
    """
    changes = ((scale[1:] != scale[:-1]).any(1).nonzero() + 1).flatten().tolist()
    return math.gcd(len(scale), *changes)


def multiply(write: Writer, x: Value, weight: Weight, columns: int) -> Value:
    terms = x.shape[-1]
    rows = math.prod(x.shape[:-1])
    constant = write.forms.graph.constant
    groups = 1 if weight.scale is None else len(weight.scale)
    number = weight.number.contiguous().reshape(groups, terms // groups, columns)
    x = write.call(aten.reshape.default, x, [rows, groups, terms // groups])
    if groups == 1:
        x = write.call(aten.reshape.default, x, [rows, terms])
        whole = constant("number", number[0])
        result = write.call("narrow_matmul", x, whole, results=[((rows, columns), "float32")])
        if weight.scale is None:
            return result
        return write.call(aten.mul.Tensor, result, constant("scale", weight.scale[0].contiguous()))
    x = write.call(aten.permute.default, x, [1, 0, 2])
    parts = write.call(
        "narrow_matmul", x, constant("number", number), results=[((groups, rows, columns), "float32")]
    )
    assert weight.scale is not None
    scaled = write.call(aten.mul.Tensor, parts, constant("scale", weight.scale[:, None].contiguous()))
    return write.call(aten.sum.dim_IntList, scaled, [0])
