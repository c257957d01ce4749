"""`Model`: an ONNX model as it was read and checked, and its arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from google.protobuf.message import DecodeError

from . import tensors
from .errors import InvalidModel, Unsupported, UnsupportedOperator
from .registry import OPERATORS

OLDEST, NEWEST = 13, 28  # opsets of the standard domain
STANDARD = ("", "ai.onnx")
ModelLike = str | os.PathLike[str] | bytes | onnx.ModelProto
Key = tuple[str, str, str]  # domain, name and overload of a function


@dataclass(frozen=True)
class Input:
    """`dims` are None for any rank; in them a name is a size that each call chooses. Only `kind` "tensor" has
    dims."""

    name: str
    dtype: torch.dtype
    dims: tuple[int | str, ...] | None
    kind: str = "tensor"  # "sequence" or "optional" of such

    @property
    def is_static(self) -> bool:
        return self.kind == "tensor" and self.dims is not None and all(isinstance(n, int) for n in self.dims)

    def __str__(self) -> str:
        dims = "[...]" if self.dims is None else f"[{', '.join(map(str, self.dims))}]"
        what = f"{tensors.dtype_name(self.dtype)}{dims}"
        return f"{self.name}: {what if self.kind == 'tensor' else f'{self.kind} of {what}'}"

    def check(self, given: Any) -> Any:
        """The argument as tensors; kernels trust shapes and dtypes."""
        if self.kind == "optional" and given is None:
            return None
        if self.kind != "tensor" and isinstance(given, (list, tuple)):
            return [self.check_tensor(item) for item in given]
        if self.kind == "sequence":
            raise TypeError(f"input {self} must be a list of arrays, got {type(given).__name__}")
        return self.check_tensor(given)

    def check_tensor(self, given: Any) -> torch.Tensor:
        if not isinstance(given, (np.ndarray, np.generic, torch.Tensor)):
            raise TypeError(f"input {self} must be an array, got {type(given).__name__}")
        if isinstance(given, torch.Tensor):
            tensor = given.detach().cpu().contiguous()
        else:
            tensor = tensors.from_numpy(np.asarray(given))
        got = f"{tensors.dtype_name(tensor.dtype)}{list(tensor.shape)}"
        if tensor.dtype != self.dtype or not self.fits(tensor.shape):
            raise ValueError(f"input {self}: got {got}")
        return tensor

    def fits(self, shape: Sequence[int]) -> bool:
        if self.dims is None or self.kind != "tensor":
            return True
        sizes = zip(self.dims, shape)
        return len(shape) == len(self.dims) and all(n == d or isinstance(d, str) for d, n in sizes)


class Model:
    """A checked model; its initialisers are read when they are first asked for."""

    def __init__(self, proto: onnx.ModelProto, path: str = "") -> None:
        self.proto, self.path, self.directory = proto, path, os.path.dirname(path)
        self.opsets = versions(proto.opset_import)
        self.functions: dict[Key, onnx.FunctionProto] = {
            (domain_of(f), f.name, f.overload): f for f in proto.functions
        }
        check(self)
        built_in = {t.name for t in proto.graph.initializer} | {
            t.values.name for t in proto.graph.sparse_initializer
        }
        self.inputs = [read_input(i) for i in proto.graph.input if i.name not in built_in]
        self.outputs = [o.name for o in proto.graph.output]
        self.constants = read_constants(proto.graph, self.directory)

    @property
    def name(self) -> str:
        return self.proto.graph.name

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call as tensors, by the names of the inputs."""
        known = [i.name for i in self.inputs]
        if len(args) > len(known):
            raise TypeError(f"the model takes {len(known)} inputs, got {len(args)}")
        given = dict(zip(known, args))
        for name, value in named.items():
            if name not in known:
                raise TypeError(f"no input {name!r}; the inputs are {', '.join(known)}")
            if name in given:
                raise TypeError(f"input {name!r} is given by position and by name")
            given[name] = value
        missing = [i.name for i in self.inputs if i.name not in given and i.kind != "optional"]
        if missing:
            raise TypeError(f"no value for the inputs {', '.join(missing)}")
        return {i.name: i.check(given.get(i.name)) for i in self.inputs}

    def example(self, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Arguments of zeros; sizes that the model leaves open are those given by name, or 1."""
        sizes = sizes or {}
        names = {d for i in self.inputs for d in i.dims or () if isinstance(d, str)}
        unknown = sorted(set(sizes) - names)
        if unknown:
            raise ValueError(f"no size {', '.join(unknown)}; there are {', '.join(sorted(names)) or 'none'}")
        found: dict[str, Any] = {}
        for one in self.inputs:
            if one.kind != "tensor" or one.dims is None:
                raise ValueError(f"input {one} has no shape: give example inputs")
            shape = [d if isinstance(d, int) else sizes.get(d, 1) for d in one.dims]
            found[one.name] = torch.zeros(shape, dtype=one.dtype)
        return found


def load(source: ModelLike | Model) -> Model:
    """A model from a file, from its bytes or from a `ModelProto`."""
    if isinstance(source, Model):
        return source
    if isinstance(source, onnx.ModelProto):
        return Model(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Model(parse(bytes(source), ""))
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a model is a path, bytes or a ModelProto, not {type(source).__name__}")
    with open(source, "rb") as file:
        content = file.read()
    return Model(parse(content, f"{os.fspath(source)}: "), os.path.abspath(source))


def parse(content: bytes, where: str) -> onnx.ModelProto:
    try:
        proto = onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as why:
        raise InvalidModel(f"{where}not an ONNX model, or a damaged one: {why}") from why
    if not proto.HasField("graph"):
        raise InvalidModel(f"{where}not an ONNX model, or one that was cut short: it has no graph")
    return proto


def check(model: Model) -> None:
    """Refuse what contradicts itself, and operators that we cannot translate, before anything is done."""
    check_opset(model)
    missing = sorted(set(find_missing(model, model.proto.graph.node, model.opsets, set())))
    if missing:
        raise UnsupportedOperator(missing)
    try:
        onnx.checker.check_model(model.path or model.proto)
    except onnx.checker.ValidationError as why:
        raise InvalidModel(f"the model is not valid: {str(why).strip()}") from why
    except ValueError:  # larger than the checker takes, 2 GB
        pass


def check_opset(model: Model) -> None:
    """Opsets from 13 on; an older one if what the model uses has not changed from it to 13."""
    version = model.opsets.get("")
    if version is None:
        return
    if version > NEWEST:
        raise Unsupported(f"opset {version} of the standard domain; this version knows {OLDEST} to {NEWEST}")
    if version >= OLDEST:
        return
    for node in walk(model.proto.graph.node):
        if node.domain in STANDARD and since(node.op_type, version) != since(node.op_type, OLDEST):
            raise Unsupported(
                f"{node.op_type} of opset {version}; this version knows {OLDEST} to {NEWEST}: "
                f"onnx.version_converter.convert_version(model, {OLDEST}) may help"
            )


def since(name: str, version: int) -> int | None:
    """The opset that brought the operator as it is in opset `version`."""
    try:
        return onnx.defs.get_schema(name, version, "").since_version
    except onnx.defs.SchemaError:
        return None


def find_missing(
    model: Model, nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int], seen: set[Any]
) -> Iterator[str]:
    """Names of operators without translation, in functions too."""
    for node in walk(nodes):
        domain = domain_of(node)
        function = model.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            if id(function) not in seen:
                seen.add(id(function))
                yield from find_missing(model, function.node, versions(function.opset_import), seen)
        elif (domain, node.op_type) not in OPERATORS and not has_body(node, opsets):
            yield f"{domain}.{node.op_type}" if domain else node.op_type


def has_body(node: onnx.NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether ONNX defines the operator by others."""
    domain = domain_of(node)
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(domain, NEWEST), domain)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function  # pyright: ignore


def walk(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, and those of graphs among their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from walk(graph.node)


def versions(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    for one in imports:
        if not 0 <= one.version < 2**31:  # what ONNX can look up
            raise InvalidModel(f"there is no opset {one.version} of domain {domain_of(one)!r}")
    return {domain_of(one): one.version for one in imports}


def domain_of(one: Any) -> str:
    return "" if one.domain in STANDARD else one.domain


def read_constants(graph: onnx.GraphProto, directory: str) -> dict[str, torch.Tensor]:
    found = {t.name: tensors.from_proto(t, directory) for t in graph.initializer}
    return found | {t.values.name: tensors.from_sparse(t) for t in graph.sparse_initializer}


def read_input(info: onnx.ValueInfoProto) -> Input:
    kind, proto = "tensor", info.type
    while proto.WhichOneof("value") in ("sequence_type", "optional_type"):
        outer = proto.WhichOneof("value")
        kind = "optional" if "optional" in (outer.partition("_")[0], kind) else "sequence"
        proto = proto.sequence_type.elem_type if outer == "sequence_type" else proto.optional_type.elem_type
    if proto.WhichOneof("value") != "tensor_type":
        raise Unsupported(f"input {info.name!r}: {proto.WhichOneof('value')} is not supported")
    tensor = proto.tensor_type
    dims = None
    if tensor.HasField("shape") and kind == "tensor":
        dims = tuple(
            [
                d.dim_value
                if d.HasField("dim_value") and d.dim_value >= 0
                else d.dim_param or f"{info.name}_{n}"
                for n, d in enumerate(tensor.shape.dim)
            ]
        )
    return Input(info.name, tensors.dtype_of(tensor.elem_type), dims, kind)
