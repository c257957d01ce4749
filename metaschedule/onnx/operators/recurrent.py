"""LSTM, GRU and RNN, step by step; the products of all steps' inputs are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Unsupported
from ..registry import Op, Tensor, operator

Step = Callable[..., tuple[Tensor, ...]]

ACTIVATIONS: dict[str, Callable[[Tensor, float | None, float | None], Tensor]] = {
    "Relu": lambda x, a, b: torch.relu(x),
    "Tanh": lambda x, a, b: torch.tanh(x),
    "Sigmoid": lambda x, a, b: torch.sigmoid(x),
    "Affine": lambda x, a, b: (1.0 if a is None else a) * x + (0.0 if b is None else b),
    "LeakyRelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "ThresholdedRelu": lambda x, a, b: torch.where(x > (1.0 if a is None else a), x, 0.0),
    "ScaledTanh": lambda x, a, b: (1.0 if a is None else a) * torch.tanh((1.0 if b is None else b) * x),
    "HardSigmoid": lambda x, a, b: torch.clamp(
        (0.2 if a is None else a) * x + (0.5 if b is None else b), 0.0, 1.0
    ),
    "Elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
    "Softsign": lambda x, a, b: F.softsign(x),
    "Softplus": lambda x, a, b: torch.log1p(torch.exp(-torch.abs(x))) + torch.relu(x),
}
TAKES_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
TAKES_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


def activations_of(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Any]:
    alpha, beta = iter(alphas), iter(betas)
    found = []
    for name in names:
        known = {key.lower(): key for key in ACTIVATIONS}
        if name.lower() not in known:
            raise Unsupported(f"the activation {name!r} of a recurrent layer")
        key = known[name.lower()]
        a = next(alpha, None) if key in TAKES_ALPHA else None
        b = next(beta, None) if key in TAKES_BETA else None
        found.append(lambda x, key=key, a=a, b=b: ACTIVATIONS[key](x, a, b))
    return found


def run_layer(
    x: Tensor,
    lengths: Tensor | None,
    states: Sequence[Tensor | None],
    hidden: int,
    direction: str,
    layout: int,
    step: Callable[[int], Step],
    inputs: Callable[[int, Tensor], Tensor],
) -> tuple[Tensor, ...]:
    """All directions of a layer: every hidden state, then the last of each state. Sequences that are shorter
    keep their last states, and give 0 behind their end."""
    if layout:
        x = x.transpose(0, 1)
        states = [None if s is None else s.transpose(0, 1) for s in states]
    steps, batch = x.shape[:2]
    whole, last = [], []
    for d in range(2 if direction == "bidirectional" else 1):
        backwards = direction == "reverse" or d == 1
        now = [torch.zeros(batch, hidden, dtype=x.dtype) if s is None else s[d] for s in states]
        projected, advance = inputs(d, x), step(d)
        given: list[Any] = [None] * steps
        for t in range(steps - 1, -1, -1) if backwards else range(steps):
            new = advance(projected[t], *now)
            given[t] = new[0]
            if lengths is not None:
                inside = (lengths > t).unsqueeze(-1)
                new = tuple([torch.where(inside, n, o) for n, o in zip(new, now)])
                given[t] = torch.where(inside, given[t], 0.0)
            now = list(new)
        whole.append(torch.stack(given))
        last.append(now)
    outputs = torch.stack(whole, 1)
    ends = [torch.stack([state[n] for state in last]) for n in range(len(states))]
    if layout:
        return outputs.permute(2, 0, 1, 3), *(end.transpose(0, 1) for end in ends)
    return outputs, *ends


def bound(clip: float | None) -> Callable[[Tensor], Tensor]:
    return (lambda x: x) if clip is None else (lambda x: torch.clamp(x, -clip, clip))


def biases(bias: Tensor | None, d: int, size: int) -> tuple[Any, Any]:
    return (0.0, 0.0) if bias is None else (bias[d, :size], bias[d, size:])


@operator("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
    first: Tensor | None = None, *, hidden_size: int | None = None, direction: str = "forward",
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    hidden = r.shape[-1]
    functions = activations_of(activations or ["Tanh"] * w.shape[0], activation_alpha, activation_beta)
    clipped = bound(clip)

    def step(d: int) -> Step:
        recurrent = biases(bias, d, hidden)[1]
        return lambda part, h: (functions[d](clipped(part + h @ r[d].T + recurrent)),)

    project = lambda d, x: x @ w[d].T + biases(bias, d, hidden)[0]  # noqa: E731
    return run_layer(x, lengths, [first], hidden, direction, layout, step, project)


@operator("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
    first: Tensor | None = None, *, hidden_size: int | None = None, direction: str = "forward",
    activations: Sequence[str] | None = None, activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (), clip: float | None = None, layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gates in the order update, reset, hidden."""
    n = r.shape[-1]
    functions = activations_of(
        activations or ["Sigmoid", "Tanh"] * w.shape[0], activation_alpha, activation_beta
    )
    clipped = bound(clip)

    def step(d: int) -> Step:
        gate, new = functions[2 * d], functions[2 * d + 1]
        _, recurrent = biases(bias, d, 3 * n)
        gates, inner = (0.0, 0.0) if bias is None else (recurrent[: 2 * n], recurrent[2 * n :])

        def advance(part: Tensor, h: Tensor) -> tuple[Tensor]:
            both = gate(clipped(part[:, : 2 * n] + h @ r[d, : 2 * n].T + gates))
            update, reset = both[:, :n], both[:, n:]
            if linear_before_reset:
                term = reset * (h @ r[d, 2 * n :].T + inner)
            else:
                term = (reset * h) @ r[d, 2 * n :].T + inner
            found = new(clipped(part[:, 2 * n :] + term))
            return ((1 - update) * found + update * h,)

        return advance

    project = lambda d, x: x @ w[d].T + biases(bias, d, 3 * n)[0]  # noqa: E731
    return run_layer(x, lengths, [first], n, direction, layout, step, project)


@operator("LSTM")
def lstm(
    op: Op, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
    first: Tensor | None = None, cell: Tensor | None = None, peepholes: Tensor | None = None, *,
    hidden_size: int | None = None, direction: str = "forward", activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float | None = None, input_forget: int = 0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gates in the order input, output, forget, cell."""
    n = r.shape[-1]
    functions = activations_of(
        activations or ["Sigmoid", "Tanh", "Tanh"] * w.shape[0], activation_alpha, activation_beta
    )
    clipped = bound(clip)

    def step(d: int) -> Step:
        gate, new, out = functions[3 * d : 3 * d + 3]
        recurrent = biases(bias, d, 4 * n)[1]
        peeps = [0.0] * 3 if peepholes is None else [peepholes[d, k * n : (k + 1) * n] for k in range(3)]

        def advance(part: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            whole = part + h @ r[d].T + recurrent
            i, o, f, g = (whole[:, k * n : (k + 1) * n] for k in range(4))
            i = gate(clipped(i + peeps[0] * c if peepholes is not None else i))
            f = 1 - i if input_forget else gate(clipped(f + peeps[2] * c if peepholes is not None else f))
            c = f * c + i * new(clipped(g))
            o = gate(clipped(o + peeps[1] * c if peepholes is not None else o))
            return o * out(c), c

        return advance

    project = lambda d, x: x @ w[d].T + biases(bias, d, 4 * n)[0]  # noqa: E731
    return run_layer(x, lengths, [first, cell], n, direction, layout, step, project)
