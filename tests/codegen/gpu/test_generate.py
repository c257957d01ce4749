"""Kernels for GPUs: right on an OpenCL device, accepted by NVIDIA's compiler, refused where they must be."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

import metaschedule as ms
from metaschedule import te
from metaschedule.errors import ScheduleError
from metaschedule.runtime.gpu import DeviceExecutable
from tests.codegen.gpu.schedules import bound_product, nvrtc, opencl, tiled_product


def product(n: int, m: int, k: int) -> ms.ir.Program:
    return ms.workloads.create("GMM", b=1, n=n, m=m, k=k)


def run(exe: ms.runtime.Executable, program: ms.ir.Program) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, b.shape).astype("float32") for b in program.inputs)
    return exe(x, y), x @ y


@pytest.mark.parametrize("shape", [(1, 1, 1), (37, 65, 33), (128, 7, 3)])
def test_bound_loops_run_on_opencl(shape: tuple[int, int, int]) -> None:
    opencl()
    program = product(*shape)
    result, expected = run(ms.build(bound_product(program), target="opencl"), program)
    assert np.array_equal(result, expected)


@pytest.mark.parametrize("virtual", [1, 2])
@pytest.mark.parametrize("shape", [(64, 64, 16), (77, 65, 37), (1, 33, 5)])
def test_tiles_in_shared_memory_run_on_opencl(shape: tuple[int, int, int], virtual: int) -> None:
    opencl()
    program = product(*shape)
    exe = ms.build(tiled_product(program, virtual=virtual), target="opencl")
    result, expected = run(exe, program)
    assert np.array_equal(result, expected)
    chunks = -(-shape[2] // 8)  # of one chunk nothing is overwritten
    assert exe.source("opencl").split("void GMM")[1].count("barrier(") == min(2, chunks)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_nvidia_accepts_the_same_kernels(arch: str) -> None:
    nvrtc()
    exe = ms.build(tiled_product(product(64, 96, 16)), target=f"cuda:{arch}")
    assert isinstance(exe, DeviceExecutable)
    (resources,) = exe.resources().values()
    assert resources["shared"] == 2 * 4 * 32 * 8
    assert resources["spilled"] == 0
    assert 0 < resources["registers"] <= 255
    assert f".target {arch}" in exe.source("ptx")
    assert "float2" in exe.source("cuda")


def test_without_a_device_a_call_says_what_is_missing() -> None:
    from metaschedule.target.detect_gpu import load_driver

    if load_driver() is not None:
        pytest.skip("there is a driver here")
    program = product(4, 4, 4)
    exe = ms.build(bound_product(program), target="cuda:sm_80")
    with pytest.raises(RuntimeError, match="driver"):
        run(exe, program)


def test_untuned_programs_run() -> None:
    opencl()
    x = te.placeholder((5, 37), name="x")
    k = te.reduce_axis(37, name="k")
    total = te.compute((5,), lambda i: te.sum(te.exp(x[i, k]), axis=k), name="total")
    y = te.compute((5, 37), lambda i, j: te.exp(x[i, j]) / total[i], name="y")
    program = te.program([x], [y])
    data = np.random.default_rng(0).standard_normal((5, 37)).astype("float32")
    result = ms.build(program, target="opencl")(data)
    assert np.allclose(result, ms.interpret(program, data), rtol=1e-5)


def parse(text: str) -> ms.ir.Program:
    return ms.parse(textwrap.dedent(text))


def refusal(sch: ms.Schedule, target: str = "cuda:sm_80") -> str:
    with pytest.raises(ScheduleError) as error:
        ms.build(sch, target=target)
    return str(error.value)


def test_unbound_loops_are_refused() -> None:
    assert "not bound" in refusal(ms.Schedule(product(8, 8, 8)))


def test_a_serial_loop_around_blocks_is_refused() -> None:
    program = product(8, 8, 8)
    sch = ms.Schedule(program)
    _, i, j, _ = sch.get_loops(sch.get_block(ms.ir.blocks(program)[0].name))
    sch.bind(j, "blockIdx.x")
    assert f"loop over {sch.get(i).var.name}" in refusal(sch)


def test_too_many_threads_are_refused() -> None:
    assert "2048 threads" in refusal(bound_product(product(64, 64, 8), threads=2048))


def test_too_much_shared_memory_is_refused() -> None:
    assert "bytes of shared memory" in refusal(tiled_product(product(512, 512, 512), tile=256, depth=64))


def test_registers_that_threads_would_share_are_refused() -> None:
    text = """
    def f(A: T.Tensor((64,)), B: T.Output((64,))):
        S = T.alloc((64,), "float32", scope="SCOPE")
        for b in T.bind(1, "blockIdx.x"):
            for t in T.bind(64, "threadIdx.x"):
                with T.block("S"):
                    i = T.spatial(64, t)
                    S[i] = A[i]
            for t in T.bind(64, "threadIdx.x"):
                with T.block("B"):
                    i = T.spatial(64, t)
                    B[i] = S[63 - i]
    """
    assert "threads would pass values" in refusal(ms.Schedule(parse(text.replace("SCOPE", "local"))))
    source = ms.build(ms.Schedule(parse(text.replace("SCOPE", "shared"))), target="cuda:sm_80").source("cuda")
    assert source.count("__syncthreads();") == 1
    same = text.replace("SCOPE", "shared").replace("63 - i", "i")
    assert "__syncthreads" not in ms.build(ms.Schedule(parse(same)), target="cuda:sm_80").source("cuda")


def test_a_race_in_one_statement_is_refused() -> None:
    text = """
    def f(A: T.Tensor((64,)), B: T.Output((1,))):
        for b in T.bind(1, "blockIdx.x"):
            for t in T.bind(64, "threadIdx.x"):
                with T.block("B"):
                    i = T.spatial(64, t)
                    B[0] = A[i]
    """
    assert "several threads" in refusal(ms.Schedule(parse(text)))


def test_a_barrier_in_divergent_control_flow_is_refused() -> None:
    text = """
    def f(A: T.Tensor((64,)), B: T.Output((64,))):
        S = T.alloc((64,), "float32", scope="shared")
        for b in T.bind(1, "blockIdx.x"):
            for t in T.bind(64, "threadIdx.x"):
                with T.block("both"):
                    i = T.spatial(64, t)
                    T.where(t < 32)
                    S[i] = A[i]
                    B[i] = S[31 - i]
    """
    assert "wait for each other" in refusal(ms.Schedule(parse(text)))


def test_parameters_that_run_backwards_are_refused() -> None:
    x = te.placeholder((6, 5), name="x", layout=ms.ir.Layout((-5, 1)))
    program = te.program([x], [te.compute((6, 5), lambda i, j: x[i, j] * 2.0, name="y")])
    with pytest.raises(ScheduleError, match="parameter x has negative strides"):
        ms.build(program, target="cuda:sm_80")


def test_reductions_that_threads_cannot_share_run_untuned() -> None:
    opencl()
    text = """
    @ms.program
    def main(x: T.Tensor((3, 13), "int16"), y: T.Output((2, 3), "int16"), z: T.Output((), "int64")):
        for i, j, k, l in T.grid(2, 3, 11, 13):
            with T.block("y"):
                vi = T.spatial(2, i)
                vj = T.spatial(3, j)
                vk = T.reduce(11, k)
                vl = T.reduce(13, l)
                with T.init():
                    y[vi, vj] = 0
                y[vi, vj] = y[vi, vj] ^ x[vj, vl]
        with T.block("first"):
            z[()] = -5
        for k, l in T.grid(0, 2):
            with T.block("z"):
                vk = T.reduce(0, k)
                vl = T.reduce(2, l)
                z[()] = T.max(z[()], T.cast(x[vk, vl], "int64"))
    """
    program = parse(text)
    data = np.arange(39, dtype="int16").reshape(3, 13)
    for got, want in zip(ms.build(program, target="opencl")(data), ms.interpret(program, data), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize(("bound", "outcome"), [("i", "right"), ("j", "refused")])
def test_threads_permute_rows_of_their_own(bound: str, outcome: str) -> None:
    """B[i, I[i, j]]: threads that differ in i cannot meet, whatever is loaded; those that differ in j may."""
    opencl()
    text = """
    @ms.program
    def f(A: T.Tensor((6, 5)), I: T.Tensor((6, 5), "int32"), B: T.Output((6, 5))):
        for i in T.serial(6):
            for j in T.serial(5):
                with T.block("B"):
                    v_i = T.spatial(6, i)
                    v_j = T.spatial(5, j)
                    B[v_i, I[v_i, v_j]] = A[v_i, v_j]
    """
    size = {"i": 6, "j": 5}[bound]
    text = text.replace(f"{bound} in T.serial({size})", f'{bound} in T.bind({size}, "threadIdx.x")')
    program, rng = parse(text), np.random.default_rng(0)
    sch = ms.Schedule(program)
    if outcome == "refused":
        assert "several threads may touch one element of B" in refusal(sch)
        return
    index = np.stack([rng.permutation(5) for _ in range(6)]).astype("int32")
    data = rng.standard_normal((6, 5)).astype("float32")
    assert np.array_equal(ms.build(sch, target="opencl")(data, index), ms.interpret(program, data, index))


def test_one_thread_scatters() -> None:
    opencl()
    text = """
    @ms.program
    def f(A: T.Tensor((29,)), I: T.Tensor((29,), "int32"), B: T.Output((11,))):
        for j in range(11):
            B[j] = 0.0
        for i in range(29):
            B[I[i]] = B[I[i]] + A[i]
    """
    program, rng = parse(text), np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, 29).astype("float32"), rng.integers(0, 11, 29).astype("int32")]
    assert np.array_equal(ms.build(program, target="opencl")(*inputs), ms.interpret(program, *inputs))
