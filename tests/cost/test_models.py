"""The cost models: their contract, and what each is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.cost import Analytical, CostModel, Learned, Random, rank_correlation
from metaschedule.cost.table import Table
from metaschedule.cost.tile import TileCosts
from metaschedule.cost.traffic import traffic_of
from metaschedule.target import resolve

from .contract import CostModelContract, matmul

TARGET = resolve("x86-64-v3,cores=2")


class TestAnalytical(CostModelContract):
    def make(self) -> CostModel:
        return Analytical(TARGET)


class TestLearned(CostModelContract):
    def make(self) -> CostModel:
        return Learned(TARGET)


class TestRandom(CostModelContract):
    def make(self) -> CostModel:
        return Random(seed=1)


def tiled(
    rows: int, lanes: int, order: str = "kij", kinds: tuple[str, str] = ("unrolled", "vectorized")
) -> ms.Program:
    """A 96x96 product in tiles, the loop over k outside the tile or inside."""
    loops = {
        "k": "for k in range(96):",
        "i": f"for i in T.{kinds[0]}({rows}):",
        "j": f"for j in T.{kinds[1]}({lanes}):",
    }
    text = f"""
@ms.program
def product(A: T.Tensor((96, 96), "float32"), B: T.Tensor((96, 96), "float32"),
            C: T.Output((96, 96), "float32")):
    for io in T.parallel({96 // rows}):
        for jo in range({96 // lanes}):
"""
    for depth, axis in enumerate(order):
        text += "    " * (3 + depth) + loops[axis] + "\n"
    row, column = f"io * {rows} + i", f"jo * {lanes} + j"
    return ms.parse(f"{text}{'    ' * 6}C[{row}, {column}] += A[{row}, k] * B[k, {column}]\n")


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(tiled(6, 16), tiled(1, 16), id="one row leaves the multipliers waiting"),
        pytest.param(tiled(6, 16), tiled(8, 16), id="8x16 does not fit in 16 registers"),
        pytest.param(tiled(6, 16), tiled(6, 16, kinds=("unrolled", "serial")), id="vectors beat scalars"),
        pytest.param(
            tiled(6, 16), tiled(6, 16, kinds=("vectorized", "serial")), id="lanes must be contiguous"
        ),
        pytest.param(tiled(6, 16), tiled(96, 16), id="one chunk keeps one core busy"),
        pytest.param(tiled(6, 16), tiled(6, 16, order="ijk"), id="accumulate across k, not one by one"),
    ],
)
def test_analytical_prefers(better: ms.Program, worse: ms.Program) -> None:
    fast, slow = Analytical(TARGET).predict([better, worse])
    assert fast < 0.9 * slow


def windows(columns: int, lanes: int, short: bool = False) -> ms.Program:
    """A depthwise convolution along rows, in tiles; the window also goes over rows if not `short`."""
    rows = "for r in range(1):" if short else "for r in range(3):"
    return ms.parse(f"""
@ms.program
def depthwise(X: T.Tensor((18, 26, 32), "float32"), W: T.Tensor((3, 3, 32), "float32"),
              Y: T.Output((16, 24, 32), "float32")):
    L = T.alloc((16, 24, 32), "float32", scope="local")
    for h in T.parallel(16):
        for w0, c0 in T.grid({24 // columns}, {32 // lanes}):
            for w1 in T.unrolled({columns}):
                for c1 in T.vectorized({lanes}):
                    L[h, w0 * {columns} + w1, c0 * {lanes} + c1] = 0.0
            {rows}
                for s in T.unrolled(3):
                    for w1 in T.unrolled({columns}):
                        for c1 in T.vectorized({lanes}):
                            L[h, w0 * {columns} + w1, c0 * {lanes} + c1] += (
                                X[h + r, w0 * {columns} + w1 + s, c0 * {lanes} + c1]
                                * W[r, s, c0 * {lanes} + c1])
            for w1 in T.unrolled({columns}):
                for c1 in T.vectorized({lanes}):
                    Y[h, w0 * {columns} + w1, c0 * {lanes} + c1] = (
                        L[h, w0 * {columns} + w1, c0 * {lanes} + c1])
""")


def test_neighbours_share_what_they_load() -> None:
    """Six columns of a window of three load eight vectors, not eighteen, if these fit in registers."""
    table = Table([windows(6, 8), windows(6, 16)])
    shared, alone = TileCosts(table, TARGET).loads[[1, 4]]
    assert (round(shared), round(alone)) == (8 + 3, 2 * (18 + 3))


@pytest.mark.parametrize(
    ("kilobytes", "row", "fits"), [(32, 1024, False), (48, 1024, False), (48, 1040, True)]
)
def test_rows_in_one_set_of_a_cache_displace_each_other(kilobytes: int, row: int, fits: bool) -> None:
    """24 rows that are 4 KB apart, of which a set of the first cache has room for 8 or 12."""
    program = ms.parse(f"""
@ms.program
def product(A: T.Tensor((24, {row}), "float32"), B: T.Tensor(({row}, 16), "float32"),
            C: T.Output((24, 16), "float32")):
    for k in range({row}):
        for i in T.unrolled(24):
            for j in T.vectorized(16):
                C[i, j] += A[i, k] * B[k, j]
""")
    target = replace(resolve("x86-64-v4"), l1=kilobytes << 10)
    missing, _ = traffic_of(Table([program]), target)
    assert (missing[0, 0] < row * 5) == fits  # B has a line for each k, A one for 16 in each row


def test_a_chain_ends_where_its_accumulators_do() -> None:
    """Short reductions of neighbouring tiles overlap."""
    table = Table([windows(1, 8, short=True), windows(1, 8)])
    short, longer = TileCosts(table, TARGET).chain[[1, 4]]
    assert short < longer <= 3 * 4


def test_uneven_chunks_keep_a_core_waiting() -> None:
    def rows(chunks: int) -> ms.Program:
        return ms.parse(f"""
@ms.program
def exponential(X: T.Tensor((12, 4096), "float32"), Y: T.Output((12, 4096), "float32")):
    for i0 in T.parallel({chunks}):
        for i1 in range({12 // chunks}):
            for j0 in range(512):
                for j1 in T.vectorized(8):
                    Y[i0 * {12 // chunks} + i1, j0 * 8 + j1] = T.exp(X[i0 * {12 // chunks} + i1, j0 * 8 + j1])
""")

    even, uneven = Analytical(TARGET).predict([rows(2), rows(3)])
    assert uneven / even == pytest.approx(4 / 3, rel=0.05)


def test_a_larger_machine_is_faster() -> None:
    one, four = (Analytical(TARGET.with_cores(n)).predict([tiled(6, 16)])[0] for n in (1, 4))
    assert four < one / 2


def test_learned_is_its_prior_before_it_learns() -> None:
    programs = [tiled(rows, lanes) for rows in (1, 2, 4, 8) for lanes in (8, 16, 32)]
    np.testing.assert_allclose(Learned(TARGET).predict(programs), Analytical(TARGET).predict(programs))


def test_learned_learns_what_the_prior_has_wrong() -> None:
    programs = [tiled(rows, lanes) for rows in (1, 2, 3, 4, 6, 8, 12, 24) for lanes in (8, 16, 24, 32)]
    truth = 1e-3 / Analytical(TARGET).predict(programs)  # slow where the prior expects speed
    model = Learned(TARGET)
    assert model.accuracy is None
    model.update(programs[::2], truth[::2].tolist())
    assert model.accuracy == pytest.approx(-1)
    model.update(programs[1::2], truth[1::2].tolist())
    assert model.accuracy is not None
    assert model.accuracy > 0.5
    assert rank_correlation(model.predict(programs), truth) > 0.9


def test_learned_follows_the_latest_when_there_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaschedule.cost.learned.MOST_RECORDS", 32)
    programs = [tiled(rows, lanes) for rows in (1, 2, 4, 6) for lanes in (8, 16, 24, 32)]
    prior = Analytical(TARGET).predict(programs)
    model = Learned(TARGET)
    for _ in range(2):
        model.update(programs, prior.tolist())
    assert rank_correlation(model.predict(programs), prior) > 0.9
    for _ in range(4):
        model.update(programs, (1e-6 / prior).tolist())
    assert rank_correlation(model.predict(programs), 1 / prior) > 0.5


def test_random_depends_on_its_seed() -> None:
    programs = [matmul(8), matmul(16)]
    assert not np.array_equal(Random(0).predict(programs), Random(1).predict(programs))


def test_rank_correlation_of_ties() -> None:
    assert rank_correlation(np.array([1, 2, 2, 3]), np.array([10, 20, 20, 30])) == pytest.approx(1)
    assert rank_correlation(np.ones(3), np.arange(3)) == 0


def test_what_skips_zeros_still_does_the_rest() -> None:
    sch = ms.Schedule(ms.workloads.create("C2D", 0))
    sch.compute_inline(sch.get_block("pad"))
    skipping = sch.fork()
    skipping.annotate(skipping.get_block("conv"), "skip_zeros", 1)
    whole, rest = Analytical(TARGET).predict([sch, skipping])
    assert 0.3 * whole < rest <= whole
