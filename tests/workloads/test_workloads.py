"""Every workload: there, in the layout promised, and computing what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

from metaschedule import ir, workloads
from metaschedule.interpreter import interpret
from metaschedule.script import parse
from tests.workloads.references import EXACT, REFERENCES, stand_in

ALL = [(name, n) for name in workloads.names() for n in range(len(workloads.configurations(name)))]

# Configuration 0 as issue 2 has it: shapes of the inputs in order, and of the output.
FIRST = {
    "GMM": ([(1, 128, 128), (1, 128, 128)], (1, 128, 128)),
    "C1D": ([(1, 256, 64), (3, 64, 128)], (1, 128, 128)),
    "C2D": ([(1, 224, 224, 3), (7, 7, 3, 64)], (1, 112, 112, 64)),
    "C3D": ([(1, 16, 224, 224, 3), (7, 7, 7, 3, 64)], (1, 8, 112, 112, 64)),
    "DEP": ([(1, 112, 112, 32), (3, 3, 32)], (1, 112, 112, 32)),
    "DIL": ([(1, 224, 224, 3), (7, 7, 3, 64)], (1, 109, 109, 64)),
    "GRP": ([(1, 56, 56, 64), (3, 3, 16, 128)], (1, 28, 28, 128)),
    "T2D": ([(1, 4, 4, 512), (4, 4, 512, 256)], (1, 8, 8, 256)),
    "CBR": ([(1, 224, 224, 3), (7, 7, 3, 64), (64,), (64,), (64,)], (1, 112, 112, 64)),
    "TBG": ([(1, 128, 12, 64), (1, 128, 12, 64)], (1, 12, 128, 128)),
    "NRM": ([(1, 256, 256)], (1,)),
    "SFM": ([(256, 256)], (256, 256)),
    "CAP": ([(1, 16, 16, 4, 4, 32), (3, 3, 4, 4, 32, 32)], (1, 8, 8, 4, 4, 32)),
    "FDENSE": ([(1024, 1024), (1024, 4096), (4096,)], (1024, 4096)),
}


def random_inputs(program: ir.Program, seed: int = 0) -> list[np.ndarray]:
    """Small integers."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, b.shape).astype(ir.numpy_dtype(b.dtype)) for b in program.inputs]


def test_names() -> None:
    assert set(workloads.names()) == set(FIRST) == set(REFERENCES)


@pytest.mark.parametrize("name", workloads.names())
def test_configuration_0_is_as_promised(name: str) -> None:
    program = workloads.create(name)
    inputs, output = FIRST[name]
    assert [b.shape for b in program.inputs] == inputs
    assert [b.shape for b in program.outputs] == [output]
    assert {b.dtype for b in program.params} == {"float32"}


def test_input_names() -> None:
    names = {name: [b.name for b in workloads.create(name).inputs] for name in workloads.names()}
    assert names["GMM"] == ["X", "Y"]
    assert names["CBR"] == ["X", "W", "bias", "bn_scale", "bn_offset"]
    assert names["TBG"] == ["Q", "K"]
    assert names["FDENSE"] == ["X", "W", "bias"]


@pytest.mark.parametrize("name", workloads.names())
def test_configurations_are_many_and_different(name: str) -> None:
    count = len(workloads.configurations(name))
    assert count >= 4
    programs = [workloads.create(name, n) for n in range(count)]
    assert len({ir.structural_hash(p) for p in programs}) == count


@pytest.mark.parametrize(("name", "n"), ALL)
def test_printed_and_parsed(name: str, n: int) -> None:
    program = workloads.create(name, n)
    assert ir.structural_equal(parse(str(program)), program)


@pytest.mark.parametrize(("name", "n"), ALL)
def test_interpreted_like_numpy(name: str, n: int) -> None:
    config = stand_in(name, workloads.configurations(name)[n])
    program = workloads.create(name, n, **config)
    inputs = random_inputs(program, n)
    got = interpret(program, *inputs)
    want = REFERENCES[name](config, *[x.astype(np.float64) for x in inputs])
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.float32
    if name in EXACT:
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", workloads.names())
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(name: str, dtype: str) -> None:
    config = stand_in(name, workloads.configurations(name)[-1])
    program = workloads.create(name, **config, dtype=dtype)
    assert {b.dtype for b in program.params} == {dtype}
    got = interpret(program, *random_inputs(program))
    assert isinstance(got, np.ndarray)
    assert got.dtype == ir.numpy_dtype(dtype)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 5), (2, 1, 2, 3)])
def test_softmax_of_any_rank(shape: tuple[int, ...]) -> None:
    program = workloads.create("SFM", shape=shape)
    (x,) = random_inputs(program)
    np.testing.assert_allclose(interpret(program, x), REFERENCES["SFM"]({}, x), rtol=1e-5)


def test_transposed_convolution_cut_by_its_padding() -> None:
    config = {"n": 1, "h": 5, "w": 4, "ci": 2, "co": 3, "k": 3, "s": 2, "p": 3}
    program = workloads.create("T2D", **config)
    inputs = random_inputs(program)
    np.testing.assert_array_equal(
        interpret(program, *inputs),  # pyright: ignore[reportArgumentType]
        REFERENCES["T2D"](config, *inputs),
    )


def test_stages() -> None:
    def stages(name: str, **overrides: int) -> list[str]:
        return [b.name for b in ir.blocks(workloads.create(name, **overrides))]

    assert stages("C2D") == ["pad", "conv"]
    assert stages("C2D", p=0) == ["conv"]
    assert stages("SFM") == ["max", "exp", "sum", "softmax"]
    assert stages("TBG") == ["Q_transposed", "K_transposed", "matmul"]
    assert stages("NRM") == ["squares", "norm"]


def test_flops() -> None:
    assert workloads.flops("GMM") == 2 * 128**3
    assert workloads.flops("C2D") == 2 * 112 * 112 * 64 * 7 * 7 * 3
    assert workloads.flops("GMM", b=2, n=3, m=5, k=7) == 2 * 2 * 3 * 5 * 7
    t2d = {"n": 1, "h": 4, "w": 4, "ci": 2, "co": 3, "k": 4, "s": 2, "p": 0}
    assert workloads.flops("T2D", **t2d) == 2 * 4 * 4 * 2 * 3 * 4 * 4
    for name, n in ALL:
        assert workloads.flops(name, n) > 0
        if name != "T2D":
            assert workloads.flops(name, n) == workloads.flops(workloads.create(name, n))


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"no workload 'C4D'; there are GMM, C1D"):
        workloads.create("C4D")
    with pytest.raises(TypeError, match="GMM has no kernel; its keywords are b, n, m, k, dtype"):
        workloads.create("GMM", kernel=3)
    with pytest.raises(ValueError, match="GMM has configurations 0 to 4, got 5"):
        workloads.create("GMM", 5)
    with pytest.raises(TypeError, match="create: config must be an integer, got '0'"):
        workloads.create("GMM", "0")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="groups=3 must divide the channels, ci=64 and co=128"):
        workloads.create("GRP", groups=3)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        workloads.create("C2D", k=0)
    with pytest.raises(TypeError, match="n must be an integer, got None"):
        workloads.create("GMM", n=None)
    with pytest.raises(ValueError, match="does not fit in the input"):
        workloads.create("C2D", h=3, w=3, p=0)
    with pytest.raises(ValueError, match="leaves nothing of the output"):
        workloads.create("T2D", h=1, w=1, p=2)
    with pytest.raises(ValueError, match="unknown dtype 'float99'"):
        workloads.create("GMM", dtype="float99")
    with pytest.raises(ValueError, match="last axis"):
        workloads.create("SFM", shape=())


def test_padding_is_zero_outside() -> None:
    program = workloads.create("C1D", n=1, l=4, ci=1, co=1, k=3, s=1, p=2)
    x, w = np.ones((1, 4, 1), np.float32), np.ones((3, 1, 1), np.float32)
    got = interpret(program, x, w)
    assert isinstance(got, np.ndarray)
    assert got.ravel().tolist() == [1, 2, 3, 3, 2, 1]


@pytest.mark.parametrize("name", workloads.names())
def test_weights_are_inputs_and_never_all_of_them(name: str) -> None:
    inputs = [b.name for b in workloads.create(name).inputs]
    assert set(workloads.weights(name)) < set(inputs)
