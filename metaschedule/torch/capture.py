"""From FX to our graph: one specialised copy for the shapes at hand, weights as constants.

AOTAutograd, or `torch.export`, makes a model functional and decomposes what is neither core ATen nor lowered
by us; here the result is run once on fake tensors, and what it calls is written down.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_leaves

from .decompositions import DECOMPOSITIONS
from .fallback import NotCaptured, about
from .graph import Graph, Spec, Value, map_values, spec_of, values_in
from .graph_key import Source
from .lowering import LOWERINGS

aten = torch.ops.aten
MOST_NESTED = 4  # composite operators in composite operators
# Whose strides are those of memory, not of the tensor.
WRITE = torch.ops.aten.copy_.default  # at the end of a graph, to an input
METADATA = torch.ops.aten._assert_tensor_metadata.default  # of what is traced: it held
ASSERTIONS = (torch._assert_async, aten._assert_async.default)  # pyright: ignore[reportPrivateImportUsage]
READS_MEMORY = (torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_scatter.default)


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Core ATen's, without operators that we lower whole (softmax, layer norm, ...) and those that draw
    random numbers (others than eager does), and ours."""
    return {
        op: f for op, f in core_aten_decompositions().items() if op not in LOWERINGS and not draws(op)
    } | DECOMPOSITIONS


def composites(exported: ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """What torch itself computes by other operators: exporting leaves them, `torch.compile` does not, and a
    model is to have the same programs, and records, by either."""
    targets = {n.target for n in exported.graph_module.graph.nodes if isinstance(n.target, OpOverload)}
    return {op: partial(decompose, op) for op in targets - DECOMPOSITIONS.keys() if op._can_decompose()}


def decompose(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Not by `op.decompose`, which asks the table again that this is in."""
    return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def draws(op: Any) -> bool:
    """Whether an operator draws random numbers itself. Recurrent layers and attention, which may call
    dropout, are composed of operators of which each says it."""
    composed = isinstance(op, OpOverload) and torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), "CompositeImplicitAutograd"
    )
    return torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()) and not composed


def capture(
    module: torch.fx.GraphModule,
    args: Sequence[Any],
    constants: Collection[int] = (),
    seen: Mapping[str, Sequence[Spec]] | None = None,
) -> Graph:
    """The graph of a functional ATen module, for arguments like these. Those numbered in `constants` are
    weights; the graph's inputs are the other tensors. Numbers are taken as they are. `seen` are the results
    that nodes have been seen to give, where torch's fake tensors tell otherwise.

    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> x, w = torch.ones(2, 3), torch.ones(3)
    >>> print(capture(make_fx(lambda x, w: torch.relu(x * w))(x, w), [x, w], constants=[1]))
    graph(x_1: float32[2, 3])
      w_1: float32[3] = constant
      mul: float32[2, 3] = aten.mul.Tensor(x_1, w_1)
      relu: float32[2, 3] = aten.relu.default(mul)
      return relu
    """
    device = device_of(args)
    for arg in args:
        if isinstance(arg, torch.Tensor):
            check_dense(arg, device)
    recorder = Recorder(module, args, constants, seen or {})
    recorder.recorded.device = device
    with recorder.mode, torch.no_grad():
        recorder.run(*args)
    recorder.recorded.prune()
    return recorder.recorded


def capture_exported(exported: ExportedProgram) -> Graph:
    """The graph of an exported model, for inputs like its examples."""
    keep_assertions(exported.graph_module)
    for _ in range(MOST_NESTED):  # what one composite is made of may be another
        # attention is made of other operators where gradients may be asked for
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch warns of itself
            exported = exported.run_decompositions({**decompositions(), **composites(exported)})
        if not composites(exported):
            break
    kinds = {spec.kind for spec in exported.graph_signature.output_specs}
    if kinds != {OutputKind.USER_OUTPUT}:
        raise NotCaptured(
            "the exported model changes its buffers or inputs; export one that returns them instead"
        )
    source = source_of(exported)
    return capture(exported.graph_module, source.args, source.constants)


def keep_assertions(module: torch.fx.GraphModule) -> None:
    """Give assertions without a message eager's: AOTAutograd drops them otherwise."""
    for node in module.graph.nodes:
        if node.target in ASSERTIONS and len(node.args) == 1:
            node.args = (*node.args, "Expected Tensor with single nonzero value, but got zero")
            if node.target is aten._assert_async.default:
                node.target = aten._assert_async.msg


def source_of(exported: ExportedProgram) -> Source:
    """The module of an exported model with its weights and examples as arguments."""
    signature = exported.graph_signature
    state = {**exported.state_dict, **exported.constants}
    examples = iter(tree_leaves(exported.example_inputs))
    own = [spec.kind is InputKind.USER_INPUT for spec in signature.input_specs]
    args = [next(examples) if mine else state[str(s.target)] for mine, s in zip(own, signature.input_specs)]
    return Source(exported.graph_module, args, [i for i, mine in enumerate(own) if not mine])


class Recorder(torch.fx.Interpreter):
    """Runs a module on fake tensors. `values` says which of our values each FX node is."""

    def __init__(
        self,
        module: torch.fx.GraphModule,
        args: Sequence[Any],
        constants: Collection[int],
        seen: Mapping[str, Sequence[Spec]],
    ) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.seen = seen
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.recorded = Graph()
        self.values: dict[torch.fx.Node, Any] = {}
        given = [a.detach() if isinstance(a, torch.Tensor) else a for a in args]
        self.given = dict(zip([n for n in module.graph.nodes if n.op == "placeholder"], given, strict=True))
        self.writes: dict[Value, Value] = {}  # of inputs, at the end
        self.constants = {node for i, node in enumerate(self.given) if i in set(constants)}

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "placeholder":
            return self.add_input(n, self.given[n])
        if n.op == "get_attr":
            return self.add_input(n, self.fetch_attr(str(n.target)), constant=True)
        if n.op == "output":
            outputs = n.args[0] if isinstance(n.args[0], (list, tuple)) else [n.args[0]]
            self.recorded.outputs = [*self.ours(list(outputs)), *self.writes.values()]
            self.recorded.written = list(self.writes)
            return None
        with about(f"{n.name} = {n.target}"):
            if n.target is operator.getitem and n.args[0] in self.values:
                self.values[n] = self.values[n.args[0]][n.args[1]]  # pyright: ignore
            elif not isinstance(n.target, OpOverload) and (n.is_impure() or self.reads_tensors(n)):
                raise NotCaptured(f"{n.target} is not an ATen operator")
            try:
                result = super().run_node(n)
            except (DynamicOutputShapeException, DataDependentOutputException) as why:
                raise NotCaptured(f"{n.target} gives what depends on values: a shape, or a number") from why
            return self.record(n, n.target, result) if isinstance(n.target, OpOverload) else result

    def is_input(self, argument: Any) -> bool:
        return isinstance(argument, torch.fx.Node) and self.values.get(argument) in self.recorded.inputs

    def reads_tensors(self, node: torch.fx.Node) -> bool:
        return any(read in self.values for read in node.all_input_nodes)

    def add_input(self, node: torch.fx.Node, given: Any, constant: bool = False) -> Any:
        """What stands for an argument or an attribute of the module."""
        if not isinstance(given, torch.Tensor):
            return given
        if constant or node in self.constants:
            self.values[node] = self.recorded.constant(node.name, given)
        else:
            self.values[node] = self.recorded.input(node.name, *spec_of(given))
        self.recorded.strides[self.values[node]] = given.stride()
        return self.mode.from_tensor(given)

    def record(self, node: torch.fx.Node, target: OpOverload, result: Any) -> Any:
        """Write a call down; gives its results as they will be."""
        if target is WRITE and self.is_input(node.args[0]):
            written, value = self.ours(node.args[0]), self.read(node, node.args[1])
            self.writes[written] = value
            self.values[node] = written  # for who returns it; `read` is for who reads it
            return result
        if target._schema.is_mutable:
            raise NotCaptured(f"{target} writes to what it is given")
        if not tensors_in(result) and (
            result is not None or not self.reads_tensors(node) or target is METADATA
        ):
            return result  # the size of something, or an assertion about sizes that held
        result = self.correct_dtypes(node, result)
        results = tensors_in(result)
        for tensor in results:
            check_dense(tensor, self.recorded.device)
        if target in READS_MEMORY and not is_whole(self.env[node.all_input_nodes[0]]):
            raise NotCaptured(f"{target} of a tensor that is not contiguous, or part of a larger one")
        if any(isinstance(n, torch.SymInt) for t in results for n in t.shape):
            raise NotCaptured(f"{target} gives a shape that depends on values")
        specs = [spec_of(t) for t in results]
        args, kwargs = self.read(node, (node.args, node.kwargs))
        call = self.recorded.add(target, args, kwargs, specs, node.name)
        self.recorded.strides |= {v: t.stride() for v, t in zip(call.results, results)}
        ours = iter(call.results)
        if isinstance(result, (list, tuple)):
            self.values[node] = [next(ours) if is_tensor(r) else r for r in result]
        elif results:
            self.values[node] = call.result
        return result

    def read(self, node: torch.fx.Node, argument: Any) -> Any:
        """An argument of a node with our values in it; for an input that was written to, what it holds."""
        found = self.ours(argument)
        if not self.writes:
            return found
        for value in values_in(found):
            known = self.writes.get(value, value)
            if known.spec != value.spec or (view_base(value) in self.writes and known is value):
                raise NotCaptured(f"{node.target} reads {value.name}, whose memory has been written to")
        return map_values(found, lambda value: self.writes.get(value, value))

    def correct_dtypes(self, node: torch.fx.Node, result: Any) -> Any:
        """The results of a node in the dtypes that it has been seen to give."""
        if node.name not in self.seen:
            return result
        dtypes = iter([getattr(torch, dtype) for _, dtype in self.seen[node.name]])
        if not isinstance(result, (list, tuple)):
            return result.to(next(dtypes))
        return [r.to(next(dtypes)) if is_tensor(r) else r for r in result]

    def ours(self, argument: Any) -> Any:
        """An argument of FX with our values in it, and plain numbers where FX computed them."""
        return plain(torch.fx.map_arg(argument, lambda n: self.values.get(n, self.env.get(n))))


def view_base(value: Value) -> Value:
    """What a value is a view of, or a view of a view; itself if it is none."""
    while value.node is not None and isinstance(value.node.target, OpOverload) and value.node.target.is_view:
        value = value.node.args[0]
    return value


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor is all of its memory, in row-major order."""
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes


def plain(argument: Any) -> Any:
    """The argument in ordinary lists, tuples and dictionaries: FX has its own."""
    if isinstance(argument, (list, tuple)):
        return (list if isinstance(argument, list) else tuple)(map(plain, argument))
    if isinstance(argument, dict):
        return {key: plain(item) for key, item in argument.items()}
    return argument


def is_tensor(item: Any) -> bool:
    return isinstance(item, torch.Tensor)


def tensors_in(result: Any) -> list[torch.Tensor]:
    """The tensors among the results of an operator."""
    return list(filter(is_tensor, result if isinstance(result, (list, tuple)) else [result]))


def device_of(args: Sequence[Any]) -> torch.device:
    """Where the tensors among some arguments are, by the first of them."""
    return next((a.device for a in args if isinstance(a, torch.Tensor)), torch.device("cpu"))


def check_dense(tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
        raise NotCaptured(
            f"kernels are for dense tensors on cpu and cuda, not {tensor.layout} on {tensor.device}"
        )
    if tensor.device != device:
        raise NotCaptured(f"a graph has tensors on {device} and on {tensor.device}")
