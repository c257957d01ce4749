"""Every lowering against torch: interpreted on all samples, compiled on the first of each overload."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

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
    assert LOWERINGS.keys() == SAMPLES.keys()


def test_enough_of_aten_is_lowered() -> None:
    assert sum(not isinstance(target, str) for target in LOWERINGS) >= 250
