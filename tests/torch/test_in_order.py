"""Operators that go over their elements in order: as eager, whatever meets in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402

Args = tuple[Any, ...]


def numbers(*shape: int, dtype: Any = None) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    if dtype is not None and not dtype.is_floating_point:
        return torch.randint(-9, 9, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype or torch.float32)


def places(extent: int, *shape: int, low: int = 0) -> Any:
    generator = torch.Generator().manual_seed(extent)
    return torch.randint(low, extent, shape, generator=generator)


def compare(function: Callable[..., Any], args: Args, own: str, **tolerance: float) -> None:
    """By one kernel in order, and nothing in eager."""
    rows = ms.torch.explain(function, args).rows
    assert not [row for row in rows if row.eager]
    assert own in [row.name for row in rows]
    with torch.no_grad():
        torch._dynamo.reset()
        got = torch.compile(function, backend="metaschedule", options={"strict": True})(*args)
        torch.testing.assert_close(got, function(*args), **tolerance)


PUTS: dict[str, tuple[Callable[..., Any], Args]] = {
    "index_add": (lambda x, i, y: x.index_add(0, i, y), (numbers(70, 48), places(70, 300), numbers(300, 48))),
    "of zeros": (
        lambda i, y: torch.zeros(70, 33).index_add(0, i, y),
        (places(70, 300), numbers(300, 33)),
    ),
    "along the last dimension": (
        lambda x, i, y: x.index_add(1, i, y),
        (numbers(5, 130), places(130, 211), numbers(5, 211)),
    ),
    "counting from the end": (
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        (numbers(90, 7), places(90, 200, low=-90), numbers(200, 7)),
    ),
    "two dimensions": (
        lambda x, i, j, y: x.index_put((i, j), y, accumulate=True),
        (numbers(19, 21, 3), places(19, 130), places(21, 130), numbers(130, 3)),
    ),
    "dimensions apart": (
        lambda x, i, j, y: torch.ops.aten.index_put(x, [i, None, j], y, True),
        (numbers(19, 5, 21), places(19, 130), places(21, 130), numbers(130, 5)),
    ),
    "one value": (
        lambda x, i: x.index_put((i,), torch.tensor(0.5), accumulate=True),
        (numbers(900), places(900, 400)),
    ),
    "the last stays": (
        lambda x, i, y: x.index_put((i,), y),
        (numbers(200, 5, dtype=torch.bfloat16), places(200, 300), numbers(300, 5, dtype=torch.bfloat16)),
    ),
    "integers": (
        lambda x, i, y: x.index_add(0, i, y),
        (numbers(70, 4, dtype=torch.int64), places(70, 300), numbers(300, 4, dtype=torch.int64)),
    ),
    "a row repeated": (
        lambda x, i, y: x.scatter_add(0, i[:, None].expand(-1, 48), y),
        (numbers(70, 48), places(70, 300), numbers(300, 48)),
    ),
    "a large one": (
        lambda x, i, y: torch.relu(x.index_add(0, i, 2 * y)),
        (numbers(99, 64), places(99, 777), numbers(777, 64)),
    ),
}


@pytest.mark.parametrize("name", PUTS)
def test_puts_in_order(name: str) -> None:
    function, args = PUTS[name]
    compare(function, args, "put_in_order", rtol=1e-5, atol=1e-5)


SCATTERS: dict[str, tuple[Callable[..., Any], Args]] = {
    "add": (
        lambda x, i, y: x.scatter_add(1, i, y),
        (numbers(6, 40), places(40, 5, 300), numbers(6, 301)),
    ),
    "first dimension": (
        lambda x, i, y: x.scatter_add(0, i, y),
        (numbers(80, 40), places(80, 120, 39), numbers(120, 39)),
    ),
    "replace": (lambda x, i, y: x.scatter(1, i, y), (numbers(6, 400), places(400, 6, 99), numbers(6, 99))),
    "a number": (lambda x, i: x.scatter(1, i, 2.5), (numbers(6, 400), places(400, 6, 99))),
    "times a number": (
        lambda x, i: x.scatter(1, i, 2.5, reduce="multiply"),
        (numbers(6, 40), places(40, 6, 99)),
    ),
    **{
        f"{how} {include}": (
            lambda x, i, y, how=how, include=include: x.scatter_reduce(1, i, y, how, include_self=include),
            (numbers(6, 400), places(400, 6, 99), numbers(6, 99)),
        )
        for how in ("sum", "prod", "amax", "amin")
        for include in (True, False)
    },
    "least integers": (
        lambda x, i, y: x.scatter_reduce(0, i, y, "amin", include_self=False),
        (numbers(400, dtype=torch.int32), places(400, 99), numbers(99, dtype=torch.int32)),
    ),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_in_order(name: str) -> None:
    function, args = SCATTERS[name]
    compare(function, args, "scatter_in_order", rtol=1e-5, atol=1e-5)


def test_greatest_of_no_numbers_is_none() -> None:
    x, i, y = numbers(6, 400), places(400, 6, 99), numbers(6, 99)
    y[2, 5] = float("nan")
    compare(lambda *args: args[0].scatter_reduce(1, args[1], args[2], "amax"), (x, i, y), "scatter_in_order",
            equal_nan=True)  # fmt: skip


RUNS: dict[str, tuple[Callable[..., Any], Args]] = {
    "last dimension": (lambda x: x.cumsum(-1), (numbers(3, 1000),)),
    "one row": (lambda x: x.cumsum(0), (numbers(999),)),
    "first dimension": (lambda x: x.cumsum(0), (numbers(200, 48),)),
    "between": (lambda x: (2 * x).cumsum(1).relu(), (numbers(2, 300, 5),)),
    "products": (lambda x: (1 + x / 99).cumprod(1), (numbers(3, 150),)),
    "a mask": (lambda x: (x > 0).cumsum(1), (numbers(3, 150),)),
    "bfloat16": (lambda x: x.cumsum(1), (numbers(3, 150, dtype=torch.bfloat16),)),
    "another dtype": (lambda x: x.cumsum(1, dtype=torch.float64), (numbers(3, 150),)),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_in_order(name: str) -> None:
    function, args = RUNS[name]
    compare(function, args, "run_in_order")


def test_bad_index_is_eagers_error() -> None:
    def put(x: Any, i: Any, y: Any) -> Any:
        return x.index_add(0, i, y)

    x, i, y = numbers(70, 8), places(70, 300), numbers(300, 8)
    i[17] = 70
    with torch.no_grad(), pytest.raises(RuntimeError, match="index 70 is out of bounds"):
        torch.compile(put, backend="metaschedule")(x, i, y)


def test_few_stay_expressions() -> None:
    rows = ms.torch.explain(lambda x, i, y: x.index_add(0, i, y), (numbers(7), places(7, 3), numbers(3))).rows
    assert "put_in_order" not in [row.name for row in rows]


def test_cache_is_written_in_place() -> None:
    """A put into an input, which is written in place, is no put in order."""

    def write(x: Any, i: Any, y: Any) -> Any:
        x[i] = y
        return y + 1

    x, i, y = numbers(900, 8), places(900, 100), numbers(100, 8)
    assert "put_in_order" not in [row.name for row in ms.torch.explain(write, (x.clone(), i, y)).rows]
