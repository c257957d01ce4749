"""Products of dequantised values become products of their integers.

    ((a - z) * s) @ ((b - y) * t) == (a @ b - z * sum(b) - sum(a) * y + k * z * y) * s * t

with sums over the `k` terms of each result. The product is of integers in int32, and exact; sums of a
constant are constants; scales come afterwards, in the epilogue of the product's kernel, as does what
quantises the result again. Eager rounds terms and sums of dequantised values in float32: results agree within
that rounding, and where it moves a value across the middle between two integers, a quantised result differs
by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..graph import Graph, Node, Value
from .affine_forms import AffineForm, AffineForms, Parameter
from .batch_norm import arguments

aten = torch.ops.aten
LARGEST_TERM = 255 * 255  # of a product of two differences of bytes
MOST_TERMS = (2**31 - 1) // LARGEST_TERM


def integer_products(graph: Graph) -> None:
    """Views are simplified already, and should be again."""
    forms = AffineForms(graph)
    for node in list(graph.nodes):
        rewriting = REWRITINGS.get(node.target)
        new = rewriting(forms, node) if rewriting is not None else None
        if new is not None:
            graph.replace(node.result, new)
            forms.known.pop(node.result, None)
    graph.prune()


def product(forms: AffineForms, node: Node, x: Value, y: Value) -> Value | None:
    """x (.., m, k) @ y (.., k, n)."""
    a, b = forms.find(x), forms.find(y)
    if (
        a is None
        or b is None
        or node.result.dtype != "float32"
        or len(x.shape) < 2
        or len(x.shape) != len(y.shape)
    ):
        return None
    k = len(x.shape) - 1
    if x.shape[k] > MOST_TERMS or a.varies_along([k]) or b.varies_along([k - 1]):
        return None
    write = Writer(forms, node)
    a, b = write.folded(a), write.folded(b)
    total = write.ours("integer_matmul", node.result.shape, a.number, b.number)
    if a.zero is not None:
        total = write.less(total, write.times(write.total(b.number, [k - 1]), a.zero))
    if b.zero is not None:
        total = write.less(total, write.times(write.total(a.number, [k]), b.zero))
    if a.zero is not None and b.zero is not None:
        total = write.more(total, write.times(write.times(write.integer(a.zero), b.zero), x.shape[k]))
    return write.scaled(total, [*a.scales, *b.scales])


def matmul(forms: AffineForms, node: Node) -> Value | None:
    return product(forms, node, *arguments(node))


def add_product(forms: AffineForms, node: Node) -> Value | None:
    term, x, y = arguments(node)
    beta, alpha = (node.kwargs.get(name, 1) for name in ("beta", "alpha"))
    result = product(forms, node, x, y)
    if result is None:
        return None
    add = forms.graph.call
    if alpha != 1:
        result = add(aten.mul.Tensor, result, alpha, before=node)
    if beta == 0:
        return result
    if beta != 1:
        term = add(aten.mul.Tensor, term, beta, before=node)
    return add(aten.add.Tensor, result, term, before=node)


def linear(forms: AffineForms, node: Node) -> Value | None:
    """x (.., k) with weights (n, k), as a product of matrices."""
    x, weight, bias = arguments(node)
    a, b = forms.find(x), forms.find(weight)
    if a is None or b is None or len(weight.shape) != 2:
        return None
    call = forms.graph.call
    turned = call(aten.permute.default, weight, [1, 0], before=node)
    flat = call(aten.reshape.default, x, [math.prod(x.shape[:-1]), x.shape[-1]], before=node)
    made = call(aten.mm.default, flat, turned, before=node)
    result = product(forms, made.node, flat, turned)  # pyright: ignore
    if result is None:
        return None
    result = call(aten.reshape.default, result, list(node.result.shape), before=node)
    return result if bias is None else call(aten.add.Tensor, result, bias, before=node)


def convolution(forms: AffineForms, node: Node) -> Value | None:
    """Where a window goes over the border there is 0.0, which is `zero` among the integers."""
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = arguments(node)
    a, b = forms.find(x), forms.find(weight)
    if a is None or b is None or node.result.dtype != "float32":
        return None
    outputs = 1 if transposed else 0  # the dimension of the weights
    others = [d for d in range(len(weight.shape)) if d != outputs]
    inputs = weight.shape[0] // groups if transposed else weight.shape[1]
    if inputs * math.prod(weight.shape[2:]) > MOST_TERMS or not a.is_uniform or b.varies_along(others):
        return None
    if transposed and groups > 1 and not b.is_uniform:
        return None
    write = Writer(forms, node)
    a, b = write.folded(a), write.folded(b)
    if b.zero is not None:
        return None
    zero = 0 if a.zero is None else a.zero
    arguments_ = (stride, padding, dilation, transposed, output_padding, groups)
    total = write.ours("integer_convolution", node.result.shape, a.number, b.number, zero, *arguments_)
    per_channel = [1, -1, *[1] * (len(weight.shape) - 2)]
    if a.zero is not None:
        sums = write.total_of_weights(b.number, outputs, groups)
        sums = write.call(aten.reshape.default, sums, per_channel)
        total = write.less(total, write.times(sums, write.flat(a.zero)))
    scales = [write.flat(s) for s in a.scales]
    scales += [
        write.call(aten.reshape.default, s, per_channel) if isinstance(s, Value) else s for s in b.scales
    ]
    result = write.scaled(total, scales)
    if bias is None:
        return result
    return write.call(aten.add.Tensor, result, write.call(aten.reshape.default, bias, per_channel))


def embedding(forms: AffineForms, node: Node) -> Value | None:
    """Rows of the integers, and of the parameters that have rows."""
    weight, index, *rest = arguments(node)
    form = forms.find(weight)
    if form is None or weight.dtype != "float32":
        return None
    write = Writer(forms, node)

    def rows(parameter: Parameter) -> Any:
        if not isinstance(parameter, Value):
            return parameter
        if parameter.shape[0] == 1:
            return write.call(aten.reshape.default, parameter, list(parameter.shape[1:]))
        return write.call(aten.embedding.default, parameter, index)

    form = write.folded(form)
    total = write.integer(rows(form.number))
    if form.zero is not None:
        total = write.less(total, rows(form.zero))
    return write.scaled(total, [rows(s) for s in form.scales])


REWRITINGS: dict[Any, Callable[[AffineForms, Node], Value | None]] = {
    aten.mm.default: matmul,
    aten.bmm.default: matmul,
    aten.addmm.default: add_product,
    aten.baddbmm.default: add_product,
    aten.linear.default: linear,
    aten.convolution.default: convolution,
    aten.embedding.default: embedding,
}


class Writer:
    """Adds calls before a node."""

    def __init__(self, forms: AffineForms, node: Node) -> None:
        self.forms, self.node = forms, node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Value:
        return self.forms.noted(self.forms.graph.call(target, *args, before=self.node, **kwargs))

    def ours(self, name: str, shape: Sequence[int], *args: Any) -> Value:
        return self.call(name, *args, results=[(tuple(shape), "int32")])

    def folded(self, form: AffineForm) -> AffineForm:
        """Without a zero point where that is 0, or where numbers are known and are bytes without it, too."""
        if self.forms.is_zero(form.zero):
            return AffineForm(form.number, None, form.scales)
        number, zero = self.forms.tensor(form.number), self.forms.tensor(form.zero)
        if number is None or zero is None:
            return form
        shifted = number.int() - zero.int()
        for dtype in (torch.int8, torch.uint8):
            if torch.equal(shifted.to(dtype).int(), shifted):
                constant = self.forms.graph.constant(form.number.name, shifted.to(dtype))
                return AffineForm(constant, None, form.scales)
        return form

    def integer(self, value: Parameter) -> Any:
        if not isinstance(value, Value) or value.dtype == "int32":
            return int(value) if not isinstance(value, Value) else value
        return self.call(aten._to_copy.default, value, dtype=torch.int32)

    def total(self, value: Value, dims: list[int]) -> Value:
        return self.call(aten.sum.dim_IntList, value, dims, True, dtype=torch.int32)

    def total_of_weights(self, weight: Value, outputs: int, groups: int) -> Value:
        """Of the terms of each output channel."""
        rest = list(range(2, len(weight.shape)))
        if outputs == 0:
            return self.call(aten.sum.dim_IntList, weight, [1, *rest], False, dtype=torch.int32)
        by_group = self.call(
            aten.reshape.default, weight, [groups, weight.shape[0] // groups, *weight.shape[1:]]
        )
        return self.call(
            aten.sum.dim_IntList, by_group, [1, *(d + 1 for d in rest)], False, dtype=torch.int32
        )

    def flat(self, parameter: Parameter) -> Any:
        """One number without dimensions."""
        return self.call(aten.reshape.default, parameter, []) if isinstance(parameter, Value) else parameter

    def times(self, x: Any, factor: Parameter) -> Any:
        if not isinstance(x, Value):
            x, factor = factor, x
        if not isinstance(x, Value):
            return int(x) * int(factor)  # pyright: ignore[reportArgumentType]: then neither is
        return self.call(aten.mul.Tensor, x, self.integer(factor))

    def less(self, x: Value, y: Any) -> Value:
        return self.call(aten.sub.Tensor, x, self.integer(y))

    def more(self, x: Value, y: Any) -> Value:
        return self.call(aten.add.Tensor, x, self.integer(y))

    def scaled(self, total: Value, scales: Sequence[Parameter]) -> Value:
        """In float32, by what is not known yet and then by the product of what is."""
        result = self.call(aten._to_copy.default, total, dtype=torch.float32)
        known: list[Any] = []
        for scale in scales:
            if isinstance(scale, Value) and self.forms.tensor(scale) is None:
                result = self.call(aten.mul.Tensor, result, scale)
            else:
                known.append(scale)
        number = math.prod(s for s in known if not isinstance(s, Value))
        values = [s for s in known if isinstance(s, Value)]
        if not values:
            return result if number == 1 else self.call(aten.mul.Tensor, result, number)
        factor = values[0]
        for value in values[1:]:
            factor = self.call(aten.mul.Tensor, factor, value)
        if number != 1:
            factor = self.call(aten.mul.Tensor, factor, number)
        return self.call(aten.mul.Tensor, result, factor)
