"""`Translator`: runs a model on tensors of torch, node by node.

On fake tensors, as they are traced, that writes down what the model is in ATen. Nodes that read known values
alone (constants, shapes) are computed at once, with real tensors, so arithmetic of shapes leaves no trace. An
operator without a translation of ours is carried out by its body where ONNX defines one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import onnx
import torch
from onnx import AttributeProto
from torch.utils._python_dispatch import _disable_current_modes

from . import tensors
from .errors import InvalidModel, OnnxError, Unsupported, UnsupportedOperator, ValueNeeded
from .model import Model, domain_of, read_constants, versions
from .registry import OPERATORS, Op

DRAWS = frozenset(
    ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"]
)
FAULTS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError, OverflowError)


@dataclass(frozen=True)
class Scope:
    """What names mean at a node: values, the attributes of the function around it, the opsets."""

    values: ChainMap[str, Any]
    opsets: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def inner(self) -> Scope:
        return Scope(self.values.new_child(), self.opsets, self.attributes)


@dataclass(frozen=True)
class Subgraph:
    """A graph among a node's attributes, with the scope in which it stands."""

    proto: onnx.GraphProto
    scope: Scope


class Translator:
    """One run. `sources` tells of every traced tensor which inputs of the model decide its values."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._sources: dict[int, tuple[torch.Tensor, frozenset[str]]] = {}

    def __call__(self, inputs: Mapping[str, Any]) -> list[Any]:
        """The outputs of the model, in order."""
        for name, value in inputs.items():
            self._note(value, frozenset([name]))
        scope = Scope(ChainMap({**self.model.constants, **inputs}), self.model.opsets)
        return self._run(self.model.proto.graph, scope)

    def sources(self, tensor: torch.Tensor) -> frozenset[str]:
        return self._sources[id(tensor)][1] if id(tensor) in self._sources else frozenset()

    def _note(self, value: Any, sources: frozenset[str]) -> None:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, torch.Tensor) and not tensors.is_known(one):
                self._sources.setdefault(id(one), (one, sources))

    def _run(self, graph: onnx.GraphProto, scope: Scope) -> list[Any]:
        for node in graph.node:
            self._visit(node, scope)
        return [look_up(scope, output.name) for output in graph.output]

    def _visit(self, node: onnx.NodeProto, scope: Scope) -> None:
        inputs = [look_up(scope, name) if name else None for name in node.input]
        with self._explain(node, inputs):
            results = self._call(node, inputs, scope)
        sources = [self.sources(t) for value in inputs for t in tensors_in(value)]
        for name, result in zip(node.output, results):
            if name:
                self._note(result, frozenset().union(*sources))
                scope.values[name] = result

    def _call(self, node: onnx.NodeProto, inputs: list[Any], scope: Scope) -> Sequence[Any]:
        domain = domain_of(node)
        attributes = {
            a.name: value for a in node.attribute if (value := self._attribute(a, scope)) is not None
        }
        function = self.model.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            return self._expand(function, inputs, attributes)
        version = scope.opsets.get(domain, self.model.opsets.get(domain, 1))
        found = OPERATORS.get((domain, node.op_type))
        if found is None:
            return self._expand(
                body_of(resolve(node, attributes), inputs, version),
                inputs,
                self._defaults(node, version, attributes),
            )
        known = tensors.is_known(inputs)
        if found.wants_op:
            named = max((n + 1 for n, name in enumerate(node.output) if name), default=0)
            inputs = [Op(node.op_type, version, named, self._run_subgraph), *inputs]
        # a graph among the attributes reads what is around it, and folds its own nodes
        nests = any(isinstance(value, Subgraph) for value in attributes.values())
        fold = known and not nests and node.op_type not in DRAWS
        with _disable_current_modes() if fold else nullcontext():
            results = found.function(*inputs, **attributes)
        return results if isinstance(results, tuple) else (results,)

    def _run_subgraph(self, graph: Subgraph, inputs: Sequence[Any]) -> list[Any]:
        scope = graph.scope.inner()
        scope.values.update(read_constants(graph.proto, self.model.directory))
        if len(graph.proto.input) != len(inputs):
            raise InvalidModel(f"its graph takes {len(graph.proto.input)} inputs, not {len(inputs)}")
        scope.values.update({i.name: value for i, value in zip(graph.proto.input, inputs)})
        return self._run(graph.proto, scope)

    def _expand(
        self, function: onnx.FunctionProto, inputs: Sequence[Any], attributes: Mapping[str, Any]
    ) -> list[Any]:
        """Run the body of a function."""
        given = dict.fromkeys(function.input) | dict(zip(function.input, inputs))
        defaults = {a.name: self._attribute(a, None) for a in function.attribute_proto}
        scope = Scope(ChainMap(given), versions(function.opset_import), {**defaults, **attributes})
        for node in function.node:
            self._visit(node, scope)
        return [scope.values.get(name) for name in function.output]

    def _defaults(self, node: onnx.NodeProto, version: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of an operator with those that are not given."""
        schema = onnx.defs.get_schema(node.op_type, version, domain_of(node))
        defaults = {
            name: self._attribute(a.default_value, None)
            for name, a in schema.attributes.items()
            if a.default_value.name
        }
        return {**defaults, **attributes}

    def _attribute(self, attribute: onnx.AttributeProto, scope: Scope | None) -> Any:
        if attribute.ref_attr_name:
            return scope.attributes.get(attribute.ref_attr_name) if scope else None
        if attribute.type == AttributeProto.GRAPH:
            assert scope is not None
            return Subgraph(attribute.g, scope)
        if attribute.type == AttributeProto.TENSOR:
            with _disable_current_modes():
                return tensors.from_proto(attribute.t, self.model.directory)
        if attribute.type == AttributeProto.SPARSE_TENSOR:
            with _disable_current_modes():
                return tensors.from_sparse(attribute.sparse_tensor)
        if attribute.type == AttributeProto.STRING:
            return attribute.s.decode(errors="replace")
        if attribute.type == AttributeProto.STRINGS:
            return [s.decode(errors="replace") for s in attribute.strings]
        if attribute.type == AttributeProto.TYPE_PROTO:
            return attribute.tp
        value = onnx.helper.get_attribute_value(attribute)
        return list(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value

    @contextmanager
    def _explain(self, node: onnx.NodeProto, inputs: Sequence[Any]) -> Iterator[None]:
        """Errors name the node that they are about, the innermost one."""
        where = f"{node.op_type}{f' {node.name!r}' if node.name else ''}"
        try:
            yield
        except (OnnxError, ValueNeeded) as error:
            if not hasattr(error, "__notes__"):
                error.add_note(f"at {where}")
            raise
        except FAULTS as error:
            text = str(error).partition("\n")[0]
            kind = Unsupported if "not implemented" in text or "not supported" in text else OnnxError
            given = ", ".join(describe(value) for value in inputs)
            raise kind(f"{where} of {given or 'nothing'}: {text}") from error


def look_up(scope: Scope, name: str) -> Any:
    if name not in scope.values:
        raise InvalidModel(
            f"{name!r} is read before it is computed: the graph has a cycle, or a part is missing"
        )
    return scope.values[name]


def tensors_in(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in values if isinstance(one, torch.Tensor)]


def describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tensors.dtype_name(value.dtype)}{list(value.shape)}"
    return "nothing" if value is None else f"a list of {len(value)}"


def body_of(node: onnx.NodeProto, inputs: Sequence[Any], version: int) -> onnx.FunctionProto:
    """The function by which ONNX defines an operator, for inputs like these."""
    domain = domain_of(node)
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        raise UnsupportedOperator([f"{domain}.{node.op_type}" if domain else node.op_type]) from None
    function = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        usable = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [type_of(value).SerializeToString() for value in inputs]
        if usable:
            content = schema.get_context_dependent_function_with_opset_version(
                max(usable), node.SerializeToString(), types
            )
            function.ParseFromString(content)
    if not function.node and schema.has_function:
        usable = [v for v in schema.function_opset_versions if v <= version]
        function.ParseFromString(schema.get_function_with_opset_version(max(usable)))
    if not function.node:
        raise UnsupportedOperator([f"{domain}.{node.op_type}" if domain else node.op_type])
    return function


def resolve(node: onnx.NodeProto, attributes: Mapping[str, Any]) -> onnx.NodeProto:
    """The node with values for attributes that refer to those of the function around it."""
    if not any(a.ref_attr_name for a in node.attribute):
        return node
    found = onnx.NodeProto()
    found.CopyFrom(node)
    del found.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            found.attribute.append(attribute)
        elif attribute.name in attributes:
            value = attributes[attribute.name]
            if isinstance(value, torch.Tensor):
                value = onnx.numpy_helper.from_array(tensors.to_numpy(value))
            found.attribute.append(onnx.helper.make_attribute(attribute.name, value))
    return found


def type_of(value: Any) -> onnx.TypeProto:
    if isinstance(value, torch.Tensor):
        return onnx.helper.make_tensor_type_proto(tensors.NUMBERS[value.dtype], list(value.shape))
    if isinstance(value, (list, tuple)) and value:
        return onnx.helper.make_sequence_type_proto(type_of(value[0]))
    return onnx.TypeProto()
