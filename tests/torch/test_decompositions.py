"""Decompositions of ours give what the operators give, and are used."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from metaschedule.torch.capture import decompositions  # noqa: E402
from metaschedule.torch.decompositions import DECOMPOSITIONS  # noqa: E402

aten = torch.ops.aten
flash = aten._scaled_dot_product_flash_attention_for_cpu.default


def arguments() -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(shape, generator=generator) for shape in ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.linspace(-3, 3, 35).reshape(5, 7)},
        {"attn_mask": torch.arange(35).reshape(5, 7) % 3 == 0, "scale": 1.0},
    ],
    ids=["plain", "causal", "scale", "mask", "condition"],
)
def test_attention(options: dict[str, Any]) -> None:
    expected = aten.scaled_dot_product_attention.default(*arguments(), **options)
    found, logs = decompositions()[flash](*arguments(), **options)
    torch.testing.assert_close(found, expected)
    if options.get("attn_mask", torch.ones(1)).dtype != torch.bool:  # torch's kernel wants numbers
        torch.testing.assert_close(logs, flash(*arguments(), **options)[1])


def test_heads_of_the_query_share_keys_and_values() -> None:
    query, key, value = torch.randn(1, 4, 3, 2), torch.randn(1, 2, 5, 2), torch.randn(1, 2, 5, 2)
    expected = aten.scaled_dot_product_attention.default(query, key, value, enable_gqa=True)
    torch.testing.assert_close(decompositions()[flash](query, key, value)[0], expected)


def test_a_query_that_attends_to_nothing_gets_zeros() -> None:
    found, _ = decompositions()[flash](*arguments(), attn_mask=torch.zeros(5, 7, dtype=torch.bool))
    assert torch.equal(found, torch.zeros_like(found))


def test_attention_is_captured_as_products_and_softmax() -> None:
    module = make_fx(lambda *args: flash(*args)[0], decomposition_table=decompositions())(*arguments())
    called = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert called.count("aten.bmm.default") == 2
    assert called.count("aten._softmax.default") == 1
    assert not any("attention" in name for name in called)


@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (-1, -2)])
@pytest.mark.parametrize("offset", [-3, -1, 0, 2])
def test_diagonal_scatter_in_every_direction(dims: tuple[int, int], offset: int) -> None:
    x = torch.randn(3, 4, 2)
    source = torch.randn(torch.diagonal(x, offset, *dims).shape)
    got = DECOMPOSITIONS[aten.diagonal_scatter.default](x, source, offset, *dims)
    assert torch.equal(got, torch.diagonal_scatter(x, source, offset, *dims))
