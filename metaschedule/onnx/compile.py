"""`compile`: a model as a function of NumPy's arrays."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..torch.backend import MOST_SHAPES, Build, Options, Specialised, build_runner
from ..torch.capture import decompositions
from ..torch.fallback import NotCaptured, give_up
from ..torch.tasks import DatabaseLike
from . import tensors
from .errors import OnnxError, ValueNeeded
from .model import Model, ModelLike, load
from .translate import Translator

MOST_VALUES = 64  # elements of the inputs whose values a model is specialised to


@dataclass(frozen=True)
class Trace:
    """A model in functional ATen, for inputs of these shapes. `module` takes those that `takes` names and
    gives what is computed; outputs that are known already are among `outputs`, the others are numbers of
    results."""

    module: torch.fx.GraphModule
    takes: tuple[str, ...]
    outputs: Any
    computes: int  # how many results


def trace(model: Model, inputs: Mapping[str, Any], by_value: frozenset[str] = frozenset()) -> Trace:
    """Translate a model for inputs like these; those in `by_value` are constants."""
    takes = tuple([name for name in inputs if name not in by_value])
    constants = {name: inputs[name] for name in inputs if name in by_value}
    leaves, structure = tree_flatten([inputs[name] for name in takes])
    outputs: Any = None
    count = 0
    translator = Translator(model)

    def run(*leaves: Any) -> list[torch.Tensor]:
        nonlocal outputs, count
        arguments = dict(zip(takes, tree_unflatten(list(leaves), structure)))
        computed: list[torch.Tensor] = []

        def place(output: Any) -> Any:
            if isinstance(output, (list, tuple)):
                return [place(one) for one in output]
            if output is None or tensors.is_known(output):
                return output
            computed.append(output)
            return len(computed) - 1

        outputs = [place(output) for output in translator({**constants, **arguments})]
        count = len(computed)
        return computed

    try:
        with torch.no_grad():
            module = make_fx(
                run, decomposition_table=decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True
            )(*leaves)
    except ValueNeeded as need:
        need.sources = translator.sources(need.tensor)
        raise
    share_constants(module)
    return Trace(module, takes, outputs, count)


def share_constants(module: torch.fx.GraphModule) -> None:
    """One node for each constant: FX makes one for each use."""
    first: dict[str, torch.fx.Node] = {}
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            known = first.setdefault(str(node.target), node)
            if known is not node:
                node.replace_all_uses_with(known)
                module.graph.erase_node(node)
    module.recompile()


def trace_values(
    model: Model, inputs: Mapping[str, Any], by_value: frozenset[str]
) -> tuple[Trace, frozenset[str]]:
    """The trace, specialised to the values of as many more small inputs as it takes, and which those are."""
    while True:
        try:
            return trace(model, inputs, by_value), by_value
        except ValueNeeded as need:
            names = need.sources - by_value
            size = sum(t.numel() for name in names | by_value for t in tree_flatten(inputs[name])[0])
            if not names or size > MOST_VALUES:
                raise
            by_value |= names


class CompiledModel:
    """A model, called with arrays by position or by name; gives an array, or a tuple of several, in the order
    of `outputs`. It is compiled for the shapes of its inputs when they first come, and for the values of
    small ones that decide shapes."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self._build: Build = lambda graph: build_runner(graph, options)
        self._known: dict[Any, Callable[[Mapping[str, Any]], list[Any]]] = {}
        self._used: dict[Any, int] = {}  # when, by key
        self._clock = itertools.count(1)
        self._by_value: frozenset[str] = frozenset()
        self._lock = threading.RLock()

    @property
    def inputs(self) -> list[str]:
        return [i.name for i in self.model.inputs]

    @property
    def outputs(self) -> list[str]:
        return list(self.model.outputs)

    def __reduce__(self) -> Any:
        raise TypeError("a compiled model is not pickled")

    def __call__(self, *args: Any, **named: Any) -> Any:
        inputs = self.model.bind(args, named)
        with torch.no_grad():
            results = self._find(inputs)(inputs)
        given = tree_flatten([*inputs.values(), *self.model.constants.values()])[0]
        memory = {t.untyped_storage().data_ptr() for t in given}
        arrays = [as_array(result, memory) for result in results]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def _key(self, inputs: Mapping[str, Any]) -> Any:
        key: list[Any] = []
        for name, value in inputs.items():
            leaves, structure = tree_flatten(value)
            shapes = tuple(t.shape for t in leaves)
            values = tuple(as_bytes(t) for t in leaves) if name in self._by_value else ()
            key.append((structure if isinstance(value, list) else None, shapes, values))
        return tuple(key)

    def _find(self, inputs: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
        key = self._key(inputs)
        found = self._known.get(key)
        if found is None:
            with self._lock:
                key = self._key(inputs)
                found = self._known.get(key) or self._specialise(inputs)
        self._used[key] = next(self._clock)
        return found

    def _specialise(self, inputs: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
        while len(self._known) >= MOST_SHAPES:  # out with what was not used for longest
            oldest = min(self._known, key=lambda key: self._used.get(key, 0))
            self._known = {key: found for key, found in self._known.items() if key != oldest}
            self._used = {key: self._used[key] for key in self._known if key in self._used}
        try:
            traced, by_value = trace_values(self.model, inputs, self._by_value)
        except (NotCaptured, OnnxError) as why:
            if self.options.strict:
                raise
            self._eager(inputs)  # raises what is wrong, if anything is
            give_up(why if isinstance(why, NotCaptured) else NotCaptured(str(why)))
            found = self._eager
        else:
            if by_value != self._by_value:
                self._known, self._by_value = {}, by_value
            found = Specialisation(traced, Specialised(traced.module, [], self._build, self.options.strict))
        self._known = {**self._known, self._key(inputs): found}
        return found

    def _eager(self, inputs: Mapping[str, Any]) -> list[Any]:
        return Translator(self.model)(inputs)

    def prepare(self) -> None:
        """Compile now what does not depend on a call: a model whose inputs have fixed shapes."""
        if not all(i.is_static for i in self.model.inputs):
            return
        inputs = self.model.example()
        try:
            traced = trace(self.model, inputs)
        except (NotCaptured, OnnxError):
            return  # the first call has the values that it takes, or says what is wrong
        run = Specialised(traced.module, [], self._build, self.options.strict)
        if traced.computes:
            run.prepare(tree_flatten([inputs[name] for name in traced.takes])[0])
        self._known[self._key(inputs)] = Specialisation(traced, run)


@dataclass(frozen=True)
class Specialisation:
    trace: Trace
    run: Specialised

    def __call__(self, inputs: Mapping[str, Any]) -> list[Any]:
        leaves = tree_flatten([inputs[name] for name in self.trace.takes])[0]
        computed = self.run(leaves) if self.trace.computes else []
        return [fill(output, computed) for output in self.trace.outputs]


def fill(output: Any, computed: Sequence[torch.Tensor]) -> Any:
    if isinstance(output, list):
        return [fill(one, computed) for one in output]
    if isinstance(output, int):
        return computed[output]
    return None if output is None else output.clone()


def as_bytes(tensor: torch.Tensor) -> bytes:
    return tensors.to_numpy(tensor).tobytes()


def as_array(result: Any, taken: set[int]) -> Any:
    """An array that the caller may write to: not an input, nor a constant of the model."""
    if isinstance(result, (list, tuple)):
        return [as_array(one, taken) for one in result]
    if result is None:
        return None
    shared = result.untyped_storage().data_ptr() in taken
    return tensors.to_numpy(result.clone() if shared else result)


def compile(
    model: ModelLike | Model,
    *,
    database: DatabaseLike = None,
    trials: int | None = None,
    strict: bool = False,
) -> CompiledModel:
    """Compile a model from a file, its bytes or a `ModelProto`, with the records of the database; with
    `trials`, it is tuned first for that long. What cannot be compiled runs in eager, with a warning; `strict`
    raises instead. An operator that has no translation is an `UnsupportedOperator` in either case.
    """
    compiled = CompiledModel(load(model), Options(database, trials, strict))
    compiled.prepare()
    return compiled
