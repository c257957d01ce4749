"""Models on a GPU: kernels for OpenCL, which run here, and for CUDA, which NVIDIA's compiler accepts."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import metaschedule as ms  # noqa: E402
from metaschedule.runtime.gpu import DeviceExecutable  # noqa: E402
from metaschedule.target import resolve  # noqa: E402
from metaschedule.torch.backend import Options, build_plan, target_for  # noqa: E402
from metaschedule.torch.capture import capture, decompositions  # noqa: E402
from metaschedule.torch.fallback import NotCaptured  # noqa: E402
from metaschedule.torch.plan import EagerStep  # noqa: E402
from tests.codegen.gpu.schedules import nvrtc, opencl  # noqa: E402

nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def on_opencl(model: Any) -> Any:
    opencl()
    return torch.compile(model, backend=ms.torch.backend, options={"target": "opencl", "strict": True})


def check(model: Any, *args: Any, times: int = 2) -> None:
    """The compiled model returns what the model does, at every call, and does the same to its arguments."""
    run = on_opencl(model)
    for _ in range(times):
        copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        want, found = model(*args), run(*copies)
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(copies, list(args))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.depth, self.last = nn.Conv2d(6, 6, 3, stride=2, groups=6), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.last(F.silu(self.depth(x)).mean((2, 3)))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell = nn.Embedding(11, 8), nn.GRUCell(8, 8)

    def forward(self, words: Any) -> Any:
        h = torch.zeros(words.shape[0], 8)
        for t in range(words.shape[1]):
            h = self.cell(self.words(words[:, t]), h)
        return h


def test_layers() -> None:
    check(
        nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 5), nn.Softmax(-1)).eval(), torch.randn(3, 7)
    )


def test_attention() -> None:
    check(Attention().eval(), torch.randn(2, 5, 16))


def test_convolutions() -> None:
    check(Convolutions().eval(), torch.randn(1, 3, 11, 9))


def test_a_recurrence_reads_parts_of_tensors() -> None:
    check(Words().eval(), torch.randint(0, 11, (3, 4)))


def test_a_kernel_that_fails_raises_eagers_error() -> None:
    run = on_opencl(Words().eval())
    run(torch.randint(0, 11, (3, 4)))
    with pytest.raises(IndexError):
        run(torch.full((3, 4), 11))


def test_writes_and_views() -> None:
    def model(x: Any, y: Any) -> Any:
        x.add_(1)
        z = x * y
        y[:, 1:3] = z[:, :2]
        return z[1:], z.t(), (z * 2).t().contiguous(), x.sum(0), (y == y).any()

    check(model, torch.randn(4, 5), torch.randn(4, 5))


def test_a_cache_that_is_written() -> None:
    def model(cache: Any, at: Any, row: Any) -> Any:
        cache.index_copy_(0, at, row)
        return (cache * 2).sum(1)

    check(model, torch.randn(6, 5), torch.tensor([2]), torch.randn(1, 5))


def test_steps_in_eager_between_kernels() -> None:
    def model(x: Any) -> Any:
        y = (x * 2 + 1).relu()
        values = torch.linalg.eigvalsh(y @ y.t())
        return values / values.max(), (y - values).sum(), y[:, 1:].exp()

    check(model, torch.randn(4, 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8])
def test_other_dtypes(dtype: Any) -> None:
    def model(x: Any, y: Any) -> Any:
        return (
            x * y + x,
            torch.where(x > y, x, y).sum(),
            x.argmax(-1),
            x.to(torch.float32) @ y.to(torch.float32).t(),
        )

    check(model, torch.randint(-5, 6, (3, 7)).to(dtype), torch.randint(-5, 6, (3, 7)).to(dtype))


def test_changed_weights_are_noticed() -> None:
    model, x = nn.Linear(6, 4).eval(), torch.randn(2, 6)
    run = on_opencl(model)
    run(x)
    model.weight.add_(1)
    torch.testing.assert_close(run(x), model(x))


def test_other_shapes() -> None:
    model = nn.Linear(6, 4).eval()
    run = on_opencl(model)
    for rows in (1, 3, 8):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(run(x), model(x))


@pytest.mark.falls_back
def test_kernels_for_cuda_take_no_tensors_of_the_host() -> None:
    run = torch.compile(
        nn.Linear(3, 2), backend=ms.torch.backend, options={"target": "cuda:sm_80", "strict": True}
    )
    with pytest.raises(Exception, match="kernels for cuda take no tensors on cpu"):
        run(torch.randn(1, 3))


# --- CUDA, without a device ---


@pytest.mark.parametrize(("model", "shape"), [(Attention, (2, 5, 16)), (Convolutions, (1, 3, 11, 9))])
def test_a_graph_on_cuda_has_kernels_that_nvidia_accepts(model: Any, shape: Any) -> None:
    """Traced on fake tensors of a device that is not here. Weights are inputs: they have no values."""
    nvrtc()
    with FakeTensorMode():
        own = model().eval()
        state = {
            name: torch.empty(t.shape, dtype=t.dtype, device="cuda") for name, t in own.state_dict().items()
        }
        args = [*state.values(), torch.empty(shape, device="cuda")]

        def run(*given: Any) -> Any:
            return torch.func.functional_call(own, dict(zip(state, given[:-1], strict=True)), given[-1:])

        module = make_fx(run, decomposition_table=decompositions())(*args)
    graph = capture(module, args)
    assert graph.device.type == "cuda"
    target = target_for("cuda:sm_80", graph.device)
    graph.on_gpu = True
    plan = build_plan(graph, Options(strict=True), target)
    assert not [step for step in plan.steps if isinstance(step, EagerStep)]
    for compiled in plan.kernels:
        assert isinstance(compiled.kernel, DeviceExecutable)
        for found in compiled.kernel.resources().values():
            assert found["spilled"] == 0


def test_a_graph_has_one_device() -> None:
    with FakeTensorMode():
        args = [torch.empty(3), torch.empty(3, device="cuda")]
        module = make_fx(lambda x, y: (x + 1, y + 1))(*args)
    with pytest.raises(NotCaptured, match="cpu and on cuda"):
        capture(module, args)


@pytest.mark.falls_back
def test_kernels_for_a_cpu_take_no_tensors_of_a_gpu() -> None:
    with FakeTensorMode():
        args = [torch.empty(3, device="cuda")]
        module = make_fx(lambda x: x + 1)(*args)
    with pytest.raises(NotCaptured, match="take no tensors on cuda"):
        build_plan(capture(module, args), Options(), resolve("native"))
