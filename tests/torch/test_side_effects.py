"""What a graph does besides giving results: assertions, random numbers; and eager steps that surprise."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from metaschedule.torch.fallback import REASONS  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    REASONS.clear()
    with torch.no_grad():
        yield


def compiled(model: Any, strict: bool = True) -> Any:
    return torch.compile(model, backend="metaschedule", options={"strict": strict})


def test_assertions_about_tensors_are_kept() -> None:
    def model(x: Any) -> Any:
        torch._assert_async((x > 0).all(), "must be positive")
        return x * 2

    run = compiled(model)
    torch.testing.assert_close(run(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(RuntimeError, match="must be positive"):
        run(-torch.ones(3))


def test_assertions_without_results_to_compute() -> None:
    def model(x: Any) -> Any:
        torch._assert_async((x > 0).all())
        return x.view(-1)

    run = compiled(model)
    run(torch.ones(3))
    with pytest.raises(RuntimeError):
        run(-torch.ones(3))


def draws(x: Any) -> Any:
    a = x + torch.rand(4)
    b = torch.bernoulli(torch.full((4,), 0.5)) * a
    return a, b, torch.randn(4), nn.functional.dropout(x, 0.5, training=True), torch.randperm(4)


def test_random_numbers_are_drawn_as_in_eager() -> None:
    run, x = compiled(draws), torch.randn(4)
    run(x)
    for _ in range(2):
        torch.manual_seed(3)
        want, after = draws(x), torch.rand(2)
        torch.manual_seed(3)
        torch.testing.assert_close((run(x), torch.rand(2)), (want, after))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("statistics", ["own", "float32"])
def test_batch_norm_in_training(dtype: Any, statistics: str) -> None:
    def make() -> Any:
        layer = nn.BatchNorm2d(4).to(dtype)
        if statistics == "float32":
            layer = layer.float()
        return layer

    x = torch.randn(8, 4, 5, 5).to(dtype)
    want, found = make(), make()
    run = compiled(lambda x: found(x) * 2)
    eps = 8 * torch.finfo(dtype).eps  # of the largest values: near zero a rounding is relatively large
    for _ in range(2):
        torch.testing.assert_close(run(x), want(x) * 2, rtol=eps, atol=eps)
    torch.testing.assert_close(dict(found.state_dict()), dict(want.state_dict()))


def registered() -> Any:
    @torch.library.custom_op("mstest::surprise", mutates_args=())
    def surprise(x: torch.Tensor, kind: str) -> torch.Tensor:
        if kind == "dtype":
            return x.double() * 2
        if kind == "shape":
            return torch.cat([x, x])
        if kind == "strides":
            return (x * 2).t().contiguous().t()
        return x * 2

    @surprise.register_fake
    def _(x: torch.Tensor, kind: str) -> torch.Tensor:
        return torch.empty_like(x)

    return torch.ops.mstest.surprise


SURPRISE = registered()


@pytest.mark.parametrize(
    "kind", ["none", "strides", "dtype", pytest.param("shape", marks=pytest.mark.falls_back)]
)
def test_an_eager_step_that_gives_something_else(kind: str) -> None:
    def model(x: Any) -> Any:
        return SURPRISE(x + 1, kind) * 3

    x = torch.randn(4, 5)
    run = compiled(model, strict=False)
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x))
    assert len(REASONS) == (kind == "shape")


def test_eager_steps_that_give_views_and_their_inputs() -> None:
    @torch.library.custom_op("mstest::halves", mutates_args=())
    def halves(x: torch.Tensor) -> list[torch.Tensor]:
        return [x[::2].clone(), x[1::2].clone().t().contiguous().t()]

    @halves.register_fake
    def _(x: torch.Tensor) -> list[torch.Tensor]:
        return [x[::2].clone(), x[1::2].clone()]

    def model(x: Any) -> Any:
        a, b = torch.ops.mstest.halves(torch.relu(x))
        return a * b, torch.sort(a)[0].contiguous(), b

    x = torch.randn(4, 5)
    torch.testing.assert_close(compiled(model)(x), model(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_writes_beside_a_scalar_input(dtype: Any) -> None:
    """Dynamo forgets calls without users on float64 scalars, where AOTAutograd has it trace again."""

    def model(scale: Any, x: Any, counter: Any) -> Any:
        counter.add_(1)
        x.relu_()
        torch.relu_(x[:1])
        nn.functional.relu(x, inplace=True)
        x[0] = 5
        scale.zero_()
        return torch.stack([scale, scale]), x * 2

    def arguments() -> tuple[Any, ...]:
        return torch.tensor(1, dtype=dtype), torch.tensor([-1.0, -2.0, 3.0]), torch.zeros(2)

    run, (wanted_inputs, inputs) = compiled(model), (arguments(), arguments())
    for _ in range(2):
        torch.testing.assert_close(run(*inputs), model(*wanted_inputs))
        torch.testing.assert_close(inputs, wanted_inputs)


def test_a_method_called_for_its_write_alone() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.float64))

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return x + 1

    model = Counted()
    run = compiled(model)
    for n in range(3):
        run(torch.ones(2))
        assert model.calls.item() == n + 1
