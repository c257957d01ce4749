"""Every lowering against torch: interpreted on all samples, compiled on the first of each overload."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from metaschedule.torch.graph import Target
from metaschedule.torch.lowering import LOWERINGS
from tests.torch import (
    samples_elementwise,
    samples_heavy,
    samples_images,
    samples_movement,
    samples_reductions,
    samples_scatter,
)
from tests.torch.agreement import Sample, check, compiled, interpreted

SAMPLES: dict[Target, list[Sample]] = {}
for module in (
    samples_elementwise,
    samples_movement,
    samples_reductions,
    samples_images,
    samples_heavy,
    samples_scatter,
):
    for sample in module.samples():
        SAMPLES.setdefault(sample.target, []).append(sample)

each_operator = pytest.mark.parametrize("target", SAMPLES, ids=str)


@each_operator
def test_interpreted_program_agrees_with_torch(target: Target) -> None:
    for sample in SAMPLES[target]:
        check(sample, interpreted)


@each_operator
def test_compiled_program_agrees_with_torch(target: Target) -> None:
    check(SAMPLES[target][0], compiled)


def test_every_lowering_has_samples() -> None:
    own = {"narrow_matmul"}  # made by a pass, and compared there: test_narrow_weights.py
    assert LOWERINGS.keys() - own == SAMPLES.keys()


def test_enough_of_aten_is_lowered() -> None:
    assert sum(not isinstance(target, str) for target in LOWERINGS) >= 250


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_signs_of_zeros_that_division_leaves(dtype: torch.dtype) -> None:
    """torch's remainder of 0 has the dividend's sign, NumPy's and `%`'s the divisor's."""

    def rests(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        by_numbers = [f(x, s) for f in (torch.remainder, torch.fmod, torch.floor_divide) for s in (2.0, -0.5)]
        return [torch.remainder(x, y), torch.fmod(x, y), torch.floor_divide(x, y), *by_numbers]

    values = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -4.0, torch.inf, -torch.inf], dtype=dtype)
    x, y = torch.cartesian_prod(values, values).unbind(1)
    compiled_rests = torch.compile(rests, backend="metaschedule", options={"strict": True})
    for got, want in zip(compiled_rests(x, y), rests(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got.signbit()[got == 0], want.signbit()[got == 0])
