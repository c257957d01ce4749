"""Calls of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.torch.agreement import Sample, call, ints, t

aten = torch.ops.aten
f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64


def products() -> Iterator[Sample]:
    yield call(aten.mm.default, t(3, 5), t(5, 7))
    yield call(aten.mm.default, t(2, 0), t(0, 3))
    yield call(aten.mm.default, ints(3, 2), ints(2, 1))


def samples() -> Iterator[Sample]:
    yield from products()
