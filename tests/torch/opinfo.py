"""PyTorch's own samples of its operators (OpInfo), through the backend and against eager.

A *case* is one sample of one operator in one dtype, its tensors laid out in one of four ways. `judge` runs it
both ways and says what came of it; a survey does so for many, in processes of their own, so that one that
dies counts as a crash:

    python -m tests.torch.opinfo --dtypes float32,int64 --samples 2

prints what the cases came to, the operators that run in eager most often, and what went wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from metaschedule.ir import Program
from metaschedule.measure.build import BuildJob, build_here
from metaschedule.target import resolve
from metaschedule.torch.backend import Options, build_runner, functional
from metaschedule.torch.capture import NotCaptured, capture, decompositions
from metaschedule.torch.graph import Graph
from metaschedule.torch.kernels import Compiled, load_kernels
from metaschedule.torch.pipeline import fuse_graph
from metaschedule.torch.plan import EagerStep, Plan, plan_calls
from metaschedule.torch.runner import Runner

DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")
# What reads memory by strides of its own sees what lies between the elements, which no copy has.
READS_MEMORY = ("as_strided", "as_strided_copy", "as_strided.partial_views", "as_strided_scatter")
LAYOUTS = ("as given", "transposed", "strided", "broadcast")
SEED = 42  # of random numbers: what OpInfo's own functions set
TOLERANCE = {  # relative and absolute
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-5, 1e-5),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
}
TOLERANCE |= {torch.complex64: TOLERANCE[torch.float32], torch.complex128: TOLERANCE[torch.float64]}
TIMES_WORSE = 4  # than eager's own error a result may be, where it is beyond the tolerance

# What eager gives is not to be compared: memory as it was found.
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")

# Which of equal elements they give is not said, and eager's own answer is an accident of its algorithm.
LEAVE_TIES_OPEN = ("topk",)


@dataclass(frozen=True)
class Case:
    operator: str  # its name and variant
    dtype: str
    sample: int
    layout: str

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype} #{self.sample} {self.layout}"


@dataclass(frozen=True)
class Verdict:
    """`kind`: agrees, wrong, raised, crashed, or skipped (eager refuses the sample, as we do). `eager` are
    the operators that torch computes, with the reason; `kernels` is how many steps are ours."""

    kind: str
    detail: str = ""
    eager: tuple[tuple[str, str], ...] = ()
    kernels: int = 0


def operators() -> dict[str, Any]:
    """OpInfo's descriptions by name. Those of the Python reference implementations are left out."""
    found: dict[str, Any] = {}
    for info in op_db:
        found[f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name] = info
    return found


def cases(dtypes: Sequence[str] = DTYPES, samples: int = 4, seed: int = 0) -> Iterator[Case]:
    """The first two samples of each operator, and others drawn from the next; as given, or in turn in the
    other layouts if there are more than two."""
    for name, dtype in pairs(dtypes):
        rng = random.Random(f"{name} {dtype} {seed}")
        later = rng.sample(range(2, 20), max(samples - 2, 0))
        for at, number in enumerate([*range(min(samples, 2)), *sorted(later)]):
            yield Case(name, dtype, number, layout_for(name, LAYOUTS[at % 4 if samples > 2 else 0]))


def pairs(dtypes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Operators with each of the dtypes that they have."""
    for name, info in operators().items():
        supported = info.supported_dtypes("cpu")
        yield from ((name, dtype) for dtype in dtypes if getattr(torch, dtype) in supported)


def drawn_cases(dtypes: Sequence[str], share: float, seed: int = 0) -> list[Case]:
    """For a share of all operators one of their samples each, in one of the layouts."""
    rng = random.Random(seed)
    chosen = [pair for pair in pairs(dtypes) if rng.random() < share]
    return [
        Case(name, dtype, rng.randrange(12), layout_for(name, rng.choice(LAYOUTS))) for name, dtype in chosen
    ]


def layout_for(operator: str, layout: str) -> str:
    return LAYOUTS[0] if operator in READS_MEMORY else layout


def drawn(info: Any, case: Case) -> Any:
    """The sample, counted again from the first where there are not as many. None if there is none at all."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = info.sample_inputs("cpu", getattr(torch, case.dtype), requires_grad=False)
        found = list(itertools.islice(samples, case.sample + 1))
    return found[case.sample % len(found)] if found else None


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The tensor with other strides; `broadcast` repeats its first element along the first dimension."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor
    if layout == "transposed" and tensor.ndim > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and tensor.ndim > 0:
        wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), dtype=tensor.dtype)
        view = wide[..., 1::2]
        return view.copy_(tensor)
    if layout == "broadcast" and tensor.ndim > 0 and tensor.shape[0] > 1:
        return tensor[:1].expand_as(tensor)
    return tensor


class NotTraced(Exception):
    """A call that is a graph only for Dynamo."""


class Call:
    """A sample as a function of its tensors."""

    def __init__(self, info: Any, sample: Any, layout: str) -> None:
        leaves, self.spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.function = info.op
        self.leaves = leaves
        self.places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = [laid_out(leaves[n].detach(), layout) for n in self.places]

    def __call__(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self.spec)
        return tuple(tree_leaves(self.function(*args, **kwargs)))

    def copies(self) -> list[torch.Tensor]:
        """Tensors of the same strides, for one who might write to them."""
        return [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) if dense(t) else t.clone()
            for t in self.tensors
        ]

    def precise(self) -> tuple[Any, ...]:
        """The call in float64."""
        wide = [t.double() if t.is_floating_point() else t for t in self.tensors]
        return self(*wide)


def dense(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and all(tensor.stride()) and not tensor.is_conj()


def judge(case: Case, run: Callable[[Call, list[Plan]], Any]) -> Verdict:
    info = operators()[case.operator]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sample = drawn(info, case)
        except Exception as error:  # some samples need packages that are not there
            return Verdict("skipped", f"no samples: {error}")
        if sample is None:
            return Verdict("skipped", "not as many samples")
        call = Call(info, sample, case.layout)
        if not call.tensors:
            return Verdict("skipped", "no tensors")
        try:
            torch.manual_seed(SEED)
            wanted, refused = call(*call.copies()), None
        except Exception as error:
            wanted, refused = (), error
        as_laid_out = refused
        if refused is not None and case.layout != LAYOUTS[0]:
            wanted, refused = of_contiguous(call, refused)
        plans: list[Plan] = []
        try:
            torch.manual_seed(SEED)
            try:
                found = run(call, plans)
            except NotTraced:
                torch.manual_seed(SEED)
                found = through_dynamo(call, plans)
        except Exception as error:
            if as_laid_out is not None:
                return Verdict("skipped", f"eager raises as well: {as_laid_out}")
            trace = "".join(traceback.format_exception(error)[-4:])
            return Verdict("raised", f"{type(error).__name__}: {error}\n{trace}", *told(plans))
        if refused is not None:
            return Verdict("wrong", f"eager raises: {type(refused).__name__}: {refused}", *told(plans))
        other_order = case.layout != "as given" and draws_numbers(plans)
        if case.operator in UNDEFINED or other_order:
            wanted, found = (tuple(map(torch.zeros_like, y)) for y in (wanted, found))
        if case.operator in LEAVE_TIES_OPEN and same_choice(found, wanted, call):
            found = wanted
        difference = differing(found, wanted, call)
    return Verdict("wrong" if difference else "agrees", difference, *told(plans))


def same_choice(found: Sequence[Any], wanted: Sequence[Any], call: Call) -> bool:
    """Whether values are the same, and indices are those of such values, each taken once."""
    x, (_, *args) = call.tensors[0], tree_unflatten(call.leaves, call.spec)[0]
    dim = args[1] if len(args) > 1 else -1
    (values, indices), (want, _) = found, wanted
    if not x.ndim or values.shape != want.shape or indices.shape != want.shape:
        return False
    ordered = indices.sort(dim).values
    taken_once = bool((ordered.diff(dim=dim) > 0).all())
    return taken_once and torch.equal(x.gather(dim, indices), want) and torch.equal(values, want)


def of_contiguous(call: Call, refusal: Exception) -> tuple[tuple[Any, ...], Exception | None]:
    """What eager gives where it takes the same tensors in row-major order only; we take them all."""
    try:
        torch.manual_seed(SEED)
        return call(*[t.contiguous() for t in call.tensors]), None
    except Exception:
        return (), refusal


def draws_numbers(plans: Sequence[Plan]) -> bool:
    """Whether a step draws random numbers: in which order depends on the strides of what torch is given."""
    steps = [step for plan in plans for step in plan.steps if isinstance(step, EagerStep)]
    return any(torch.Tag.nondeterministic_seeded in step.target.tags for step in steps)


def told(plans: Sequence[Plan]) -> tuple[tuple[tuple[str, str], ...], int]:
    steps = [step for plan in plans for step in plan.steps]
    eager = [(str(step.target), step.why) for step in steps if isinstance(step, EagerStep)]
    return tuple(eager), len(steps) - len(eager)


def differing(found: Sequence[Any], wanted: Sequence[Any], call: Call) -> str:
    """How the results differ; empty if they do not."""
    if len(found) != len(wanted):
        return f"{len(found)} results, of {len(wanted)}"
    precise: list[Any] | None = None
    for at, (got, want) in enumerate(zip(found, wanted)):
        if not isinstance(want, torch.Tensor):
            if type(got) is not type(want) or not (got == want or (got != got and want != want)):
                return f"result {at} is {got!r}, not {want!r}"
            continue
        if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (want.shape, want.dtype):
            return f"result {at} is {described(got)}, not {described(want)}"
        rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
        try:
            torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, check_layout=False)
        except AssertionError as error:
            if precise is None and want.is_floating_point():
                precise = list(call.precise())
            if precise is None or not no_worse(got, want, precise[at]):
                return f"result {at}: {error}"
    return ""


def no_worse(got: torch.Tensor, want: torch.Tensor, precise: Any) -> bool:
    """Whether a result is about as near as eager's to what float64 gives."""
    if not isinstance(precise, torch.Tensor) or not precise.isfinite().all():
        return False
    ours, eager = ((x.double() - precise).abs().max() for x in (got, want))
    return bool(ours <= TIMES_WORSE * eager)


def described(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def through_dynamo(call: Call, plans: list[Plan]) -> Any:
    """As users do it, with the schedules that they get."""

    def build(graph: Graph) -> Runner:
        runner = build_runner(graph, Options())
        plans.append(runner.plan)
        return runner

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        return functional(module, inputs, build)

    torch._dynamo.reset()
    return torch.compile(call, backend=backend, dynamic=False)(*call.copies())


def directly(call: Call, plans: list[Plan]) -> Any:
    """Without Dynamo, and with the loops of each program as they are written: a tenth of the time."""

    def build(graph: Graph) -> Runner:
        threads = torch.get_num_threads()
        plan = plan_calls(fuse_graph(graph), as_written, threads)
        plans.append(plan)
        return Runner(plan)

    return traced(call, build)


def captured(call: Call, plans: list[Plan]) -> Any:
    """Only planned, not compiled; the results are eager's."""

    def build(graph: Graph) -> None:
        parts = fuse_graph(graph)
        steps: list[Any] = [g for g in parts.groups if g.eager or g in parts.programs]
        eager = [EagerStep(g.sink.target, (), {}, 0, (), g.eager, "") if g.eager else g for g in steps]  # pyright: ignore
        plans.append(Plan([], [], 0, [], [], eager, [], 0, 1))  # pyright: ignore

    return traced(call, build)


def traced(call: Call, build: Callable[[Graph], Runner | None]) -> Any:
    """A call by what `build` makes of its functional graph; in eager, if that is nothing."""
    module: Any = call
    try:
        for function in (lambda f: f, functionalize):  # decompositions may write to what they have made
            module = make_fx(function(module), decomposition_table=decompositions(), tracing_mode="fake")(
                *call.copies()
            )
    except (RuntimeError, UnsupportedOperatorException) as why:  # control flow or shapes that depend on data
        raise NotTraced(str(why)) from why
    tensors = call.copies()
    try:
        runner = build(capture(module, tensors))
    except (DataDependentOutputException, DynamicOutputShapeException, NotCaptured) as why:
        raise NotTraced(str(why)) from why
    torch.manual_seed(SEED)
    return call(*tensors) if runner is None else runner(tensors)


def as_written(programs: Sequence[Program]) -> list[Compiled]:
    target = resolve("native").with_cores(torch.get_num_threads())
    return [load_kernels(build_here(BuildJob(program), target), None) for program in programs]


WAYS = {"dynamo": through_dynamo, "direct": directly, "capture": captured}


def serve(way: str) -> None:
    """The child of a survey: cases come as lines of JSON, verdicts go the same way."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is not ours
    torch.set_num_threads(1)
    for line in sys.stdin:
        verdict = judge(Case(**json.loads(line)), WAYS[way])
        print(json.dumps(asdict(verdict)), file=out, flush=True)


def survey(
    wanted: Iterable[Case], way: str, each: Callable[[Case, Verdict], None] = lambda *_: None
) -> dict[Case, Verdict]:
    """The verdicts on all cases, by a process that is started anew when it dies."""
    found: dict[Case, Verdict] = {}
    child: subprocess.Popen[str] | None = None
    for case in wanted:
        if child is None:
            command = [sys.executable, "-W", "ignore", "-m", "tests.torch.opinfo", "--serve", "--way", way]
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(asdict(case)) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if line:
            answer = json.loads(line)
            answer["eager"] = tuple(map(tuple, answer["eager"]))
            found[case] = Verdict(**answer)
        else:
            found[case] = Verdict("crashed", f"exit code {child.wait()}")
            child = None
        each(case, found[case])
    if child is not None:
        assert child.stdin is not None
        child.stdin.close()
        child.wait()
    return found


COLUMNS = ("samples", "wrong", "raised", "crashed", "wholly ours", "partly eager", "wholly eager")


def counted(verdicts: dict[Case, Verdict]) -> dict[str, Counter[str]]:
    """By dtype, what became of the samples. Those without any step (views) are wholly ours."""
    table: dict[str, Counter[str]] = {}
    for case, verdict in verdicts.items():
        row = table.setdefault(case.dtype, Counter())
        if verdict.kind == "skipped":
            continue
        row["samples"] += 1
        if verdict.kind != "agrees":
            row[verdict.kind] += 1
        share = "wholly ours" if not verdict.eager else "partly eager" if verdict.kernels else "wholly eager"
        row[share] += 1
    return table


def shown(verdicts: dict[Case, Verdict]) -> str:
    lines = [f"{'':10}" + "".join(f"{name:>14}" for name in COLUMNS)]
    for dtype, row in counted(verdicts).items():
        lines.append(f"{dtype:10}" + "".join(f"{row[name]:>14}" for name in COLUMNS))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--way", choices=list(WAYS), default="direct")
    parser.add_argument("--operators", default="")
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--inline", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--save", default="")
    options = parser.parse_args()
    if options.serve:
        serve(options.way)
        return
    names = options.operators.split(",") if options.operators else None
    rng = random.Random(0)
    chosen = [
        case
        for case in cases(options.dtypes.split(","), options.samples)
        if (names is None or case.operator in names) and rng.random() < options.share
    ]
    begin = time.time()

    def tell(case: Case, verdict: Verdict) -> None:
        if options.save:
            with open(options.save, "a") as file:
                print(json.dumps([asdict(case), asdict(verdict)]), file=file)
        if verdict.kind in ("wrong", "raised", "crashed") or options.verbose:
            print(
                f"{verdict.kind}: {case}: {verdict.detail[:600]} {verdict.eager if options.verbose else ''}",
                flush=True,
            )

    if options.inline:
        found = {}
        for case in chosen:
            found[case] = judge(case, WAYS[options.way])
            tell(case, found[case])
    else:
        found = survey(chosen, options.way, tell)
    reasons = Counter(why for verdict in found.values() for why in dict.fromkeys(verdict.eager))
    for (target, why), count in reasons.most_common(60):
        print(f"{count:5} {target}: {why}")
    print(shown(found))
    print(f"{len(found)} cases in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
