"""Random functions of tensors: views, writes in place, reductions, products, movement, in any order.

    python -m tests.torch.random_graphs FIRST COUNT

compiles functions with these seeds and says which differ from eager. Values are small whole numbers, brought
back by a remainder after every step, so that results are exact in whatever order they are summed.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

DTYPES = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8]
EXTENTS = [1, 1, 2, 3, 4, 5, 8, 17]
Tensors = list[torch.Tensor]
Step = Callable[[Tensors], Any]


@dataclass
class Function:
    """Steps over a growing list of tensors; the inputs are the first of them. Some are given back."""

    inputs: Tensors
    steps: list[Step] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        known = list(inputs)
        for step in self.steps:
            step(known)
        return [known[n] for n in self.returned]

    def copies(self) -> Tensors:
        """Inputs of the same strides; those that share memory here share it there."""
        stores: dict[int, torch.Tensor] = {}
        found = []
        for x in self.inputs:
            base = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())  # pyright: ignore
            copy = stores.setdefault(x.untyped_storage().data_ptr(), base.clone())
            found.append(copy.as_strided(x.shape, x.stride(), x.storage_offset()))
        return found

    def __str__(self) -> str:
        inputs = [f"t{n}: {x.dtype} {tuple(x.shape)} {x.stride()}" for n, x in enumerate(self.inputs)]
        return "\n".join([*inputs, *self.text, f"return {self.returned}"])


class Maker:
    """Draws a function by running it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        self.function = Function([self.drawn_input() for _ in range(self.rng.randint(1, 3))])
        if self.rng.random() < 0.15:  # one is a view of another
            self.function.inputs.append(self.view_of(self.rng.choice(self.function.inputs))[0])
        self.known: Tensors = self.function.copies()

    def drawn_input(self) -> torch.Tensor:
        shape = [self.rng.choice(EXTENTS) for _ in range(self.rng.randint(0, 4))]
        x = torch.randint(0, 5, shape).to(self.rng.choice(DTYPES))
        way = self.rng.random()
        if way < 0.2 and x.ndim > 1:
            a, b = self.rng.sample(range(x.ndim), 2)
            return x.transpose(a, b).contiguous().transpose(a, b)
        if way < 0.3 and x.ndim:
            return torch.randint(0, 5, (*x.shape[:-1], 2 * x.shape[-1] + 1)).to(x.dtype)[..., 1::2]
        if way < 0.35 and x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x

    def view_of(self, x: torch.Tensor) -> tuple[torch.Tensor, str, Callable[[torch.Tensor], torch.Tensor]]:
        """A view, how it is written, and the function that takes it."""
        rng = self.rng
        options: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
            ("[None]", lambda t: t[None]),
            (".reshape(-1)", lambda t: t.reshape(-1)),
        ]
        if x.ndim:
            d = rng.randrange(x.ndim)
            n = x.shape[d]
            low = rng.randrange(n)
            high, step = rng.randint(low + 1, n), rng.choice([1, 1, 2])
            options += [
                (f".select({d}, {low})", lambda t: t.select(d, low)),
                (
                    f".slice({d}, {low}, {high}, {step})",
                    lambda t: torch.ops.aten.slice(t, d, low, high, step),
                ),
                (f".unsqueeze({d})", lambda t: t.unsqueeze(d)),
                (".squeeze()", lambda t: t.squeeze()),
            ]
        if x.ndim > 1:
            a, b = rng.sample(range(x.ndim), 2)
            order = rng.sample(range(x.ndim), x.ndim)
            options += [
                (f".transpose({a}, {b})", lambda t: t.transpose(a, b)),
                (f".permute({order})", lambda t: t.permute(order)),
                (".flatten(0, 1)", lambda t: t.flatten(0, 1)),
                (f".diagonal(0, {a}, {b})", lambda t: t.diagonal(0, a, b)),
            ]
        text, make = rng.choice(options)
        return make(x), text, make

    # --- steps; each tries itself on the values known and is kept if eager takes it ---

    def keep(self, text: str, make: Callable[[Tensors], torch.Tensor], known: Tensors | None = None) -> bool:
        """A step that adds a tensor."""
        try:
            new = make(self.known)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        if not isinstance(new, torch.Tensor) or new.numel() > 4096 or new.ndim > 5:
            return False
        self.known.append(new)
        self.function.steps.append(lambda known: known.append(make(known)))
        self.function.text.append(f"t{len(self.known) - 1} = {text}")
        return True

    def write(self, text: str, do: Callable[[Tensors], Any]) -> bool:
        """A step that changes a tensor. Nothing is changed where eager refuses."""
        try:
            do(self.known)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return False
        self.function.steps.append(do)
        self.function.text.append(text)
        return True

    def step(self) -> None:
        rng = self.rng
        a, b, c = (rng.randrange(len(self.known)) for _ in range(3))
        x = self.known[a]
        d = rng.randrange(x.ndim) if x.ndim else 0
        number = rng.randint(-3, 3)
        kind = rng.random()
        if kind < 0.25:
            view, text, make = self.view_of(x)
            self.keep(f"t{a}{text}", lambda k: make(k[a]))
        elif kind < 0.40:
            writes: list[tuple[str, Callable[[Tensors], Any]]] = [
                (f"t{a}.add_({number})", lambda k: k[a].add_(number).remainder_(5)),
                (f"t{a}.copy_(t{b})", lambda k: k[a].copy_(k[b])),
                (f"t{a}.add_(t{b})", lambda k: k[a].add_(k[b]).remainder_(5)),
                (f"t{a}.fill_({abs(number)})", lambda k: k[a].fill_(abs(number))),
                (f"t{a}.zero_()", lambda k: k[a].zero_()),
                (f"t{a}[t{a} > 2] = 1", lambda k: k[a].masked_fill_(k[a] > 2, 1)),
                (f"t{a}.relu_()", lambda k: k[a].relu_()),
            ]
            self.write(*rng.choice(writes))
        else:
            makes: list[tuple[str, Callable[[Tensors], torch.Tensor]]] = [
                (f"(t{a} + t{b}) % 5", lambda k: (k[a] + k[b]).remainder(5)),
                (f"(t{a} * t{b}) % 5", lambda k: (k[a] * k[b]).remainder(5)),
                (f"(t{a} - {number}) % 5", lambda k: (k[a] - number).remainder(5)),
                (f"maximum(t{a}, t{b})", lambda k: torch.maximum(k[a], k[b])),
                (f"where(t{a} > 2, t{b}, t{c})", lambda k: torch.where(k[a] > 2, k[b], k[c])),
                (f"t{a}.sum({d}) % 5", lambda k: k[a].sum(d).remainder(5)),
                (f"t{a}.sum() % 5", lambda k: k[a].sum().remainder(5)),
                (f"t{a}.amax({d}, True)", lambda k: k[a].amax(d, True)),
                (f"t{a}.argmax({d})", lambda k: k[a].argmax(d)),
                (f"t{a}.cumsum({d}) % 5", lambda k: k[a].cumsum(d).remainder(5)),
                (f"t{a} @ t{b} % 5", lambda k: (k[a] @ k[b]).remainder(5)),
                (f"t{a} @ t{a}.mT % 5", lambda k: (k[a] @ k[a].mT).remainder(5)),
                (f"cat([t{a}, t{b}], {d})", lambda k: torch.cat([k[a], k[b]], d)),
                (f"cat([t{a}, t{a}], {d})", lambda k: torch.cat([k[a], k[a]], d)),
                (f"stack([t{a}, t{b}])", lambda k: torch.stack([k[a], k[b]])),
                (f"t{a}.flip({d})", lambda k: k[a].flip(d)),
                (f"t{a}.roll({number}, {d})", lambda k: k[a].roll(number, d)),
                (f"pad(t{a}, (1, {number}))", lambda k: F.pad(k[a], (1, number))),
                (f"t{a}.clone()", lambda k: k[a].clone()),
                (f"t{a}.contiguous()", lambda k: k[a].contiguous()),
                (f"t{a}.to(t{b}.dtype)", lambda k: k[a].to(k[b].dtype)),
                (f"t{a}.index_select({d}, [0, -1])", lambda k: k[a].index_select(d, index(k[a], d))),
                (f"t{a}.expand(2, ...)", lambda k: k[a].expand(2, *k[a].shape)),
                (f"t{a}.repeat(2, ...)", lambda k: k[a].repeat(2, *[1] * k[a].ndim)),
                (f"t{a}.tril()", lambda k: k[a].tril()),
                (f"max_pool2d(t{a})", lambda k: F.max_pool2d(k[a], 2, 1, 1)),
                (f"conv2d(t{a}, ones)", lambda k: conv(k[a])),
                (f"embedding(t{a} % 3, t{b})", lambda k: F.embedding(k[a].long().remainder(1), k[b])),
                (f"gather(t{a}, {d})", lambda k: k[a].gather(d, k[a].long().remainder(k[a].shape[d]))),
                (f"scatter_add({d})", lambda k: scatter(k[a], d)),
                (f"t{a}.sort({d})", lambda k: torch.sort(k[a], dim=d, stable=True)[0]),
                (f"new_zeros.add_(t{a})", lambda k: k[a].new_zeros(k[a].shape).add_(k[a])),
                (f"select_scatter(t{a}, {d})", lambda k: k[a].select_scatter(k[a].select(d, -1), d, 0)),
                (f"t{a}.unfold({d}, 2, 1)", lambda k: k[a].unfold(d, 2, 1).clone()),
            ]
            self.keep(*rng.choice(makes))

    def make(self) -> Function:
        for _ in range(self.rng.randint(2, 14)):
            self.step()
        count = self.rng.randint(1, min(4, len(self.known)))
        self.function.returned = self.rng.choices(range(len(self.known)), k=count)
        return self.function


def index(x: torch.Tensor, d: int) -> torch.Tensor:
    return torch.tensor([0, x.shape[d] - 1])


def conv(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, x.new_ones(2, x.shape[1], 2, 2), padding=1).remainder(5)


def scatter(x: torch.Tensor, d: int) -> torch.Tensor:
    return torch.zeros_like(x).scatter_add(d, x.long().remainder(x.shape[d]), x).remainder(5)


def why_different(function: Function, run: Callable[..., Any]) -> str:
    """How results, changed inputs, or what shares memory differ; empty if they do not."""
    wanted_inputs, found_inputs = function.copies(), function.copies()
    wanted = function(*wanted_inputs)
    found = run(*found_inputs)
    for what, some, others in (("result", found, wanted), ("input", found_inputs, wanted_inputs)):
        for n, (got, want) in enumerate(zip(some, others, strict=True)):
            if got.dtype != want.dtype or got.shape != want.shape:
                return f"{what} {n} is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
            if not torch.equal(got, want):
                return f"{what} {n} is {got}, not {want}"
    places = [
        [t.untyped_storage().data_ptr() for t in (*r, *i)]
        for r, i in ((found, found_inputs), (wanted, wanted_inputs))
    ]
    count = len(wanted)
    for n in range(count):
        for m in range(count, len(places[0])):  # results that are the caller's memory
            got, want = (p[n] == p[m] for p in places)
            if got != want and wanted[n].numel():
                return f"result {n} {'shares' if got else 'does not share'} the memory of input {m - count}"
    return ""


def compiled(function: Function) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend="metaschedule", options={"strict": True}, dynamic=False)


def is_torchs_own(function: Function) -> bool:
    """Whether AOTAutograd, which makes the graph functional, differs from eager as well: writes to expanded
    tensors, and views of views of an input that is written to."""
    torch._dynamo.reset()
    try:
        return bool(why_different(function, torch.compile(function, backend="aot_eager", dynamic=False)))
    except Exception:
        return True


def finding(seed: int) -> str:
    """What is wrong with the function of a seed, and the function; empty if nothing is."""
    function = Maker(seed).make()
    with torch.no_grad():
        try:
            why = why_different(function, compiled(function))
        except Exception as error:
            why = "".join(traceback.format_exception(error)[-3:])
        return f"{function}\n{why}" if why and not is_torchs_own(function) else ""


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    torch.set_num_threads(1)
    bad = 0
    for seed in range(first, first + count):
        if why := finding(seed):
            bad += 1
            print(f"--- seed {seed}\n{why[:1500]}", flush=True)
        if (seed - first) % 50 == 49:
            print(f"{seed - first + 1} functions, {bad} differ", flush=True)


if __name__ == "__main__":
    main()
