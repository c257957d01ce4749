"""Weights are cold when candidates are timed, if they are many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import metaschedule as ms
from metaschedule.build import declare_constants
from metaschedule.measure import Measurer
from metaschedule.measure.cold import Cooler, cold_inputs
from metaschedule.target import resolve


def test_large_weights_are_cold() -> None:
    target = resolve("x86-64-v3,l2=65536")
    dense = ms.workloads.create("GMM", b=1, n=4, m=128, k=128)
    assert cold_inputs(dense, target) == []
    assert cold_inputs(declare_constants(dense, ["Y"]), target) == [1]
    small = declare_constants(ms.workloads.create("GMM", b=1, n=4, m=64, k=64), ["Y"])
    assert cold_inputs(small, target) == []


def test_nothing_is_changed_by_cooling() -> None:
    data = np.arange(1000, dtype=np.float32).reshape(10, 100)
    Cooler(1 << 20)([data, np.zeros((), np.int8), np.zeros((0, 3))])
    assert np.array_equal(data.reshape(-1), np.arange(1000))


def test_a_program_with_cold_weights_is_measured() -> None:
    program = declare_constants(ms.workloads.create("GMM", b=1, n=8, m=512, k=256), ["Y"])
    target = replace(resolve(), l2=1 << 17)
    assert cold_inputs(program, target) == [1]
    with Measurer(program, target) as measurer:
        (outcome,) = measurer.measure([program])
    assert outcome.ok
    assert outcome.latency
