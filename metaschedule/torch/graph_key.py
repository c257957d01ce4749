"""`Source`: what a graph is captured from, and a key that says all of it.

Equal keys mean equal plans: nodes with their arguments, shapes and strides, numbers, and the content of
weights, by which passes decide and of which constants are made. What a key cannot describe (an object of the
user's, a graph within a graph, a size that is not known) is not in the cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch._ops import OpOverload

from ..cache import digest_of
from .graph import Spec
from .lowering import LOWERINGS
from .lowerings import OWN
from .weights import Weights

PLAIN_MODULES = ("_operator", "builtins", "math", "operator")  # whose functions are what their names say
NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class NoKey(Exception):
    """Something that a key cannot describe."""


@dataclass(frozen=True)
class Source:
    """A functional module, or the digest of its nodes, with the arguments of a call; those numbered in
    `constants` are weights. `seen` is that of `capture`. `weights` remembers the content of weights that are
    looked at often."""

    module: torch.fx.GraphModule | str
    args: Sequence[Any]
    constants: Sequence[int]
    seen: Mapping[str, Sequence[Spec]] = field(default_factory=dict)
    weights: Weights | None = None

    @cached_property
    def key(self) -> list[Any]:
        """All of it as plain values; NoKey if something is not plain."""
        if LOWERINGS.keys() != OWN:
            raise NoKey("lowerings that are not the package's")
        nodes = self.module if isinstance(self.module, str) else digest_nodes(self.module)
        inputs = [describe_input(arg) for arg in self.args]
        seen = [[name, describe(specs, {})] for name, specs in sorted(self.seen.items())]
        settings = [torch.__version__, str(torch.get_default_dtype())]
        return [settings, nodes, inputs, sorted(self.constants), seen, self.contents()]

    def is_unchanged(self) -> bool:
        """Whether the weights are still those of the key: somebody may have changed them meanwhile."""
        return self.weights is None or self.weights.are_same(list(self.args))

    def contents(self) -> list[str]:
        """Digests of the weights."""
        if self.weights is not None:
            return self.weights.contents(digests)
        return digests([self.args[n] for n in self.constants])


def digest_nodes(module: torch.fx.GraphModule) -> str:
    """Of what a functional module computes."""
    numbers = {node: n for n, node in enumerate(module.graph.nodes)}
    return digest_of([describe_node(module, node, numbers) for node in module.graph.nodes])


def describe_node(
    module: torch.fx.GraphModule, node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int]
) -> list[Any]:
    if node.op == "get_attr":
        return [node.name, "constant", *describe_attribute(module, str(node.target))]
    if node.op not in ("placeholder", "call_function", "output"):
        raise NoKey(f"a node {node.op}")
    target = describe_function(node.target) if node.op == "call_function" else node.op
    args = [describe(node.args, numbers), describe(node.kwargs, numbers)]
    return [node.name, target, *args, describe_result(node.meta.get("val"))]


def describe_attribute(module: torch.fx.GraphModule, name: str) -> list[Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, torch.Tensor):
        raise NoKey(f"an attribute {type(found).__name__}")
    return [describe_input(found), digests([found])]


def describe_function(target: Any) -> list[str]:
    if isinstance(target, OpOverload):
        return ["operator", str(target)]
    if getattr(target, "__module__", None) in PLAIN_MODULES:
        return ["function", target.__module__, target.__qualname__]
    raise NoKey(f"a call of {target}")


def describe(item: Any, numbers: Mapping[torch.fx.Node, int]) -> Any:
    """An argument of a node as JSON that differs where the argument does."""
    if item is None or isinstance(item, (bool, str)):
        return item
    if isinstance(item, (int, float, complex)):
        return [type(item).__name__, repr(item)]
    if isinstance(item, torch.fx.Node):
        return ["node", numbers[item]]
    if isinstance(item, (list, tuple)):
        kind = "list" if isinstance(item, list) else "tuple"
        return [kind, *[describe(part, numbers) for part in item]]
    if isinstance(item, Mapping):
        return ["mapping", *[[describe(k, numbers), describe(v, numbers)] for k, v in item.items()]]
    if isinstance(item, slice):
        return ["slice", *[describe(part, numbers) for part in (item.start, item.stop, item.step)]]
    if isinstance(item, NAMED):
        return ["torch", str(item)]
    if item is ...:
        return ["ellipsis"]
    raise NoKey(f"an argument {type(item).__name__}")


def describe_input(arg: Any) -> Any:
    """What a plan depends on of an argument of the module, without its values."""
    if not isinstance(arg, torch.Tensor):
        return describe(arg, {})
    if type(arg.detach()) is not torch.Tensor or arg.layout is not torch.strided or arg.device.type != "cpu":
        raise NoKey(f"a tensor {type(arg).__name__} {arg.layout} on {arg.device}")
    whole = arg.untyped_storage().nbytes() == arg.nbytes
    return [*describe_result(arg), list(arg.stride()), whole, arg.is_conj(), arg.is_neg()]


def describe_result(found: Any) -> Any:
    """What torch says that a node gives."""
    if isinstance(found, torch.Tensor):
        if not all(isinstance(n, int) for n in found.shape):
            raise NoKey("a size that is not known")
        return [list(found.shape), str(found.dtype)]
    if isinstance(found, (list, tuple)):
        return [describe_result(one) for one in found]
    if isinstance(found, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise NoKey("a number that is not known")
    return None


def digests(tensors: Sequence[torch.Tensor]) -> list[str]:
    """Of the values of tensors, in row-major order: 1.8 GB/s on each core."""
    if not tensors:
        return []
    cores = len(os.sched_getaffinity(0))
    if cores == 1 or sum(t.nbytes for t in tensors) < 1 << 20:
        return [digest(t) for t in tensors]
    largest = sorted(range(len(tensors)), key=lambda n: -tensors[n].nbytes)
    with ThreadPoolExecutor(cores) as pool:
        found = dict(zip(largest, pool.map(lambda n: digest(tensors[n]), largest)))
    return [found[n] for n in range(len(tensors))]


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """The values of a tensor in row-major order. Not by NumPy: torch does not resize what NumPy has seen."""
    with torch.no_grad():
        dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if not math.prod(dense.shape):
        return memoryview(b"")
    memory: Any = (ctypes.c_char * dense.nbytes).from_address(dense.data_ptr())
    memory.tensor = dense  # which keeps the memory
    return memoryview(memory).cast("B")
