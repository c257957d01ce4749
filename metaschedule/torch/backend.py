"""The `torch.compile` backend: `torch.compile(model, backend="metaschedule")`.

Dynamo gives graphs of a model, AOTAutograd makes them functional and takes care of mutated and aliased
inputs; each is then specialised to the shapes of a call, the first time there are such. What we cannot do
runs in eager: a node without lowering, or a whole graph (gradients, too many shapes), with a warning.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from .. import database as databases
from ..target import resolve
from .alternatives import faster_programs
from .capture import NotCaptured, capture, decompositions
from .graph import Graph
from .kernels import Compiler
from .pipeline import pieces
from .plan import EagerStep, Plan, planned
from .runner import Runner
from .tasks import opened, tasks, tune_programs

log = logging.getLogger("metaschedule")
MOST_SHAPES = 8  # that one graph is specialised to
MOST_CHANGES = 8  # of weights, until they count as inputs


@dataclass(frozen=True)
class Options:
    """`database` has the records of tuned programs. With `trials` a first call tunes for that long, per
    program; otherwise it never does."""

    database: str | os.PathLike[str] | databases.Database | None = None
    trials: int | None = None


def options_of(given: Mapping[str, Any] | None) -> Options:
    known = [f.name for f in fields(Options)]
    unknown = sorted(set(given or {}) - set(known))
    if unknown:
        raise ValueError(f"no option {', '.join(unknown)}; there are {', '.join(known)}")
    return Options(**(given or {}))


def backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """What Dynamo calls with each graph of a model."""
    chosen = options_of(options)
    if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        log.warning("gradients are required: running in eager; call the model under torch.no_grad()")
        return module.forward
    return functional(module, inputs, lambda graph: built(graph, chosen))


def functional(
    module: torch.fx.GraphModule, inputs: Sequence[Any], build: Callable[[Graph], Callable[..., Any] | None]
) -> Callable[..., Any]:
    """A graph of Dynamo that will run as what `build` makes of it; in eager, if that is nothing."""

    def compile(functional: torch.fx.GraphModule, _: Sequence[Any]) -> Specialised:
        return Specialised(functional, weights_among_inputs(), build)

    return aot_autograd(fw_compiler=compile, decompositions=decompositions())(module, inputs)


def register() -> None:
    """Make the backend known by name where the package's entry point has not done that."""
    if "metaschedule" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(backend, name="metaschedule")


def weights_among_inputs() -> list[int]:
    """Which inputs of the graph being compiled are parameters and buffers that the graph leaves alone."""
    metadata = TracingContext.get().fw_metadata
    assert metadata is not None
    return [i for i in metadata.static_input_indices if not metadata.input_info[i].mutates_data]


def built(graph: Graph, options: Options) -> Runner:
    """Compile a graph, after tuning it if that is asked for."""
    threads = torch.get_num_threads()
    parts = pieces(graph)
    with opened(options.database, readonly=not options.trials) as database:
        if options.trials:
            tune_programs(tasks([parts]), database=database, trials=options.trials)
        target = resolve("native").with_cores(threads)
        plan = planned(faster_programs(parts, database, target), Compiler(target, database), threads)
    report(plan)
    return Runner(plan)


def report(plan: Plan) -> None:
    """What is not ours, once for each operator."""
    eager = [step for step in plan.steps if isinstance(step, EagerStep)]
    for target in dict.fromkeys(step.target for step in eager):
        same = [step for step in eager if step.target is target]
        log.warning("%s runs in eager (%d times): %s", target, len(same), same[0].why)


Key = tuple[tuple[Any, ...], tuple[tuple[int, ...], tuple[int, ...]]]


@dataclass(frozen=True)
class Specialisation:
    """`runner` takes the arguments of these numbers; without one the graph runs in eager."""

    runner: Callable[..., Any] | None
    inputs: tuple[int, ...] = ()


class Specialised:
    """A functional graph, compiled for each set of shapes when they first come, with the weights built in.

    A weight that has been changed (in place, or by another tensor in its place) is noticed at the next call
    and built in again; one that keeps changing becomes an ordinary input. Writing through `weight.data` or
    NumPy escapes torch's counters of changes and is not noticed.
    """

    _boxed_call = True  # AOTAutograd passes the arguments as one list

    def __init__(
        self,
        module: torch.fx.GraphModule,
        weights: Sequence[int],
        build: Callable[[Graph], Callable[..., Any] | None],
    ) -> None:
        self.module, self.build = module, build
        self.weights = list(weights)
        self.known: dict[Key, Specialisation] = {}
        self.changes = 0  # of weights
        self.lock = threading.Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        found = self._found(args)
        if found is None:
            with self.lock:
                found = self._found(args) or self._specialise(args)
        if found.runner is None:
            return self.module(*args)
        return found.runner([args[i] for i in found.inputs])

    def _found(self, args: list[Any]) -> Specialisation | None:
        return self.known.get(self._key(args)) if self.known else None

    def _key(self, args: list[Any]) -> Key:
        """What a specialisation is for: shapes and numbers; weights by address and count of changes. A model
        has hundreds, and every call looks at them."""
        weights = [args[i] for i in self.weights]
        weighed = set(self.weights)
        others = [a for i, a in enumerate(args) if i not in weighed]
        shapes = tuple([a.shape if isinstance(a, torch.Tensor) else a for a in others])
        return shapes, (tuple([w.data_ptr() for w in weights]), tuple([w._version for w in weights]))

    def _specialise(self, args: list[Any]) -> Specialisation:
        self._settle_weights(args)
        key = self._key(args)
        self.known[key] = self._built(args)
        return self.known[key]

    def _settle_weights(self, args: list[Any]) -> None:
        """Forget what was built with weights that are no more; take none as constant that changes often, or
        whose changes torch does not count."""
        self.weights = [i for i in self.weights if not args[i].is_inference()]
        _, current = self._key(args)
        stale = [key for key in self.known if key[1] != current]
        if stale:
            self.changes += 1
            if self.changes > MOST_CHANGES:
                log.warning("weights keep changing: those that do are inputs from now on")
                before = stale[-1][1]
                self.weights = [
                    w for w, old, new in zip(self.weights, zip(*before), zip(*current)) if old == new
                ]
            self.known = {}

    def _built(self, args: list[Any]) -> Specialisation:
        if len(self.known) >= MOST_SHAPES:
            log.warning("more than %d shapes of one graph: the others run in eager", MOST_SHAPES)
            return Specialisation(None)
        try:
            runner = self.build(capture(self.module, args, self.weights))
        except NotCaptured as why:
            log.warning("a graph runs in eager: %s", why)
            return Specialisation(None)
        tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and i not in self.weights]
        return Specialisation(runner, tuple(tensors))
