"""The same model, made and called in other ways: as fast, or a warning says what to do.

    python benchmarks/variants.py [MODEL...] [--rounds N] [--small]

Each variant is timed by turns with the plain model, under `torch.compile(backend="metaschedule")` and as
`ms.torch.optimize` gives it; figures are times over those of the plain model. Warnings that a variant was
given are printed with it.
"""

from __future__ import annotations

import argparse
import copy
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import metaschedule as ms
from metaschedule.report import models

MODELS = ("mobilenet_v3", "bert_small")
Made = tuple[Any, tuple[Any, ...]]
log = logging.getLogger("metaschedule")


def under_inference_mode(name: str, small: bool) -> Made:
    """Weights that torch keeps no count of changes of."""
    model, args = models.create(name, small=small)
    with torch.inference_mode():
        for module in model.modules():
            for key, parameter in list(module._parameters.items()):
                if parameter is not None:
                    module._parameters[key] = torch.nn.Parameter(parameter.clone(), requires_grad=False)
    return model, args


def moved_and_cast(name: str, small: bool) -> Made:
    model, args = models.create(name, small=small)
    return model.double().to("cpu").float(), args


def with_shared_weights(name: str, small: bool) -> Made:
    """Layers of the same shape have one weight, as embeddings and the last layer of language models have."""
    model, args = models.create(name, small=small)
    first: dict[Any, torch.nn.Parameter] = {}
    for module in model.modules():
        for key, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.ndim > 1:
                kind = type(module), parameter.shape
                module._parameters[key] = first.setdefault(kind, parameter)
    return model, args


def in_channels_last(name: str, small: bool) -> Made:
    model, args = models.create(name, small=small)
    layout: Any = {"memory_format": torch.channels_last}
    return model.to(**layout), tuple([a.to(**layout) if a.ndim == 4 else a for a in args])


def with_gradients_of_weights(name: str, small: bool) -> Made:
    """As models are made: every parameter requires gradients, and the caller says no_grad."""
    model, args = models.create(name, small=small)
    return model.requires_grad_(True), args


def copied(name: str, small: bool) -> Made:
    model, args = models.create(name, small=small)
    return copy.deepcopy(model), args


VARIANTS: dict[str, Callable[[str, bool], Made]] = {
    "inference_mode": under_inference_mode,
    "moved and cast": moved_and_cast,
    "shared weights": with_shared_weights,
    "channels last": in_channels_last,
    "requires_grad": with_gradients_of_weights,
    "copied": copied,
}


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def seconds_of(call: Callable[[], Any], least: float = 0.2) -> float:
    found: list[float] = []
    while sum(found) < least or len(found) < 5:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.quantiles(found, n=4)[0]


def prepare(made: Made, way: str) -> Callable[[], Any]:
    model, args = made
    run = (
        torch.compile(model, backend="metaschedule")
        if way == "torch.compile"
        else ms.torch.optimize(model, args)
    )
    run(*args)
    return lambda: run(*args)


def compare(name: str, rounds: int, small: bool) -> None:
    for way in ("torch.compile", "optimize"):
        calls = {"plain": prepare(models.create(name, small=small), way)}
        told: dict[str, list[str]] = {}
        for variant, make in VARIANTS.items():
            torch._dynamo.reset() if way == "optimize" else None
            kept = Kept()
            log.addHandler(kept)
            calls[variant] = prepare(make(name, small), way)
            log.removeHandler(kept)
            told[variant] = kept.texts
        plain, _ = models.create(name, small=small), None
        with torch.inference_mode():
            calls["called in inference_mode"] = prepare(plain, way)
        times: dict[str, list[float]] = {variant: [] for variant in calls}
        for _ in range(rounds):
            for variant, call in calls.items():
                with torch.inference_mode(variant == "called in inference_mode"):
                    times[variant].append(seconds_of(call))
        least = {variant: min(found) for variant, found in times.items()}
        for variant, found in least.items():
            ratio = found / least["plain"]
            figures = f"{1e3 * found:8.3f} ms {ratio:5.2f}"
            print(f"{name:14} {way:14} {variant:26} {figures}", *told.get(variant, ()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--small", action="store_true", help="tiny models, to try the script")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 64
    with torch.no_grad():
        for name in options.models:
            compare(name, options.rounds, options.small)


if __name__ == "__main__":
    main()
