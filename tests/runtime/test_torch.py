"""Calls with torch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from handmade_kernels import add, exponential, parallel

from metaschedule.ir import DTYPES
from metaschedule.runtime import Executable
from metaschedule.runtime.layout import Process
from metaschedule.runtime.native import PROCESS

torch: Any = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def adder() -> Executable:
    return Executable(add())


@pytest.fixture(params=["native", "python"])
def path(request: pytest.FixtureRequest, adder: Executable, monkeypatch: pytest.MonkeyPatch) -> str:
    """Through DLPack's C interface, and as if torch had none."""
    adder(torch.ones(4, 6), torch.ones(4, 6))  # the first tensor teaches the native caller
    if request.param == "python":
        monkeypatch.setattr(PROCESS, "tensor_type", None)
        monkeypatch.setattr("metaschedule.runtime.executable.adopt_tensors", lambda kind: None)
    return request.param


def test_tensors_give_tensors(adder: Executable, path: str) -> None:
    a = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    c = adder(a, torch.ones(4, 6))
    assert isinstance(c, torch.Tensor)
    assert torch.equal(c, a + 1)
    out = torch.empty(4, 6)
    assert adder(a, torch.ones(4, 6), out) is out
    assert torch.equal(out, a + 1)


def test_nothing_is_copied(adder: Executable, path: str) -> None:
    memory = torch.zeros(48)
    out = memory[24:].view(4, 6)
    adder(torch.ones(4, 6), torch.ones(4, 6), out)
    assert memory[24:].eq(2).all()
    assert memory[:24].eq(0).all()


def test_mixed_with_numpy(adder: Executable, path: str) -> None:
    a = np.ones((4, 6), np.float32)
    assert isinstance(adder(a, torch.ones(4, 6)), torch.Tensor)
    assert isinstance(adder(torch.ones(4, 6), a), torch.Tensor)
    out = np.empty((4, 6), np.float32)
    assert adder(torch.ones(4, 6), torch.ones(4, 6), out) is out
    assert (out == 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes(dtype: str, path: str) -> None:
    kind = getattr(torch, dtype)
    exe = Executable(add((3, 5), dtype))
    a = torch.arange(15).reshape(3, 5).to(kind)
    c = exe(a, torch.zeros(3, 5, dtype=kind))
    assert c.dtype == kind
    assert torch.equal(c, a)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 7)])
def test_odd_shapes(shape: tuple[int, ...], path: str) -> None:
    a = torch.ones(shape)
    c = Executable(add(shape))(a, a)
    assert c.shape == shape
    assert c.eq(2).all()


def test_several_outputs(path: str) -> None:
    e, n = Executable(exponential())(torch.zeros(1))
    assert (e.item(), n.item()) == (1, -1)


def test_mistakes_name_the_argument(adder: Executable, path: str) -> None:
    a = torch.ones(4, 6)
    for args, kind, message in (
        ((a, torch.ones(6, 4).T), ValueError, r"'B' \(argument 1\): expected C-contig.*x\.contig"),
        ((a, torch.ones(6, 4)), ValueError, r"expected shape \(4, 6\), got \(6, 4\)"),
        ((a, a.double()), TypeError, r"expected dtype float32, got float64.*x\.to\(torch\.float32"),
        ((a, a.to("meta")), ValueError, "got one on meta; move it to the CPU first"),
        ((a, a.to_sparse()), ValueError, "expected a dense tensor, got torch.sparse_coo"),
        ((a, a, a), ValueError, "overlaps input 'A'"),
        ((a, torch.ones(1, 6).expand(4, 6)), ValueError, "expected C-contiguous"),
        ((a, a.clone().requires_grad_()), ValueError, "requires a gradient; pass x.detach"),
        ((a, a.to(torch.complex64)), TypeError, "got complex64"),
    ):
        with pytest.raises(kind, match=message):
            adder(*args)


def test_parameters_without_gradients(adder: Executable, path: str) -> None:
    weight = torch.nn.Parameter(torch.ones(4, 6))
    with torch.no_grad():
        assert adder(weight, weight).eq(2).all()
    assert adder(weight.detach(), weight.detach()).eq(2).all()
    bound = adder.bind({"B": weight.detach()})
    assert bound(torch.ones(4, 6)).eq(2).all()


def test_the_native_caller_reads_tensors(adder: Executable) -> None:
    """Without this torch's calls would be right but slow."""
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this torch has no C interface of DLPack")
    a = torch.ones(4, 6)
    adder(a, a)
    assert isinstance(PROCESS, Process)
    assert PROCESS.tensor_type == id(torch.Tensor)
    assert adder._native(a, a, torch.empty(4, 6)) == 0


def test_alternating_with_torch_in_parallel() -> None:
    exe = Executable(parallel(), threads=2)
    a, m = torch.zeros(1000), torch.ones(256, 256)
    for _ in range(10):
        assert exe(a)[-1] == 2
        assert torch.mm(m, m)[0, 0] == 256


def test_benchmark_with_tensors(adder: Executable) -> None:
    out = torch.zeros(4, 6)
    assert adder.benchmark(torch.ones(4, 6), torch.ones(4, 6), out, repeats=2).median > 0
    assert out.eq(2).all()
