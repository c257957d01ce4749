"""What we cannot do runs in eager, with one warning and one attempt; `strict` raises instead."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

import logging
import os
import signal
import time
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.errors import InternalError  # noqa: E402
from metaschedule.runtime import KernelAssertion  # noqa: E402
from metaschedule.torch import backend as backend_function  # noqa: E402
from metaschedule.torch import kernels, pipeline, runner  # noqa: E402
from metaschedule.torch.backend import EVERY, MOST_SHAPES, Specialised  # noqa: E402
from metaschedule.torch.fallback import REASONS  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.falls_back


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    REASONS.clear()
    with torch.no_grad():
        yield


def compiled(model: Any, strict: bool = False, **options: Any) -> Any:
    return torch.compile(model, backend=backend_function, options={"strict": strict}, **options)


def break_compiler(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []

    def fail(*_: Any) -> Any:
        calls.append(1)
        raise InternalError("broken on purpose")

    monkeypatch.setattr(kernels.Compiler, "__call__", fail)
    return calls


def test_a_fault_of_ours_is_eager_said_once_and_tried_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = break_compiler(monkeypatch)
    caplog.set_level(logging.DEBUG, "metaschedule")
    model = nn.Linear(3, 4)
    run, x = compiled(model), torch.randn(2, 3)
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x))
    model.weight.mul_(2)
    torch.testing.assert_close(run(x), model(x))
    assert len(calls) == 1
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    (warning,) = [r.getMessage() for r in warnings if "a graph runs in eager" in r.getMessage()]
    assert "InternalError: broken on purpose" in warning
    assert "report it" in warning
    assert any(r.exc_info for r in caplog.records if r.levelno == logging.DEBUG)
    (reason,) = REASONS
    assert reason.startswith("InternalError: broken on purpose")
    assert REASONS[reason] == 1
    assert ms.torch.explain(model, (x,)).fallbacks[reason] == 1


def test_strict_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    break_compiler(monkeypatch)
    with pytest.raises(InternalError, match="broken on purpose"):
        compiled(nn.Linear(3, 4), strict=True)(torch.randn(2, 3))


def test_interrupts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels.Compiler, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compiled(nn.Linear(3, 4))(torch.randn(2, 3))


def test_the_node_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(group: Any, *_: Any) -> Any:
        raise KeyError("lost")

    monkeypatch.setattr(pipeline, "program_of", fail)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(lambda x: torch.relu(x) * 2)(x), torch.relu(x) * 2)
    assert "KeyError: 'lost' (at relu_mul)" in caplog.text


DEPENDING = [
    lambda x: x[x > 0] * 2,
    lambda x: torch.nonzero(x) + 1,
    lambda x: x * x.sum().item(),
    lambda x: torch.unique(x.round()) + 1,
    lambda x: torch.masked_select(x, x > 0).sum(),
    lambda x: x.repeat_interleave(torch.tensor([1, 2, 3, 1]), 0) * 2,
]


@pytest.mark.parametrize("number", range(len(DEPENDING)))
def test_shapes_that_depend_on_values(number: int) -> None:
    model = DEPENDING[number]
    x = torch.randn(4, 3)
    settings = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}
    with torch._dynamo.config.patch(**settings):
        for _ in range(2):
            torch.testing.assert_close(compiled(model)(x), model(x))
            x = torch.randn(4, 3)


def test_an_exported_model_whose_shapes_depend_on_values(tmp_path: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[x > 0] * 2

    x = torch.randn(4, 3)
    exported = torch.export.export(Model(), (x,))
    artefact = ms.torch.compile(exported)
    for y in (x, torch.randn(4, 3)):
        torch.testing.assert_close(artefact(y), Model()(y))
    with pytest.raises(ValueError, match="runs in eager and cannot be saved"):
        artefact.save(tmp_path / "model.ms")
    with pytest.raises(ms.torch.NotCaptured):
        ms.torch.compile(exported, strict=True)


def test_energies_and_forces() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def model(x: Any) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(net(x).sum(), x)
        return -gradient

    x = torch.randn(5, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(model, strict=True)(x), model(x))


def test_a_training_step() -> None:
    model = nn.Linear(3, 2)
    run = compiled(model, strict=True)
    with torch.enable_grad():
        run(torch.randn(4, 3)).sum().backward()
    assert model.weight.grad is not None


@pytest.mark.parametrize("make", ["sparse", "meta"])
def test_tensors_that_kernels_do_not_take(make: str) -> None:
    x = torch.randn(3, 3)
    x = x.to_sparse() if make == "sparse" else x.to("meta")
    found = compiled(lambda x: x * 2)(x)
    assert (found.layout, found.device) == (x.layout, x.device)


def test_a_custom_operator_that_writes() -> None:
    @torch.library.custom_op("mstest::double_", mutates_args=("x",))
    def double(x: torch.Tensor) -> None:
        x.mul_(2)

    def model(x: Any) -> Any:
        y = x + 1
        torch.ops.mstest.double_(y)
        return y * 3

    x = torch.randn(4)
    torch.testing.assert_close(compiled(model)(x), (x + 1) * 6)


def test_a_kernel_that_fails_gives_what_eager_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise KernelAssertion("index 7 of 5")

    model = nn.Embedding(5, 4)
    run = compiled(lambda x: model(x) * 2, strict=True)
    good, bad = torch.tensor([1, 4]), torch.tensor([1, 7])
    torch.testing.assert_close(run(good), model(good) * 2)
    monkeypatch.setattr(runner.KernelSequence, "__call__", fail)
    torch.testing.assert_close(run(good), model(good) * 2)
    with pytest.raises(IndexError, match="index out of range in self"):
        run(bad)


def test_specialisations_are_bounded() -> None:
    def model(x: Any, n: int) -> Any:
        return x * n + 1

    before = set(EVERY)
    run, x = compiled(model, dynamic=True), torch.randn(3)
    for n in range(2, MOST_SHAPES + 8):
        torch.testing.assert_close(run(x, n), x * n + 1)
    own = [one for one in set(EVERY) - before if isinstance(one, Specialised)]
    assert own
    assert all(len(one.known) <= MOST_SHAPES for one in own)


def test_strides_of_inputs_may_change() -> None:
    run = compiled(lambda x: (x * 2, x.t() + 1), strict=True)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]):
        found, other = run(x)
        torch.testing.assert_close(found, x * 2)
        assert (found.stride(), other.stride()) == ((x * 2).stride(), (x.t() + 1).stride())


SOURCE = [
    lambda x, i: nn.functional.embedding(i, x) * 2,
    lambda x, i: x.gather(0, i) + 1,
    lambda x, i: x.index_select(0, i.view(-1)) * 2,
    lambda x, i: x[i] * 2,
    lambda x, i: x.index_add(0, i.view(-1), x[:2] * 2),
    lambda x, i: x.index_copy(0, i.view(-1), x[:2] * 2),
    lambda x, i: x.index_put((i.view(-1),), x[:2] * 2),
    lambda x, i: x.scatter_add(0, i.view(-1, 1), x[:2] * 2),
    lambda x, i: nn.functional.embedding_bag(i, x, mode="sum"),
    lambda x, i: nn.functional.embedding_bag(i.view(-1), x, torch.tensor([0, 1]), mode="mean"),
]


@pytest.mark.parametrize("number", range(len(SOURCE)))
def test_an_index_out_of_range_is_eagers_error(number: int) -> None:
    model, x = SOURCE[number], torch.randn(5, 4)
    run = compiled(model, strict=True)
    for index in ([[1, 4]], [[0, 7]], [[-1, 2]], [[2**40, 0]], [[0, 0]]):
        i = torch.tensor(index)
        try:
            want = model(x, i)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                run(x, i)
        else:
            torch.testing.assert_close(run(x, i), want)


LARGE = {
    "index_add": lambda x, i, y: x.index_add(0, i, y, alpha=2),
    "index_copy": lambda x, i, y: x.index_copy(0, i, y),
    "scatter_add": lambda x, i, y: x.scatter_add(0, i[:, None].expand(-1, 48), y),
    "index_put": lambda x, i, y: x.index_put((i,), y, accumulate=True),
}


@pytest.mark.parametrize("name", LARGE)
def test_rows_of_many_do_not_count_from_the_end_unless_eagers_do(name: str) -> None:
    run = compiled(LARGE[name], strict=True)
    x, i, y = torch.randn(700, 48), torch.randperm(700)[:300], torch.randn(300, 48)
    torch.testing.assert_close(run(x, i, y), LARGE[name](x, i, y))
    i[17] = -1
    if name == "index_put":
        torch.testing.assert_close(run(x, i, y), LARGE[name](x, i, y))
    else:
        with pytest.raises((IndexError, RuntimeError), match="out of|index"):
            run(x, i, y)


@pytest.mark.parametrize("offsets", [[0, 2, 2], [0, 4], [1, 3], [0, 5], [5], [0, 3, 6], [-1, 2]])
def test_offsets_of_bags_out_of_range_are_eagers_error(offsets: list[int]) -> None:
    def model(x: Any, at: Any) -> Any:
        return nn.functional.embedding_bag(torch.tensor([3, 0, 1, 2]), x, at, mode="sum")

    x, at = torch.randn(5, 4), torch.tensor(offsets)
    run = compiled(model, strict=True)
    try:
        want = model(x, at)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            run(x, at)
    else:
        torch.testing.assert_close(run(x, at), want)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
def test_division_of_integers_by_zero_is_eagers_error(name: str) -> None:
    run = compiled(getattr(torch, name), strict=True)
    x = torch.tensor([7, -7])
    torch.testing.assert_close(run(x, x - 5), getattr(torch, name)(x, x - 5))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run(x, torch.tensor([2, 0]))


def test_a_convolution_with_one_number_for_both_sides() -> None:
    model, x = nn.Conv2d(3, 4, 3, padding="valid"), torch.randn(1, 3, 6, 6)
    torch.testing.assert_close(compiled(model, strict=True)(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_batch_of_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    x = torch.randn(0, 3, 6, 6)
    torch.testing.assert_close(compiled(model, strict=True)(x), model(x))


def test_a_call_after_fork() -> None:
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    run = compiled(model, strict=True)
    want = run(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(run(x), want) else 3)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        status = -1
    assert status == 0
