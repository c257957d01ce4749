"""Attention through a mask: as far as it reaches, and not further."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

import math
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule.torch  # noqa: E402, F401  (makes the backend known)
from metaschedule.torch.explain import explain  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def arguments(
    batch: int = 2, heads: int = 4, shared: int = 2, queries: int = 1, positions: int = 40, width: int = 8
) -> list[Any]:
    q = torch.randn(batch, heads, queries, width)
    k, v = (torch.randn(batch, shared, positions, width) for _ in range(2))
    return [q, k, v, torch.arange(positions).expand(batch, 1, queries, positions) < 17]


@pytest.mark.parametrize("queries", [1, 3])
def test_any_mask_gives_what_eager_gives(queries: int) -> None:
    q, k, v, mask = arguments(queries=queries)
    run = torch.compile(attend, backend="metaschedule", options={"strict": True})
    assert "cached_attention" in [row.name for row in explain(attend, (q, k, v, mask)).rows]
    random = torch.rand(mask.shape) < 0.3
    for one in (mask, random, ~mask, mask & random, mask[:1].expand_as(mask) & (torch.arange(40) == 0)):
        torch.testing.assert_close(run(q, k, v, one.contiguous()), attend(q, k, v, one))


def test_nothing_beyond_the_mask_is_read() -> None:
    q, k, v, mask = arguments()
    run = torch.compile(attend, backend="metaschedule", options={"strict": True})
    expected = attend(q, k, v, mask)
    k[:, :, 17:] = math.nan
    v[:, :, 17:] = math.inf
    torch.testing.assert_close(run(q, k, v, mask.contiguous()), expected)


def test_queries_that_may_see_nothing_get_zeros() -> None:
    q, k, v, mask = arguments()
    mask = mask.clone()
    mask[1] = False
    run = torch.compile(attend, backend="metaschedule", options={"strict": True})
    assert (run(q, k, v, mask)[1] == 0).all()
    assert (run(q, k, v, torch.zeros_like(mask)) == 0).all()


def test_many_queries_are_products_of_matrices() -> None:
    args = arguments(queries=24)
    assert "cached_attention" not in [row.name for row in explain(attend, args).rows]
