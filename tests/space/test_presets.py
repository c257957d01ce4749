"""Spaces of other systems, and unions."""

from __future__ import annotations

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.schedule import Schedule

SMALL = {"GMM": {"b": 1, "n": 12, "m": 20, "k": 8}, "SFM": {"shape": (6, 10)}}


@pytest.mark.parametrize("name", ["loops", "autotvm", "ansor", "default"])
@pytest.mark.parametrize("workload", SMALL)
def test_candidates_compute_what_was_written(name: str, workload: str) -> None:
    program = ms.workloads.create(workload, **SMALL[workload])
    space = ms.space.preset(name)
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, b.shape).astype(b.dtype) for b in program.inputs]
    want = np.asarray(ms.interpret(program, *args))
    for seed in range(3):
        sch = space.sample(program, seed)
        np.testing.assert_allclose(ms.build(sch)(*args), want, rtol=1e-5)


def test_richer_presets_have_more_structures() -> None:
    program = ms.workloads.create("CBR", n=1, h=8, w=8, ci=4, co=8, k=3, s=1, p=1)
    counts = [
        len(ms.space.preset(name).sketches(program)) for name in ("loops", "autotvm", "ansor", "default")
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    assert not any("tile" in str(sketch) for sketch in ms.space.preset("loops").sketches(program))


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown preset 'halide'; known are loops, autotvm, ansor, default"):
        ms.space.preset("halide")


def test_a_union_has_the_sketches_of_all() -> None:
    program = ms.workloads.create("GMM", **SMALL["GMM"])
    spaces = [ms.space.preset("loops"), ms.space.preset("ansor")]

    def plain(sch: Schedule) -> None:
        sch.parallel(sch.get_loops(sch.get_block("matmul"))[1])

    both = ms.space.union(*spaces, plain)
    assert both.name == "loops | ansor | plain"
    wanted = {t for space in spaces for t in space.sketches(program)}
    assert wanted < set(both.sketches(program))
    both.check(both.sample(program, 0))
    assert ms.space.as_space(both) is both  # what its spaces refuse is told with it
    result = ms.tune(program, trials=2, space=both)
    assert result.records


def test_a_union_of_nothing_has_no_candidate() -> None:
    def never(sch: Schedule) -> None:
        raise ms.ScheduleError("not this one")

    with pytest.raises(ms.ScheduleError, match="none of 1 spaces has a sketch"):
        ms.space.union(never).sample(ms.workloads.create("GMM", **SMALL["GMM"]))
