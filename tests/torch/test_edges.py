"""Functions of one and of two elements at the edges of their dtypes: what eager gives, with the sign of zero.

Generated from the registry: every element-wise lowering that can be called with one or two tensors and
nothing else, for every float dtype, at zeros, subnormals, the largest numbers, infinities and NaN.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch._ops import OpOverload

import metaschedule as ms
from metaschedule import te
from metaschedule.torch.graph import Target, spec_of
from metaschedule.torch.lowering import LOWERINGS, Kind, NotLowered, lower
from tests.torch.agreement import TOLERANCE, to_numpy, to_torch

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INF = float("inf")

UNDEFINED: set[Target] = {aten.empty_like.default}


def overflows(x: torch.Tensor) -> torch.Tensor:
    """exp(90) is beyond float32, what is computed with it is not: eager's is infinite, ours is not."""
    return x.abs() == 90


def is_sign_of_nan(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    """Which a program cannot see."""
    return (x if y is None else y).isnan()


def both_zero(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """0 and -0 are equal: which of them is the extreme differs between eager's vectors and scalars."""
    return (x == 0) & (y == 0)


def quotient_is_lost(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of a remainder, which eager computes by it: beyond the dtype, or with nothing behind the point."""
    return ((x / y).abs() * torch.finfo(x.dtype).eps >= 1) & x.isfinite() & (y != 0)


def of_one_dnn(x: torch.Tensor) -> torch.Tensor:
    """Its gelu of infinity is NaN, of the largest number infinity, and of -3 it has 4 digits."""
    return (x == -3) | (x >= torch.finfo(x.dtype).max)


def is_far(x: torch.Tensor) -> torch.Tensor:
    """For waves: the angle is not known any more where eager computes it, in the dtype at hand. Its 1 / x of
    subnormals is infinite."""
    return (x.abs() >= 1e4) | (x.abs() < torch.finfo(x.dtype).smallest_normal) & (x != 0)


# Where eager gives something else, and why that is left.
LEFT_OUT: dict[Target, Callable[..., torch.Tensor]] = {
    aten.gelu.default: of_one_dnn,
    aten.i0.default: overflows,
    aten.special_i1.default: overflows,
    aten.special_modified_bessel_i0.default: overflows,
    aten.special_modified_bessel_i1.default: overflows,
    aten.special_bessel_j0.default: is_far,
    aten.special_bessel_j1.default: is_far,
    aten.special_bessel_y0.default: is_far,
    aten.special_bessel_y1.default: is_far,
    aten.fmax.default: both_zero,
    aten.fmin.default: both_zero,
    aten.copysign.Tensor: is_sign_of_nan,
    aten.signbit.default: is_sign_of_nan,
    aten.fmod.Tensor: quotient_is_lost,
    aten.remainder.Tensor: quotient_is_lost,
}


def tensors_taken(target: Target) -> int:
    """How many tensors a call of nothing else takes; 0 if there is no such call."""
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return 0
    arguments = target._schema.arguments
    count = sum(str(a.type) == "Tensor" for a in arguments)
    return count if all(a.has_default_value() for a in arguments[count:]) else 0


EDGES = [
    target
    for target, lowering in LOWERINGS.items()
    if lowering.kind == Kind.ELEMENTWISE and tensors_taken(target) in (1, 2) and target not in UNDEFINED
    if "polynomial" not in str(target)  # eager counts up to their degree
]


def edges(dtype: torch.dtype) -> torch.Tensor:
    limits = torch.finfo(dtype)
    least = limits.smallest_normal
    sizes = [0.0, least / 4, least, 2 * least, 1e-40, limits.eps, 0.3, 0.5, 1, 1.5, 2, 3, 7.25, 90, 1e4]
    sizes += [limits.max, INF]
    return torch.tensor([float("nan"), *sizes, *[-s for s in sizes]], dtype=torch.float64).to(dtype)


def arguments_of(target: Target, dtype: torch.dtype) -> list[torch.Tensor]:
    values = edges(dtype)
    given = (values,) if tensors_taken(target) == 1 else torch.cartesian_prod(values, values).unbind(1)
    kept = ~LEFT_OUT[target](*given) if target in LEFT_OUT else torch.ones_like(given[0], dtype=torch.bool)
    return [x[kept].contiguous() for x in given]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("target", EDGES, ids=str)
def test_edges(target: OpOverload, dtype: torch.dtype) -> None:
    given = arguments_of(target, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = target(*given)
        except (RuntimeError, NotImplementedError) as why:
            pytest.skip(f"eager refuses: {why}")
    places = [te.placeholder(*spec_of(x), name=f"x{n}") for n, x in enumerate(given)]
    try:
        (result,) = lower(target, places, {}, [spec_of(want)])
    except NotLowered as why:
        pytest.skip(str(why))
    assert result is not None
    got = to_torch(np.asarray(ms.build(ms.Schedule(te.program(places, [result])))(*map(to_numpy, given))))
    rtol, _ = TOLERANCE.get(want.dtype, (0, 0))
    atol = 8 * torch.finfo(dtype).smallest_normal  # what is below may have been flushed to 0
    differing = ~torch.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if want.is_floating_point():
        differing |= (want == 0) & (got == 0) & (got.signbit() != want.signbit())
    at = differing.nonzero().flatten().tolist()
    shown = [f"{[x[n].item() for x in given]}: {got[n].item()}, eager {want[n].item()}" for n in at[:20]]
    assert not at, "\n".join([f"{target} of {dtype}", *shown])
