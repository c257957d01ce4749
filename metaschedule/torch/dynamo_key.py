"""Graphs of Dynamo of which a process before has found the functional form: a further start does without.

AOTAutograd traces a graph operator by operator: 0.8 s of BERT-base, to find again what is known. Kept is, by
a key of Dynamo's graph, the digest of the functional nodes. With the arguments of a call it names a plan, and
with a plan nobody needs the nodes themselves until weights change.

That holds of graphs for which AOTAutograd does nothing else at a call: inputs are left alone, and results are
neither inputs nor views. What a key cannot describe (functions that are not torch's, a graph within a graph,
symbolic sizes, autocast) is traced.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.node import _get_qualified_name

from ..cache import digest_of, identify, store
from .graph_key import (
    PLAIN_MODULES,
    NoKey,
    describe,
    describe_attribute,
    describe_input,
    digest_nodes,
)

GRAPHS = "graphs"
OPERATORS = ("aten", "prims")  # whose meaning is that of torch's version


def dynamo_key(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """The name of what AOTAutograd makes of a graph for inputs like these; None if it has none."""
    try:
        numbers = {node: n for n, node in enumerate(module.graph.nodes)}
        nodes = [describe_node(module, node, numbers) for node in module.graph.nodes]
        given = [[*describe_input(arg), arg.requires_grad] for arg in inputs if is_tensor(arg)]
        return digest_of(["functional", describe_modes(), nodes, given])
    except NoKey:
        return None


def is_tensor(arg: Any) -> bool:
    if not isinstance(arg, torch.Tensor):
        raise NoKey(f"an input {type(arg).__name__}")
    return True


def describe_modes() -> list[Any]:
    """What tracing depends on besides the graph."""
    if torch.is_autocast_enabled("cpu") or torch._C._len_torch_function_stack():
        raise NoKey("a mode of torch that is on")
    backends: Any = torch.backends
    cuda, einsum = backends.cuda, backends.opt_einsum
    return [
        torch.__version__,
        str(torch.get_default_dtype()),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        [cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()],
        [cuda.cudnn_sdp_enabled(), backends.mha.get_fastpath_enabled(), backends.mkldnn.enabled],
        [einsum.is_available(), einsum.enabled, einsum.strategy],
        functorch_config.get_hash().hex(),  # pyright: ignore[reportAttributeAccessIssue]
    ]


def describe_node(
    module: torch.fx.GraphModule, node: torch.fx.Node, numbers: Mapping[torch.fx.Node, int]
) -> list[Any]:
    if node.op == "placeholder":
        if getattr(node.meta.get("example_value"), "item_memo", None) is not None:
            raise NoKey("a number that is traced as a tensor")
        return [node.op, str(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))]
    if node.op == "get_attr":
        return [node.op, *describe_attribute(module, str(node.target))]
    if node.op not in ("call_function", "call_method", "output"):
        raise NoKey(f"a node {node.op}")
    target = describe_function(node.target) if node.op == "call_function" else str(node.target)
    return [node.op, target, describe(node.args, numbers), describe(node.kwargs, numbers)]


def describe_function(target: Any) -> str:
    """The name of a function that is torch's or Python's own."""
    if isinstance(target, OpOverload):
        if target.namespace not in OPERATORS:
            raise NoKey(f"a call of {target}")
        return str(target)
    try:
        if getattr(target, "__module__", None) in PLAIN_MODULES:
            where, attribute = target.__module__, target.__qualname__
        else:
            where, _, attribute = _get_qualified_name(target).rpartition(".")
        found = getattr(importlib.import_module(where), attribute)
    except (RuntimeError, AttributeError, ImportError, ValueError) as why:
        raise NoKey(f"a call of {target}") from why
    own = where.partition(".")[0] == "torch" and not where.startswith("torch.ops")
    if found is not target or not (own or where in PLAIN_MODULES):
        raise NoKey(f"a call of {where}.{attribute}")
    return f"{where}.{attribute}"


def is_plain(metadata: Any, functional: torch.fx.GraphModule, count: int) -> bool:
    """Whether calling what AOTAutograd made for `count` inputs is calling the functional graph."""
    (output,) = functional.graph.find_nodes(op="output")
    return (
        len(metadata.input_info) == len(functional.graph.find_nodes(op="placeholder")) == count
        and not any(info.mutates_data or info.mutates_metadata for info in metadata.input_info)
        and len(metadata.output_info) == len(output.args[0])
        and all(info.output_type is OutputType.non_alias for info in metadata.output_info)
        and all(issubclass(info.raw_type, torch.Tensor) for info in metadata.output_info)
        and not any(info.dynamic_dims for info in metadata.output_info)
        and all(isinstance(meta, PlainTensorMeta) for meta in metadata.subclass_inp_meta)
        and not metadata.num_intermediate_bases
        and not metadata.tokens
        and not metadata.num_graphsafe_rng_states
        and metadata.grad_enabled_mutation is None
    )


def find_functional(key: str) -> tuple[str, list[int]] | None:
    """The digest of the functional nodes, and which inputs are weights."""
    entry = store().read(GRAPHS, key, identify({}))
    return None if entry is None else (entry.data["nodes"], entry.data["weights"])


def keep_functional(key: str, functional: torch.fx.GraphModule, weights: Sequence[int]) -> None:
    try:
        with unset_fake_temporarily():  # AOTAutograd's: constants of the graph are real
            nodes = digest_nodes(functional)
    except NoKey:
        return
    store().write(GRAPHS, key, identify({}), {"nodes": nodes, "weights": list(weights)})
