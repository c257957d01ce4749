"""`optimize`: a model for inference as one native call, without Dynamo before it.

`torch.compile` asks hundreds of guards at every call, one Python object a parameter: 0.1 to 0.5 ms of a
light network. Here the model is exported once; a call compares its arguments with the example, asks natively
whether modules (`module_state.py`) and weights (`weights.py`) are as they were, and runs the plan. Everything
else goes through `torch.compile(model, backend="metaschedule")`.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ..runtime import KernelError
from ..validation import check_arguments
from .artefact import in_order
from .backend import EVERY, MOST_CHANGES, Options, machine_of, plan_exported
from .fallback import NotCaptured, attempt
from .module_state import ModuleState
from .plan import Plan
from .runner import Runner, Unexpected
from .tasks import DatabaseLike
from .transforms import is_observed, is_transformed
from .weights import Weights

log = logging.getLogger("metaschedule")


@dataclass(frozen=True)
class Example:
    """A tensor among the arguments that the model was traced with."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype

    def fits(self, leaf: Any) -> bool:
        return (
            type(leaf) in (torch.Tensor, torch.nn.Parameter)
            and leaf.dtype is self.dtype
            and leaf.shape == self.shape
            and leaf.device.type == "cpu"
            and leaf.layout is torch.strided
            and leaf.stride() == self.strides
            and not leaf.is_conj()
            and not (leaf.requires_grad and torch.is_grad_enabled())
        )


@dataclass(frozen=True)
class Traced:
    """The model as it was: `runner` computes it for arguments like `leaves`."""

    runner: Runner
    modules: ModuleState
    weights: Weights
    takes: TreeSpec
    gives: TreeSpec
    leaves: tuple[Any, ...]  # `Example` where a tensor is taken
    plain: bool  # tensors by position and nothing else
    dtype: torch.dtype  # of tensors that are made without one

    def is_model_same(self) -> bool:
        return (
            self.modules.is_same()
            and self.weights.are_same(self.weights.tensors)
            and torch.get_default_dtype() is self.dtype
        )

    def find_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
        """The tensors of a call; None if its arguments are not like those that the model was traced with."""
        if self.plain:
            given: Sequence[Any] = args
            if kwargs or len(args) != len(self.leaves):
                return None
        else:
            given, spec = tree_flatten((args, in_order(kwargs, self.takes)))
            if spec != self.takes:
                return None
        found: list[torch.Tensor] = []
        for leaf, expected in zip(given, self.leaves):
            if isinstance(expected, Example):
                if not expected.fits(leaf):
                    return None
                found.append(leaf)
            elif type(leaf) is not type(expected) or leaf != expected:
                return None
        return found


class Optimized:
    """A model for inference, called as the model is; what it returns never asks for gradients unless what it
    is given does. `handed_over` counts, by reason, the calls that `torch.compile` got."""

    def __init__(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> None:
        self.model, self.options = model, options
        self.handed_over: Counter[str] = Counter()
        self.changes = 0  # of the model
        self.lock = threading.Lock()
        chosen: dict[str, Any] = {"database": options.database, "strict": options.strict}
        self.compiled = torch.compile(model, backend="metaschedule", options=chosen)
        self.traced = attempt(lambda: self._trace(args, kwargs), options.strict)
        EVERY.add(self)

    @property
    def plan(self) -> Plan:
        if self.traced is None:
            raise ValueError("this model runs by torch.compile and has no plan of its own; the log says why")
        return self.traced.runner.plan

    @property
    def weights(self) -> Weights | None:
        return None if self.traced is None else self.traced.weights

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Traced:
        if self.model.training:
            raise NotCaptured("the model is in training mode; call model.eval() first")
        made_so = any(t.is_inference() for t in self.model.parameters())  # exporting them needs the mode
        mode = torch.inference_mode() if made_so else torch.no_grad()
        with mode, torch.autocast("cpu", enabled=False):  # calls under autocast are handed over
            exported = export(self.model, args, kwargs)
            modules = ModuleState(self.model)  # now: exporting puts equal lists and objects in their places
            runner = Runner(plan_exported(exported, self.options, machine_of("native")))
        leaves, takes = tree_flatten((args, kwargs))
        gives = exported.call_spec.out_spec
        assert gives is not None
        tensors = modules.tensors
        return Traced(
            runner, modules, Weights(tensors, range(len(tensors))), takes, gives,
            tuple([example_of(leaf) for leaf in leaves]),
            not kwargs and all(isinstance(a, torch.Tensor) for a in args), torch.get_default_dtype(),
        )  # fmt: skip

    def __reduce__(self) -> Any:
        raise TypeError("an optimized model is neither copied nor pickled; optimize a copy of the model")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # in the function of somebody who compiles the model by other means
            return self.model(*args, **kwargs)
        if is_transformed() or is_observed():
            self.handed_over["traced, transformed or observed: the model itself runs"] += 1
            return self.model(*args, **kwargs)
        traced = self.traced
        if traced is None:
            return self._hand_over("the model was not traced", args, kwargs)
        tensors = traced.find_tensors(args, kwargs)
        if tensors is None:
            return self._hand_over("other arguments than those of the example", args, kwargs)
        if torch.is_autocast_enabled("cpu"):
            return self._hand_over("autocast is on", args, kwargs)
        if not traced.is_model_same():
            with self.lock:
                if self.traced is traced:
                    self._trace_again(args, kwargs)
            return self(*args, **kwargs)
        try:
            results = traced.runner(tensors)
        except KernelError as failure:  # eager says why, in its own words
            log.debug("a kernel failed: %s", failure)
            with torch.no_grad():
                return self.model(*args, **kwargs)
        except Unexpected as surprise:
            self.traced = None
            return self._hand_over(str(surprise), args, kwargs)
        return results[0] if traced.gives.is_leaf() else tree_unflatten(results, traced.gives)

    def _trace_again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.changes += 1
        if self.changes > MOST_CHANGES or self.model.training:
            why = "is in training mode" if self.model.training else "keeps changing"
            log.warning("the model %s: torch.compile runs it from now on; optimize it again afterwards", why)
            self.traced = None
            return
        self.traced = attempt(lambda: self._trace(args, kwargs), self.options.strict)

    def _hand_over(self, why: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.handed_over[why]:
            log.info("torch.compile runs a call of an optimized model: %s", why)
        self.handed_over[why] += 1
        leaves, _ = tree_flatten((args, kwargs))
        if self.model.training or any(isinstance(a, torch.Tensor) and a.requires_grad for a in leaves):
            return self.compiled(*args, **kwargs)
        with torch.no_grad():
            return self.compiled(*args, **kwargs)

    def refresh(self) -> None:
        """Trace anew at the next call."""
        with self.lock:
            if self.traced is not None:
                self.traced.modules.forget()


@check_arguments
def optimize(
    model: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    database: DatabaseLike = None,
    strict: bool = False,
) -> Optimized:
    """Compile a model for calls like `model(*args, **kwargs)`, with the records of the database.

    Such calls cost no more than those of an exported model. Weights and attributes of modules that are
    changed are noticed at the next call; other shapes, dtypes or strides, training and autocast go through
    `torch.compile`, and so does a model that cannot be exported or that changes its own attributes. What is
    read besides (global variables, what functions hold) is taken as it was. `strict` raises where a graph
    would run in eager.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> run = optimize(model, (torch.ones(2, 8),))
    >>> run(torch.ones(2, 8)).shape, run(torch.ones(5, 8)).shape
    (torch.Size([2, 4]), torch.Size([5, 4]))
    """
    return Optimized(model, tuple(args), dict(kwargs or {}), Options(database, strict=strict))


def example_of(leaf: Any) -> Any:
    return Example(leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf


def export(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    """The model as a program. One that changes what its modules hold is none: the changes would be lost.

    Lists of weights that a module keeps beside its parameters (`torch.nn.GRU`) get the tensors that stand for
    these while the model is traced; that is no change."""
    before: list[ModuleState] = []
    changed: list[str] = []
    weights = tensors_by_name(model)

    def begin(*_: Any) -> None:
        before.append(ModuleState(model))

    def end(*_: Any) -> None:
        traced = tensors_by_name(model)
        stands_for = {id(tensor): weights[name] for name, tensor in traced.items() if name in weights}
        changed.extend(before.pop().changes(stands_for))

    hooks = [model.register_forward_pre_hook(begin, prepend=True), model.register_forward_hook(end)]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The tensor attribute")  # were assigned: judged here
            exported = torch.export.export(model, args, kwargs, strict=False)
    except Exception as why:  # the model's own, or what torch does not trace
        text = str(why).partition("\n")[0]
        raise NotCaptured(f"torch.export cannot trace the model: {type(why).__name__}: {text}") from why
    finally:
        for hook in hooks:
            hook.remove()
    if changed:
        raise NotCaptured(f"the model changes what its modules hold when it is called: {', '.join(changed)}")
    return exported


def tensors_by_name(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = dict(model.named_parameters(remove_duplicate=False))
    return found | dict(model.named_buffers(remove_duplicate=False))
