"""The backend against eager: small models, mutation, aliasing, other dtypes, threads, fallbacks."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=ms.torch.backend, **options)


def check(model: Any, *args: Any) -> None:
    """The compiled model returns what the model does, and does the same to its arguments."""
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    want, found = model(*args), compiled(model)(*copies)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(copies, list(args))


def test_the_name_is_known() -> None:
    assert "metaschedule" in torch._dynamo.list_backends(())


def test_layers() -> None:
    check(nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 5), nn.ReLU()).eval(), torch.randn(3, 7))


def test_outputs_have_the_strides_of_eager() -> None:
    model, x = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 6, 5)
    assert compiled(model)(x).stride() == model(x).stride()


def test_mutation_and_aliasing() -> None:
    def model(x: Any, y: Any) -> Any:
        x.add_(1)
        z = x * y
        z.mul_(2)
        y[0] = z[1]
        return z, z.view(-1)[2:], x, y.t()

    check(model, torch.randn(4, 5), torch.randn(4, 5))


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "bool", "float16", "bfloat16", "complex64"])
def test_dtypes_work_or_fall_back(dtype: str) -> None:
    x = torch.randint(0, 2, (3, 4)).to(getattr(torch, dtype))
    check(lambda x: (x + x, torch.where(x != 0, x, x * 2).reshape(2, 6)), x)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (5, 1, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: torch.relu(x * 2 - 1), torch.randn(shape))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3), (1, 7), (7, 1), (5, 17), (1000,)])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "argmax", "var", "norm", "all", "logsumexp"])
def test_reductions_to_a_scalar(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    if name == "logsumexp":
        check(lambda x: torch.logsumexp(x, tuple(range(len(shape)))), x)
    elif name != "var" or x.numel() > 1:
        check(lambda x: (getattr(x, name)(), getattr(x, name)() * 2), x)
    check(lambda x: (x.t() if x.dim() == 2 else x).sum(dtype=torch.float64), x)


def test_values_filled_in_beside_weights() -> None:
    linear = nn.Linear(8, 8)
    for fill in (0.0, float("-inf"), 1):
        check(lambda x, fill=fill: torch.where(x > 0, linear(x), fill), torch.randn(4, 8))
        check(lambda x, fill=fill: linear(x).masked_fill(x > 0, fill), torch.randn(4, 8))
    check(torch.diagflat, torch.randn(3))
    check(lambda x: linear(x) + torch.eye(8) * torch.full((), 2.0), torch.randn(8, 8))


@pytest.mark.parametrize("mask", ["causal", "bool", "float", "none"])
def test_attention(mask: str) -> None:
    layer = nn.Linear(8, 24)

    def model(x: Any, mask: Any) -> Any:
        q, k, v = layer(x).view(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        causal = mask is None
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)

    masks = {"bool": torch.ones(6, 6).tril() > 0, "float": torch.randn(6, 6), "none": torch.zeros(6, 6)}
    check(model, torch.randn(2, 6, 8), masks.get(mask))


def test_inputs_that_are_not_contiguous() -> None:
    check(lambda x, y: torch.relu(x) + y, torch.randn(4, 6).t(), torch.randn(6, 8)[:, ::2])


def test_shapes_that_change(caplog: pytest.LogCaptureFixture) -> None:
    run = compiled(lambda x: torch.relu(x.reshape(-1, 2) + 1))
    for n in range(1, 13):
        x = torch.randn(n, 4)
        torch.testing.assert_close(run(x), torch.relu(x.reshape(-1, 2) + 1))
    assert "eager" not in caplog.text


def test_weights_that_change() -> None:
    model = nn.Linear(6, 5, bias=False).eval()
    run, x = compiled(model), torch.randn(3, 6)
    for _ in range(12):  # more often than weights are built in
        torch.testing.assert_close(run(x), model(x))
        model.weight.mul_(1.5)
    model.weight = nn.Parameter(torch.ones(5, 6))
    torch.testing.assert_close(run(x), model(x))


def test_weights_whose_changes_are_not_counted() -> None:
    with torch.inference_mode():
        model = nn.Linear(6, 5).eval()
        run, x = compiled(model), torch.randn(3, 6)
        for _ in range(2):
            torch.testing.assert_close(run(x), model(x))
            model.weight.mul_(1.5)


def test_a_buffer_that_the_model_changes() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.count.add_(x)
            return self.count * 2

    model, x = Counter(), torch.ones(4)
    run = compiled(model)
    assert [float(run(x)[0]) for _ in range(3)] == [2.0, 4.0, 6.0]


def test_an_operator_without_lowering_runs_in_eager(caplog: pytest.LogCaptureFixture) -> None:
    check(lambda x: torch.mode(torch.relu(x), dim=0).values * 2, torch.randn(9, 3))
    assert "aten.mode.default runs in eager" in caplog.text


@pytest.mark.falls_back
def test_gradients_run_in_eager(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Linear(3, 2)
    with torch.enable_grad():
        compiled(model)(torch.randn(4, 3)).sum().backward()
    assert model.weight.grad is not None
    assert "gradients are required" in caplog.text


def test_threads_call_at_once() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).eval()
    run = compiled(model)
    inputs = [torch.randn(8, 32) for _ in range(4)]
    run(inputs[0])
    wrong: list[int] = []

    def work(n: int) -> None:
        with torch.no_grad():
            want = model(inputs[n])
            wrong.extend(n for _ in range(50) if not torch.allclose(run(inputs[n]), want, atol=1e-5))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_unknown_options_are_refused() -> None:
    with pytest.raises(Exception, match="no option speed; there are database, trials"):
        compiled(nn.Linear(2, 2), options={"speed": 1})(torch.ones(1, 2))


def test_the_number_of_threads_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    from metaschedule.torch.kernels import Compiler

    asked: list[int] = []
    compile_all = Compiler.__call__

    def compile_and_note(self: Compiler, programs: Any) -> Any:
        asked.append(self.target.cores)
        return compile_all(self, programs)

    monkeypatch.setattr(Compiler, "__call__", compile_and_note)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        check(lambda x: torch.relu(x * 3), torch.randn(64, 64))
    finally:
        torch.set_num_threads(before)
    assert set(asked) == {1}
