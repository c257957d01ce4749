"""PyTorch: eager, in the layouts of its tensors that are worth trying, and `torch.compile`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from ..case import Case
from ..timing import fastest
from .contestant import ROUND_TIME, Variant
from .torch_operators import Counterpart, counterpart


class WithWeights(nn.Module):
    """An operator that has its weights inside, as a layer has."""

    def __init__(self, call: Callable[..., Tensor], weights: Sequence[Tensor]) -> None:
        super().__init__()
        self.call = call
        self.weights = nn.ParameterList([nn.Parameter(w, requires_grad=False) for w in weights])
        self.eval()

    def forward(self, *data: Tensor) -> Tensor:
        return self.call(*data, *self.weights)


class Torch:
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def prepare(self, case: Case) -> None:
        """It does not search ahead."""

    def close(self) -> None:
        """It has nothing to give back."""


class Eager(Torch):
    """Weights that are constant are frozen too, which lets oneDNN keep them in its own layout."""

    name = "torch"

    def variants(self, case: Case) -> Iterator[Variant]:
        for theirs, layout, data, weights in lay_out(case):
            yield make_variant(self.name, layout, theirs, partial(theirs.call, *data, *weights))
            if weights:
                run = freeze(WithWeights(theirs.call, weights), data)
                yield make_variant(self.name, f"{layout}, frozen", theirs, partial(run, *data))


class Compiled(Torch):
    """`torch.compile` with max-autotune, and with freezing if weights are constant."""

    name = "torch-compile"

    def variants(self, case: Case) -> Iterator[Variant]:
        from torch._inductor import config, select_algorithm

        torch._dynamo.reset()
        select_algorithm.PRINT_AUTOTUNE = False
        for theirs, layout, data, weights in lay_out(case):
            call = WithWeights(theirs.call, weights) if weights else theirs.call
            run = partial(torch.compile(call, mode="max-autotune", dynamic=False), *data)
            with (
                torch.inference_mode(),
                config.patch(freezing=bool(weights), max_autotune_report_choices_stats=False),
            ):
                run()
            yield make_variant(self.name, layout, theirs, run)


def lay_out(case: Case) -> Iterator[tuple[Counterpart, str, list[Tensor], list[Tensor]]]:
    """The operator and its tensors in each layout, those of the call and the constant ones."""
    theirs = counterpart(case.name, **case.config)
    for layout in theirs.layouts:
        tensors = theirs.inputs_from(case.arrays, layout)  # in our order: weights come last
        calls = len(case.arguments)
        yield theirs, layout, tensors[:calls], tensors[calls:]


def freeze(module: nn.Module, data: Sequence[Tensor]) -> Callable[..., Tensor]:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # still what packs weights for eager mode
        traced = torch.jit.trace(module, tuple(data), check_trace=False)
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced))


def make_variant(name: str, kind: str, theirs: Counterpart, call: Callable[[], Tensor]) -> Variant:
    def seconds() -> float:
        with torch.inference_mode():
            return fastest(call, ROUND_TIME)

    def output() -> np.ndarray:
        with torch.inference_mode():
            return theirs.output_to(call())

    return Variant(name, kind, False, seconds, output)
