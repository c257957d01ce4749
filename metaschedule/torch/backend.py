"""The `torch.compile` backend: `torch.compile(model, backend="metaschedule")`.

Dynamo gives graphs of a model, AOTAutograd makes them functional and takes care of mutated and aliased
inputs; each is then specialised to the shapes of a call, the first time there are such. What we cannot do
runs in eager (`fallback.py`): a node without lowering, or a whole graph (gradients, too many shapes, a fault
of ours), with a warning.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from threading import Event
from typing import Any, Protocol

import torch
import torch._dynamo
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.symbolic_convert import TensorifyState
from torch._guards import TracingContext
from torch.export import ExportedProgram

from .. import database as databases
from ..cache import store
from ..ir import Program, structural_hash
from ..runtime import KernelError
from ..target import NoDevice, Target, resolve
from .background import Background
from .capture import (
    capture,
    capture_exported,
    decompositions,
    device_of,
    keep_assertions,
    source_of,
)
from .copies import copy_inputs
from .counters import with_counters
from .dynamo_key import dynamo_key, find_functional, is_plain, keep_functional
from .eager import FASTER, follow_choices
from .fallback import GradientsRequired, NotCaptured, attempt, give_up
from .graph import Graph, Spec
from .graph_key import Source
from .kernels import Compiler, name_model
from .on_device import device_runner
from .overlap import keep_overlaps
from .passes.narrow_weights import Narrowing
from .pipeline import fuse_graph
from .plan import EagerStep, Plan, plan_calls
from .plan_cache import find_plan, keep_plan, plan_key, share_constants
from .runner import Runner, Unexpected
from .sizes import Family, size_class
from .symbols import Symbols
from .tasks import open_database, tasks, tune_programs
from .weights import Weights

log = logging.getLogger("metaschedule")
MOST_SHAPES = 64  # that one graph is specialised to at a time: kernels are shared, plans are a few kilobytes
MOST_CHANGES = 8  # of weights, until they count as inputs
WAIT, EAGERLY = "wait", "eager"  # until kernels are compiled
MOST_PLANS = 3  # of one specialisation, when eager steps give other results than were planned


@dataclass(frozen=True)
class Options:
    """`database` has the records of tuned programs. With `trials` a first call tunes for that long, per
    program; otherwise it never does. `strict` raises what would otherwise let a graph run in eager. `weights`
    of products become "int8" ("int8:64": with a scale for each 64) or "bfloat16" in memory. `startup` says
    what calls do for which nothing is compiled yet: "wait" for it, or run in "eager" while that is done in
    the background. `target` is what kernels are for: this machine, or for tensors on a CUDA device "cuda", if
    nothing is said; "opencl" copies tensors of the host to a device and back."""

    database: str | os.PathLike[str] | databases.Database | None = None
    trials: int | None = None
    strict: bool = False
    weights: str | None = None
    startup: str = WAIT
    target: str | Target | None = None

    def __post_init__(self) -> None:
        if self.startup not in (WAIT, EAGERLY):
            raise ValueError(f'option startup must be "{WAIT}" or "{EAGERLY}", got {self.startup!r}')

    @property
    def narrowing(self) -> Narrowing | None:
        return None if self.weights is None else Narrowing.parse(self.weights)


def options_of(given: Mapping[str, Any] | None) -> Options:
    known = [f.name for f in fields(Options)]
    unknown = sorted(set(given or {}) - set(known))
    if unknown:
        raise ValueError(f"no option {', '.join(unknown)}; there are {', '.join(known)}")
    options = Options(**(given or {}))
    _ = options.narrowing  # or an error, now
    return options


Build = Callable[[Graph], Callable[..., Any] | None]


def backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """What Dynamo calls with each graph of a model."""
    chosen = options_of(options)
    return functional(module, inputs, RunnerBuild(chosen), chosen.strict, startup=chosen.startup)


def functional(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    build: Build,
    strict: bool = False,
    copy: bool = False,
    startup: str = WAIT,
) -> Callable[..., Any]:
    """A graph of Dynamo that will run as what `build` makes of it; in eager, if that is nothing. With `copy`
    it gets copies of the inputs that it writes to. `startup` is that of `Options`."""
    written = set(range(len(inputs)))
    weights: list[int] = []

    key: str | None = None

    def compile(functional: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        nonlocal weights
        weights = weights_among_inputs()
        if len(metadata().input_info) == len(inputs):
            written.clear()
            written.update(n for n, info in enumerate(metadata().input_info) if info.mutates_data)
        if key is not None and is_plain(metadata(), functional, len(inputs)):
            keep_functional(key, functional, weights)
        return with_counters(functional, lambda rest: Specialised(rest, weights, build, strict, startup))

    def make() -> Callable[..., Any]:
        nonlocal key
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            refuse_gradients()
        keep_assertions(module)
        if isinstance(build, RunnerBuild) and store().bound and not build.is_for_gpu(inputs):
            key = dynamo_key(module, inputs)
            if key is not None and (found := find_specialised(key, module, inputs, build, strict, startup)):
                written.clear()
                return lambda *args: found(list(args))
        with scalars_as_tensors(module):
            return make_functional(module, inputs, compile)

    run = attempt(make, strict)
    if run is None:
        run = module.forward
    elif written:
        run = keep_overlaps(run, module, inputs, written, weights, strict)
    return (lambda *args: run(*copy_inputs(args, written))) if copy else run


def make_functional(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    compile: Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """By AOTAutograd: a function of the inputs that calls what `compile` makes of the functional graph."""
    return aot_autograd(
        fw_compiler=refuse_gradients,
        inference_compiler=compile,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,  # which a graph makes itself, in place if it can
    )(module, inputs)


def find_specialised(
    key: str,
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    build: RunnerBuild,
    strict: bool,
    startup: str,
) -> Specialised | None:
    """A graph of Dynamo that has a plan in the cache on disk for inputs like these; its functional form is
    made if something else is asked of it."""
    known = find_functional(key)
    if known is None:
        return None
    nodes, weights = known
    kept: list[torch.fx.GraphModule] = []

    def compile(functional: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        kept.append(functional)
        return functional

    def make(args: Sequence[Any]) -> torch.fx.GraphModule:
        make_functional(module, args, compile)
        return kept.pop()

    found = Specialised(make, weights, build, strict, startup)
    return found if found.find_plan(list(inputs), nodes) else None


@contextmanager
def scalars_as_tensors(module: torch.fx.GraphModule) -> Iterator[None]:
    """Take float64 scalars for the tensors that they are. Dynamo (torch 2.13) has a symbol for the value of
    each, AOTAutograd finds it unused and has Dynamo trace again without, and then calls like `x.add_(1)`
    whose result nobody uses are dropped. A symbol that is said to be dealt with is left alone."""
    known = TensorifyState.force_specializations
    added = set[str]()
    for node in module.graph.find_nodes(op="placeholder"):
        memo = getattr(node.meta.get("example_value"), "item_memo", None)
        read = any(user.target in ("item", torch.Tensor.item) for user in node.users)
        if isinstance(memo, torch.SymFloat) and not read:
            added |= {str(memo.node._expr)} - known
    known |= added
    try:
        yield
    finally:
        known -= added


def refuse_gradients(*_: Any) -> Any:
    raise GradientsRequired("gradients are required; call the model under torch.no_grad()")


def register() -> None:
    """Make the backend known by name where the package's entry point has not done that."""
    if "metaschedule" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(backend, name="metaschedule")


def weights_among_inputs() -> list[int]:
    """Which inputs of the graph being compiled are parameters and buffers that the graph leaves alone."""
    found = metadata()
    return [i for i in found.static_input_indices if not found.input_info[i].mutates_data]


def metadata() -> Any:
    """What AOTAutograd knows of the graph being compiled."""
    found = TracingContext.get().fw_metadata
    assert found is not None
    return found


@dataclass(frozen=True)
class RunnerBuild:
    """Builds runners with these options; `find` gives one whose plan is in the cache on disk."""

    options: Options

    def __call__(self, graph: Graph, stop: Event | None = None) -> Runner:
        target = target_for(self.options.target, graph.device)
        graph.on_gpu = target.gpu is not None
        plan = build_plan(graph, self.options, target, stop)
        return device_runner(plan, target, graph.device) if graph.on_gpu else Runner(plan)

    def is_for_gpu(self, args: Sequence[Any]) -> bool:
        """Whether a graph for such arguments has kernels for a GPU."""
        return target_for(self.options.target, device_of(args)).gpu is not None

    def find(self, source: Source) -> Runner | None:
        plan = find_kept_plan(source, self.options, machine_of("native"))
        return None if plan is None else Runner(plan)


def target_for(wanted: str | Target | None, device: torch.device) -> Target:
    """What kernels for tensors on a device are compiled for."""
    try:
        target = machine_of(wanted or ("cuda" if device.type == "cuda" else "native"))
    except NoDevice as error:
        raise NotCaptured(str(error)) from error
    check_device(target, device)
    return target


def check_device(target: Target, device: torch.device) -> None:
    if (target.kind == "cuda") != (device.type == "cuda"):
        raise NotCaptured(f"kernels for {target.kind} take no tensors on {device.type}")


def build_runner(graph: Graph, options: Options) -> Runner:
    return RunnerBuild(options)(graph)


def find_kept_plan(source: Source, options: Options, target: Target) -> Plan | None:
    """The plan of a graph that a process has made before, with the same options."""
    if options.trials:
        return None
    with open_database(options.database, readonly=True) as database:
        key = plan_key(source, database, options.weights)
        plan = None if key is None else find_plan(key, source, target, database)
    if plan is not None:
        report(plan)
    return plan


def plan_exported(exported: ExportedProgram, options: Options, target: Target) -> Plan:
    """The plan of an exported model, for inputs like its examples."""
    source = source_of(exported)
    check_device(target, device_of(source.args))
    if (found := find_kept_plan(source, options, target)) is not None:
        return found
    graph = capture_exported(exported)
    graph.source = source
    return build_plan(graph, options, target)


def build_plan(graph: Graph, options: Options, target: Target, stop: Event | None = None) -> Plan:
    """Compile a graph, after tuning it if that is asked for. `stop` is that of `build_all`."""
    check_device(target, graph.device)
    source, family = graph.source, graph.family
    graph.narrowing = options.narrowing
    parts = fuse_graph(graph)
    if family is not None:
        family.narrowing = graph.narrowing
        family.share_constants(graph)
    with open_database(options.database, readonly=not options.trials) as database:
        if options.trials:
            tune_programs(tasks([parts]), database=database, trials=options.trials, target=target)
        compiler = Compiler(target, database, name_model(parts.programs.values()), stop)
        known = {h: compiler.describe_records(h) for h in map(structural_hash, parts.programs.values())}
        parts = follow_choices(parts, compiler)
        compile = compiler if family is None else lambda programs: family.compile(programs, compiler)
        plan = plan_calls(parts, compile, target.cores if target.gpu is None else 1)
        if source is not None and target.gpu is None:
            given = [arg for arg in source.args if isinstance(arg, torch.Tensor)]
            places = share_constants(plan, given)
            key = plan_key(source, database, options.weights) if family is None else None
            if key is not None and source.is_unchanged():
                keep_plan(key, plan, source, places, compiler, known)
    report(plan)
    return plan


def machine_of(target: Target | str) -> Target:
    """The target; as "native" this machine with as many cores as torch uses threads."""
    found = resolve(target)
    return found.with_cores(torch.get_num_threads()) if target == "native" else found


def report(plan: Plan) -> None:
    """What is not ours, once for each operator."""
    eager = [step for step in plan.steps if isinstance(step, EagerStep)]
    for target in dict.fromkeys(step.target for step in eager):
        same = [step for step in eager if step.target is target]
        level = logging.INFO if all(step.why == FASTER for step in same) else logging.WARNING
        log.log(level, "%s runs in eager (%d times): %s", target, len(same), same[0].why)


class OnlyLooking(Exception):
    """Raised by whoever takes the place of a runner and leaves the call to eager."""


Key = tuple[Any, ...]
MakeModule = Callable[[Sequence[Any]], torch.fx.GraphModule]  # for arguments like those of a call


@dataclass
class Specialisation:
    """`runner` takes the arguments of these numbers; without one the graph runs in eager. `used` says when
    it was the last time."""

    runner: Callable[..., Any] | None
    inputs: tuple[int, ...] = ()
    used: int = 0


EAGER = Specialisation(None)


class Specialised:
    """A functional graph, compiled for each set of shapes when they first come, with the weights built in.

    A weight that has been changed (`weights.py` says how that is noticed) is built in again at the next call;
    one that keeps changing becomes an ordinary input.
    """

    _boxed_call = True  # AOTAutograd passes the arguments as one list

    def __init__(
        self,
        module: torch.fx.GraphModule | MakeModule,
        weights: Sequence[int],
        build: Build,
        strict: bool = False,
        startup: str = WAIT,
    ) -> None:
        self._module, self.build, self.strict = module, build, strict
        self.places = list(weights)
        self.weights: Weights | None = None  # as they were built in
        self.others: list[int] | None = None  # the arguments that are no weights
        self.known: dict[Key, Specialisation] = {}
        self.seen: dict[str, Sequence[Spec]] = {}  # what eager steps gave that was not planned
        self.changes = 0  # of weights
        self.symbols = Symbols(module if isinstance(module, torch.fx.GraphModule) else None)
        self.families: dict[tuple[int, ...], Family] = {}  # of kernels, by classes of sizes
        self.clock = itertools.count(1)
        self.lock = threading.Lock()
        self.background = Background() if startup == EAGERLY else None
        EVERY.add(self)

    def __call__(self, args: list[Any]) -> list[Any]:
        found = self._find(args)
        if found is None and self.background is not None:
            return self._run_eagerly(args, self.background)
        if found is None:
            with self.lock:
                found = self._find(args) or self._specialise(args)
        if found.runner is None:
            return self.module(args)(*args)
        try:
            return found.runner([args[i] for i in found.inputs])
        except KernelError as failure:
            return self._fail(args, failure)
        except OnlyLooking:
            return self.module(args)(*args)
        except Unexpected as surprise:
            with self.lock:
                self._plan_again(args, surprise)
            return self(args)

    def module(self, args: Sequence[Any]) -> torch.fx.GraphModule:
        """The functional graph, made now if nothing needed it before."""
        if not isinstance(self._module, torch.fx.GraphModule):
            self._module = self._module(args)
        return self._module

    def find_plan(self, args: list[Any], nodes: str) -> bool:
        """Take the plan in the cache on disk for arguments like these, if there is one. `nodes` is the digest
        of the functional graph's."""
        assert isinstance(self.build, RunnerBuild)
        self._settle_weights(args)
        source = Source(nodes, args, self.places, {}, self.weights)
        runner = self.build.find(source)
        if runner is not None:
            self._add(args, runner)
        return runner is not None

    def _run_eagerly(self, args: list[Any], background: Background) -> list[Any]:
        """By torch, while what is missing is compiled."""
        if (failure := background.take_failure()) is not None:  # of a strict one
            raise failure
        given = list(args)
        background.start(lambda: self.prepare(given))
        return self.module(args)(*args)

    def prepare(self, args: list[Any]) -> None:
        """Compile for arguments like these, before they come."""
        with self.lock:
            if self._find(args) is None:
                self._specialise(args)

    def _find(self, args: list[Any]) -> Specialisation | None:
        if self.weights is None or not self.weights.are_same(args):
            return None
        found = self.known.get(self._key(args))
        if found is not None:
            found.used = next(self.clock)
        return found

    def _key(self, args: Sequence[Any]) -> Key:
        """What a specialisation is for, besides weights: shapes and strides, numbers."""
        others = [args[i] for i in self.others or ()]
        return tuple([(a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in others])

    def _specialise(self, args: list[Any]) -> Specialisation:
        before = self.known  # until the new ones are there: what both use is not compiled again
        if self.weights is None or not self.weights.are_same(args):
            self._settle_weights(args)
        if (key := self._key(args)) not in self.known:
            self._add(args, self._build(args))
        del before
        return self.known[key]

    def _add(self, args: list[Any], runner: Callable[..., Any] | None) -> None:
        """Run calls like this one so."""
        tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and i not in self.places]
        built = Specialisation(runner, tuple(tensors), next(self.clock))
        self.known = {**self.known, self._key(args): built}

    def _settle_weights(self, args: list[Any]) -> None:
        """Forget what was built with weights that are no more; take none as constant that changes often."""
        changed = [] if self.weights is None else self.weights.find_changed(args)
        if changed:
            self.changes += 1
            self.known = {key: found for key, found in self.known.items() if found.runner is None}
            self.families = {}
            if self.changes > MOST_CHANGES:
                log.warning("weights keep changing: those that do are inputs from now on")
                self.places = [place for place in self.places if place not in changed]
        self.weights = Weights(args, self.places)
        self.others = [i for i in range(len(args)) if i not in set(self.places)]

    def _build(self, args: list[Any]) -> Callable[..., Any] | None:
        while len(self.known) >= MOST_SHAPES:  # out with what was not used for longest
            oldest = min(self.known, key=lambda key: self.known[key].used)
            self.known = {key: found for key, found in self.known.items() if key != oldest}

        def make() -> Callable[..., Any] | None:
            module = self.module(args)
            source = Source(module, args, self.places, dict(self.seen), self.weights)
            ours = self.build if isinstance(self.build, RunnerBuild) else None
            on_gpu = ours is not None and ours.is_for_gpu(args)
            family = None if on_gpu else self._family(args)
            find = ours.find if ours is not None and not on_gpu and family is None else None
            if find is not None and (found := find(source)) is not None:
                return found
            captured = capture(module, args, self.places, self.seen)
            captured.family, captured.source = family, source
            if isinstance(self.build, RunnerBuild) and self.background is not None:
                return self.build(captured, self.background.stop)
            return self.build(captured)

        return attempt(make, self.strict)

    def _family(self, args: list[Any]) -> Family | None:
        """The kernels for sizes like those of a call, if the graph is for several."""
        sizes = self.symbols.values(args)
        if not sizes:
            return None
        key = tuple([size_class(size) for size in sizes.values()])
        if key not in self.families:
            places = list(self.places)

            def programs_of(other: list[Any] | None) -> list[Program]:
                if other is None:
                    return []
                try:
                    graph = capture(self.module(other), other, places, {})
                    graph.narrowing = self.families[key].narrowing
                    return list(fuse_graph(graph).programs.values())
                except Exception:  # a size that the model does not take
                    log.debug("no graph of other sizes", exc_info=True)
                    return []

            def siblings() -> Iterator[list[Program]]:
                yield from map(programs_of, self.symbols.arguments_of_other_sizes(args, places))

            def largest() -> list[Program]:
                return programs_of(self.symbols.arguments_of_class(args, places))

            self.families[key] = Family(siblings, largest)
        return self.families[key]

    def _plan_again(self, args: list[Any], surprise: Unexpected) -> None:
        """Take what an eager step really gives into account; if that does not help, run in eager."""
        key = self._key(args)
        if self.known[key].runner is None:
            return
        if surprise.name in self.seen or len(self.seen) >= MOST_PLANS:
            if self.strict:
                raise surprise
            give_up(surprise)
            self.known = {**self.known, key: EAGER}
        else:
            self.seen[surprise.name] = surprise.results
            self.known = {k: found for k, found in self.known.items() if k != key}
            self._add(args, self._build(args))

    def _fail(self, args: list[Any], failure: KernelError) -> list[Any]:
        """A kernel has failed: eager says why, in its own words."""
        results = self.module(args)(*args)
        log.debug("a kernel failed where eager does not: %s", failure)
        return results

    def refresh(self) -> None:
        """Read all weights again at the next call."""
        with self.lock:
            self.weights = None
            self.families = {}
            self.known = {key: found for key, found in self.known.items() if found.runner is None}


class Refreshable(Protocol):
    """Something compiled, with weights built in."""

    lock: threading.Lock

    @property
    def weights(self) -> Weights | None: ...

    def refresh(self) -> None: ...


EVERY: weakref.WeakSet[Refreshable] = weakref.WeakSet()


def release_locks() -> None:
    """In a forked process: the threads that hold them stay with the parent."""
    for one in list(EVERY):
        one.lock = threading.Lock()


os.register_at_fork(after_in_child=release_locks)


def refresh(model: torch.nn.Module | None = None) -> None:
    """Let compiled graphs read their weights again: those of `model`, or all.

    Needed only after a change of few elements of a weight that torch does not count: through NumPy, DLPack
    or `weight.data`. Changes that torch counts, and those of most elements, are noticed at the next call.

    >>> model = torch.nn.Linear(64, 64).eval()
    >>> run = torch.compile(model, backend="metaschedule")
    >>> with torch.no_grad():
    ...     before = run(torch.ones(1, 64))
    ...     model.weight.data[5, 7] += 1
    ...     refresh(model)
    ...     bool((run(torch.ones(1, 64)) != before).any())
    True
    """
    own = None if model is None else {id(t) for t in tensors_of(model)}
    for one in list(EVERY):
        weights = one.weights
        if weights is not None and (own is None or any(id(t) in own for t in weights.tensors)):
            one.refresh()


def tensors_of(model: torch.nn.Module) -> Iterable[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()
