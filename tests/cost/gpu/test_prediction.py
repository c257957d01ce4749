"""The analytical model of GPUs: what it says of schedules whose order is known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaschedule as ms
from metaschedule.cost import Analytical, CostModel, Learned, rank_correlation
from metaschedule.cost.gpu import BOUNDS, GpuEstimate, predict_gpu
from metaschedule.cost.gpu.table import GpuTable
from metaschedule.target import Gpu, resolve
from tests.codegen.gpu.schedules import bound_product, tiled_product
from tests.cost.contract import CostModelContract

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
# Milliseconds of an A100, 4096^3: MWG, NWG, KWG, MDIMC, NDIMC, MDIMA, NDIMB, VWM, VWN, STRM, STRN, SA, SB.
NAMES = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "STRM", "STRN", "SA", "SB")
PRODUCTS = {
    (64, 128, 16, 16, 8, 16, 8, 2, 4, 1, 1, 1, 1): 8.17,
    (64, 64, 16, 8, 8, 8, 8, 4, 4, 0, 1, 1, 1): 8.99,
    (64, 128, 16, 8, 16, 8, 8, 8, 8, 1, 0, 1, 1): 15.96,
    (16, 16, 16, 8, 8, 8, 8, 1, 2, 0, 0, 1, 0): 27.28,
    (128, 32, 16, 8, 16, 16, 8, 4, 1, 0, 1, 0, 1): 31.75,
    (128, 32, 16, 8, 32, 32, 16, 4, 1, 0, 1, 0, 1): 59.41,
}


class TestAnalyticalOfGpu(CostModelContract):
    def make(self) -> CostModel:
        return Analytical(resolve("cuda:sm_86"))


class TestLearnedOfGpu(CostModelContract):
    def make(self) -> CostModel:
        return Learned(resolve("opencl:w6600"))


def load_schedules() -> Any:
    """benchmarks/gpu_schedules.py, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("gpu_schedules", BENCHMARKS / "gpu_schedules.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("gpu_schedules", module)
    spec.loader.exec_module(module)
    return module


def gpu_of(name: str) -> Gpu:
    gpu = resolve(name).gpu
    assert gpu is not None
    return gpu


def copy_by(row: bool, n: int = 1024) -> ms.Schedule:
    """A copy of a matrix whose threads go along a row, or along a column."""
    outer, inner = f"(b * 256 + t) // {n}", f"(b * 256 + t) % {n}"
    text = f"""
def f(A: T.Tensor(({n}, {n})), B: T.Output(({n}, {n}))):
    for b in T.bind({n * n // 256}, "blockIdx.x"):
        for t in T.bind(256, "threadIdx.x"):
            with T.block("B"):
                v = T.spatial({n}, {outer if row else inner})
                w = T.spatial({n}, {inner if row else outer})
                B[v, w] = A[v, w]
"""
    return ms.Schedule(ms.parse(text))


def test_neighbours_that_are_read_together_take_fewer_sectors() -> None:
    estimate = GpuEstimate(GpuTable([copy_by(row=True), copy_by(row=False)]), gpu_of("cuda:a100"))
    assert estimate.warp.sectors[:, 1].tolist() == [4, 32]
    assert estimate.seconds[0] < estimate.seconds[1]


@pytest.mark.parametrize(("row", "rounds"), [(32, 32), (33, 1)])
def test_conflicts_of_banks_are_found(row: int, rounds: int) -> None:
    text = f"""
def f(A: T.Tensor((32, {row})), B: T.Output((32, {row}))):
    S = T.alloc((32, {row}), "float32", scope="shared")
    for b in T.bind(1, "blockIdx.x"):
        for t in T.bind(32, "threadIdx.x"):
            for i in range({row}):
                with T.block("S"):
                    v = T.spatial(32, t)
                    w = T.spatial({row}, i)
                    S[v, w] = A[v, w]
        for t in T.bind(32, "threadIdx.x"):
            for i in range({row}):
                with T.block("B"):
                    v = T.spatial(32, t)
                    w = T.spatial({row}, i)
                    B[v, w] = S[v, w]
"""
    estimate = predict_gpu([ms.Schedule(ms.parse(text))], gpu_of("cuda:a100"))
    assert estimate.warp.rounds[0, 0] == estimate.warp.rounds[1, 1] == rounds
    assert estimate.occupancy.shared[0] == 4 * 32 * row


def test_tiles_in_shared_memory_beat_one_result_a_thread() -> None:
    program = ms.workloads.create("GMM", b=1, n=1024, m=1024, k=1024)
    plain, tiled = bound_product(program, 256), tiled_product(program, tile=64, side=8, depth=16, lanes=4)
    for name in ("cuda:sm_70", "cuda:sm_86", "cuda:sm_90", "opencl:mi250x", "opencl:w7800"):
        slow, fast = Analytical(resolve(name)).predict([plain, tiled])
        assert fast < slow, name


def test_occupancy_and_what_bounds() -> None:
    program = ms.workloads.create("GMM", b=1, n=1024, m=1024, k=1024)
    estimate = predict_gpu(
        [tiled_product(program, tile=128, side=16, depth=16, lanes=4)], gpu_of("cuda:sm_80")
    )
    assert estimate.occupancy.shared[0] == 2 * 128 * 16 * 4
    assert 80 <= estimate.occupancy.registers[0] <= 160  # 64 results, 16 operands and some
    assert estimate.occupancy.resident[0] == 2
    assert set(estimate.describe(0)) == set(BOUNDS)


def test_more_multiprocessors_and_a_higher_clock_are_faster() -> None:
    program = ms.workloads.create("GMM", b=1, n=1024, m=1024, k=1024)
    sch = tiled_product(program, tile=64, side=8, depth=16)
    names = ("cuda:sm_86", "cuda:sm_86,multiprocessors=164", "cuda:sm_86,clock=3.4e9")
    usual, more, faster = (float(Analytical(resolve(name)).predict([sch])[0]) for name in names)
    assert max(more, faster) < usual


def test_measured_products_are_ranked() -> None:
    """A handful of the data that benchmarks/gpu_prediction.py reads whole."""
    schedules = load_schedules()
    program = schedules.product()
    found = [schedules.schedule_product(program, dict(zip(NAMES, c, strict=True))) for c in PRODUCTS]
    measured = np.array(list(PRODUCTS.values()))
    predicted = Analytical(resolve("cuda:a100")).predict(found) * 1e3
    assert rank_correlation(predicted, measured) > 0.8
    assert np.abs(np.log2(predicted / measured)).max() < 1


def test_convolutions_of_the_data_are_schedules_that_compute_them() -> None:
    schedules = load_schedules()
    base = {"block_size_x": 4, "block_size_y": 2, "tile_size_x": 1, "tile_size_y": 2, "use_padding": 1}
    image = np.random.default_rng(0).standard_normal((20, 20)).astype("float32")
    weights = np.linspace(-1, 1, 225, dtype="float32").reshape(15, 15)
    windows = np.lib.stride_tricks.sliding_window_view(image, (15, 15))
    right = (windows * weights).sum(axis=(2, 3))
    for change in ({"use_shmem": 0}, {"use_shmem": 1}):
        sch = schedules.schedule_convolution(base | change, side=6)
        assert np.abs(ms.interpret(sch.program, image) - right).max() < 1e-3


def test_a_learned_model_learns_from_programs_for_a_gpu() -> None:
    program = ms.workloads.create("GMM", b=1, n=64, m=64, k=64)
    found = [bound_product(program, n) for n in (16, 32, 64, 128)]
    found += [tiled_product(program, tile, 8, 8) for tile in (8, 16, 32, 64)]
    target = resolve("cuda:sm_86")
    model = Learned(target)
    before = model.predict(found)
    assert np.allclose(before, Analytical(target).predict(found))
    wanted = [1e-3 * (1 + n) for n in range(len(found))]
    model.update(found, wanted)
    model.update(found, wanted)
    assert rank_correlation(model.predict(found), np.array(wanted)) > rank_correlation(
        before, np.array(wanted)
    )


def test_programs_that_do_nothing_take_a_moment() -> None:
    empty = ms.parse(
        "def f(A: T.Tensor((0,)), B: T.Output((0,))):\n    for i in range(0):\n        B[i] = A[i]\n"
    )
    assert Analytical(resolve("cuda:sm_86")).predict([empty]).tolist() == [0]
    assert Analytical(resolve("cuda:sm_86")).predict([]).tolist() == []
