"""Inputs that a model changes: in place where only rows are new, otherwise at the end; as eager does."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule.torch  # noqa: E402, F401  (makes the backend known)
from metaschedule.torch.backend import EVERY  # noqa: E402

Model = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def put_rows(cache: Any, at: Any, rows: Any) -> Any:
    cache.index_copy_(1, at, rows * 2)
    return cache.sum(1)


def put_from_end(cache: Any, at: Any, rows: Any) -> Any:
    cache[:, at - 9] = rows
    return cache * 2


def put_piece(cache: Any, at: Any, rows: Any) -> Any:
    cache[:, 3:5] = rows
    return cache + at.sum()


def put_row(cache: Any, at: Any, rows: Any) -> Any:
    cache[:, 3] = rows[:, 1]
    return cache.amax()


def put_and_read(cache: Any, at: Any, rows: Any) -> Any:
    before = cache.sum()
    cache.index_copy_(1, at, rows)
    return before + cache


def add_to_all(cache: Any, at: Any, rows: Any) -> Any:
    cache.add_(1)
    at.mul_(2)
    return cache * rows.sum()


def put_and_return(cache: Any, at: Any, rows: Any) -> Any:
    cache.index_copy_(1, at, rows)
    return cache, cache[:, 1]


def put_and_give_back(cache: Any, at: Any, rows: Any) -> Any:
    cache.index_copy_(1, at, rows)
    return cache, rows


def clear_and_give_back(cache: Any, at: Any, rows: Any) -> Any:
    cache.zero_()
    return cache.to(cache.dtype), at + 1


def exchange(cache: Any, at: Any, rows: Any) -> Any:
    first = cache[:, :2].clone()
    cache[:, :2] = rows
    rows.copy_(first)
    return at + 1


MODELS: dict[Model, int] = {  # and how many inputs each changes in place
    put_rows: 1,
    put_from_end: 1,
    put_piece: 1,
    put_row: 1,
    put_and_read: 0,
    add_to_all: 0,
    put_and_return: 0,  # a view of it is returned
    put_and_give_back: 1,
    clear_and_give_back: 0,
    exchange: 0,
}


def arguments() -> tuple[Any, ...]:
    return torch.randn(2, 9, 4), torch.tensor([7, 2]), torch.randn(2, 2, 4)


def runners() -> list[Any]:
    every: Any = list(EVERY)
    return [found.runner for one in every for found in one.known.values() if found.runner]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_inputs_hold_what_eager_writes(model: Model) -> None:
    EVERY.clear()
    args = arguments()
    copies = [t.clone() for t in args]
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    for _ in range(2):
        found, wanted = run(*args), model(*copies)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(list(args), copies)
        if isinstance(wanted, tuple):
            assert [y is args[0] for y in found] == [y is copies[0] for y in wanted]
    (runner,) = runners()
    assert sum(write.output is None for write in runner.plan.writes) == MODELS[model]


def test_inputs_that_are_not_contiguous_are_written_too() -> None:
    cache, at, rows = arguments()
    run = torch.compile(put_rows, backend="metaschedule", options={"strict": True})
    strided, expected = torch.zeros(4, 9, 2).permute(2, 1, 0), torch.zeros(2, 9, 4)
    torch.testing.assert_close(run(strided, at, rows), put_rows(expected, at, rows))
    torch.testing.assert_close(strided, expected)


def test_a_failure_behind_a_write_leaves_what_eager_leaves() -> None:
    """The second index is out of range: the first tensor has been written to, and is again."""

    def model(one: Any, other: Any, at: Any, rows: Any) -> Any:
        one.index_copy_(0, at, rows)
        total = one.sum()
        other.index_copy_(0, at, rows + total)
        return total

    at, rows = torch.tensor([3]), torch.ones(1, 4)
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    one, other = torch.zeros(8, 4), torch.zeros(8, 4)
    assert run(one, other, at, rows) == 4
    short = torch.zeros(2, 4)
    with pytest.raises(IndexError):
        run(one, short, at, rows)
    assert one.sum() == 4


def test_rows_do_not_count_from_the_end_unless_eagers_do() -> None:
    def copy(cache: Any, at: Any, rows: Any) -> Any:
        return cache.index_copy_(0, at, rows)[0, 0]

    def put(cache: Any, at: Any, rows: Any) -> Any:
        cache[at] = rows
        return cache[0, 0]

    at, rows = torch.tensor([-1]), torch.ones(1, 4)
    for model in (copy, put):
        run = torch.compile(model, backend="metaschedule", options={"strict": True})
        ours, eagers = torch.zeros(8, 4), torch.zeros(8, 4)
        run(ours, torch.tensor([2]), rows)
        model(eagers, torch.tensor([2]), rows)
        if model is copy:
            with pytest.raises(IndexError):
                run(ours, at, rows)
        else:
            torch.testing.assert_close(run(ours, at, rows), model(eagers, at, rows))
        torch.testing.assert_close(ours, eagers)


def test_only_the_rows_are_written() -> None:
    """What lies beside them has the same bits: NaN with a payload survives."""
    cache = torch.full((4, 8), float("nan"))
    bits = cache.view(torch.int32)
    bits += 7
    before = bits.clone()
    run = torch.compile(
        lambda cache, at, rows: cache.index_copy_(0, at, rows)[0, 0] * 0,
        backend="metaschedule",
        options={"strict": True},
    )
    run(cache, torch.tensor([2]), torch.ones(1, 8))
    assert (bits[[0, 1, 3]] == before[[0, 1, 3]]).all()
    assert (cache[2] == 1).all()
