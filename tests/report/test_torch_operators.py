"""The operators written in torch compute what the workloads compute."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from metaschedule import workloads
from metaschedule.interpreter import interpret
from tests.workloads.references import REFERENCES, stand_in

pytest.importorskip("torch", reason="torch is optional")
operators: Any = importlib.import_module("metaschedule.report.contestants.torch_operators")

ALL = [(name, n) for name in workloads.names() for n in range(len(workloads.configurations(name)))]
CHEAP = ("GMM", "C1D", "DEP", "T2D", "TBG", "NRM", "SFM")


def random_inputs(name: str, config: dict[str, Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [b.shape for b in workloads.create(name, **config).inputs]
    return [rng.standard_normal(shape, dtype="float32") for shape in shapes]


def check(name: str, config: dict[str, Any], inputs: list[np.ndarray], want: Any) -> None:
    """In every layout offered."""
    theirs = operators.counterpart(name, **config)
    for layout in theirs.layouts:
        got = theirs.output_to(theirs.call(*theirs.inputs_from(inputs, layout)))
        assert got.flags.c_contiguous
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max(), err_msg=layout)


@pytest.mark.parametrize(("name", "n"), ALL)
def test_agrees_with_the_program(name: str, n: int) -> None:
    config = stand_in(name, workloads.configurations(name)[n])
    inputs = random_inputs(name, config)
    check(name, config, inputs, interpret(workloads.create(name, **config), *inputs))


@pytest.mark.parametrize("name", CHEAP)
def test_agrees_at_configuration_0(name: str) -> None:
    config = workloads.configurations(name)[0]
    inputs = random_inputs(name, config)
    check(name, config, inputs, REFERENCES[name](config, *inputs))


def test_channels_last_is_the_format_of_torch() -> None:
    theirs = operators.counterpart("C2D", **workloads.configurations("C2D")[2])
    x, w = theirs.inputs_from(random_inputs("C2D", workloads.configurations("C2D")[2]), "channels last")
    last = operators.torch.channels_last
    assert x.is_contiguous(memory_format=last)
    assert w.is_contiguous(memory_format=last)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="no counterpart of 'C4D'"):
        operators.counterpart("C4D")
    theirs = operators.counterpart("SFM", shape=(3,))
    with pytest.raises(ValueError, match="layout must be one of contiguous, got 'channels last'"):
        theirs.inputs_from([], "channels last")
