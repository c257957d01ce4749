"""What a call of a model takes besides its kernels.

    python benchmarks/between.py [MODEL...] [--calls N] [--threads N]

A clock after every kernel says what kernels take, in their place; the rest of a call is between them. Rows
are `ms.torch.optimize`, `torch.compile` with our backend, and `torch.compile` with a backend that does
nothing but run the same kernels: what that takes besides them is Dynamo's. Caches are as kernels leave them.
"apart" is optimize with a fork and a join of OpenMP's for each kernel: what sharing one region gives.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

import metaschedule as ms
from metaschedule.report import models
from metaschedule.torch.backend import EVERY, Specialised
from metaschedule.torch.clocked import Clocked
from metaschedule.torch.runner import KernelSequence

MODELS = ("mobilenet_v3", "shufflenet", "gru_steps", "keywords", "vit", "recommender")
GUARDS: dict[str, Any] = {
    "torch.compile": None,
    "no guards on torch.nn": torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe,
    "no guards on modules": torch.compiler.skip_guard_on_all_nn_modules_unsafe,
    "no guards but inputs": torch.compiler.keep_tensor_guards_unsafe,
}
Times = tuple[float, float]  # of a call: in kernels, and besides


def measure(call: Callable[[], Any], seconds: Callable[[], float], calls: int) -> Times:
    """Seconds in kernels and besides; lower quartiles over calls."""
    found: list[Times] = []
    for _ in range(calls + 5):
        start = time.perf_counter()
        call()
        whole = time.perf_counter() - start
        found.append((seconds(), whole - seconds()))
    inside, beside = zip(*found[5:])
    return statistics.quantiles(inside, n=4)[0], statistics.quantiles(beside, n=4)[0]


def do_nothing_but(clocked: Clocked, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """A backend of `torch.compile` whose graphs run these kernels and return the same every time."""
    result = clocked(inputs)
    (sequence,) = [part for part in clocked._parts if isinstance(part, KernelSequence)]
    plan, threads = clocked.plan, torch.get_num_threads()
    tensors = [clocked._memory(), *inputs]
    tensors += [torch.empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in plan.returned]
    bases = [t.data_ptr() for t in tensors]

    def backend(module: Any, inputs: Any) -> Any:
        def run(*_: Any) -> Any:
            sequence(threads, *bases)
            return result

        run.kept = tensors  # type: ignore[attr-defined]
        return run

    return backend


def clock_compiled(call: Callable[[], Any]) -> list[Clocked]:
    """Call for the first time; what then runs has a clock."""
    before = set(EVERY)
    call()
    found: list[Clocked] = []
    for one in set(EVERY) - before:
        if isinstance(one, Specialised):
            for known in one.known.values():
                found.append(Clocked(known.runner.plan))  # type: ignore[union-attr]
                known.runner = found[-1]
    return found


def compare(name: str, calls: int) -> None:
    model, args = models.create(name)
    optimized = ms.torch.optimize(model, args)
    assert optimized.traced is not None
    plan = optimized.traced.runner.plan
    clocked = Clocked(plan)
    optimized.traced = dataclasses.replace(optimized.traced, runner=clocked)
    rows = {"optimize": measure(lambda: optimized(*args), lambda: sum(clocked.seconds), calls)}
    for part in clocked._parts:
        if isinstance(part, KernelSequence):
            part._steps.parallel = 0
    rows["apart"] = measure(lambda: optimized(*args), lambda: sum(clocked.seconds), calls)

    for label, guards in GUARDS.items():
        torch._dynamo.reset()
        options: dict[str, Any] = {} if guards is None else {"guard_filter_fn": guards}
        run = torch.compile(model, backend="metaschedule", options=options)
        ours = clock_compiled(lambda run=run: run(*args))
        rows[label] = measure(
            lambda run=run: run(*args), lambda ours=ours: sum(sum(r.seconds) for r in ours), calls
        )
    if len(clocked._parts) == 1:
        fresh = Clocked(plan)
        torch._dynamo.reset()
        nothing = torch.compile(model, backend=do_nothing_but(fresh, args))
        rows["nothing"] = measure(lambda: nothing(*args), lambda: sum(fresh.seconds), calls)
    torch._dynamo.reset()
    for who, (inside, beside) in rows.items():
        share = beside / (inside + beside)
        print(
            f"{name:14} {who:22} kernels {1e6 * inside:8.1f} us   besides {1e6 * beside:7.1f} us {share:6.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    with torch.no_grad():
        for name in options.models:
            compare(name, options.calls)


if __name__ == "__main__":
    main()
