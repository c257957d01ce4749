"""Layers of transformers that torch computes by one operator are ours, operator by operator."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402

STRICT = {"strict": True}


def assert_same(model: Any, *args: Any, **kwargs: Any) -> None:
    """Under torch.compile as in eager, and nothing in eager."""
    with torch.no_grad():
        expected = model(*args, **kwargs)
        found = torch.compile(model, backend="metaschedule", options=STRICT)(*args, **kwargs)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        explained = ms.torch.explain(model, args, kwargs)
    assert "_transformer_encoder" not in str(explained)
    assert "_native_multi_head" not in str(explained)


def padding(batch: int, length: int) -> Any:
    return torch.arange(length) >= torch.tensor([length, *[length - 2] * (batch - 1)])[:, None]


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masks", ["none", "causal", "padding", "both"])
def test_encoder_layers(norm_first: bool, masks: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 24, activation="gelu" if norm_first else "relu", batch_first=True, norm_first=norm_first
    ).eval()
    model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    given: dict[str, Any] = {}
    if masks in ("causal", "both"):
        given["mask"] = torch.ones(7, 7, dtype=torch.bool).triu(1)
        given["is_causal"] = True  # torch would look at the values of the mask
    if masks in ("padding", "both"):
        given["src_key_padding_mask"] = padding(3, 7)
    assert_same(model, torch.randn(3, 7, 16), **given)


class SelfAttention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        self.options = options

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x, **self.options)


@pytest.mark.parametrize(
    "options",
    [{}, {"need_weights": False}, {"average_attn_weights": False}, {"key_padding_mask": padding(2, 5)}],
    ids=["plain", "without weights", "by head", "padding"],
)
def test_attention_with_itself(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    assert_same(SelfAttention(**options).eval(), torch.randn(2, 5, 16))


def test_operators_alone() -> None:
    """Keys of their own, and queries for which every key is left out."""
    from metaschedule.torch.fused_layers import attention, masked_softmax

    aten, scores = torch.ops.aten, torch.randn(2, 3, 4, 4)
    by_batch = torch.tensor([[True] * 4, [False, True, False, True]])
    by_score = torch.ones(4, 4, dtype=torch.bool).triu(1)
    for mask, kind in ((by_batch, 1), (by_score, 0), (by_score.expand(2, 3, 4, 4).contiguous(), 2)):
        torch.testing.assert_close(
            masked_softmax(scores, mask, 3, kind),
            aten._masked_softmax(scores, mask, 3, kind),
            equal_nan=True,
        )
    x, weights = torch.randn(2, 4, 12), [torch.randn(s) for s in ((36, 12), (36,), (12, 12), (12,))]
    for arguments in ((x, x, x), (x, torch.randn(2, 4, 12), torch.randn(2, 4, 12))):
        torch.testing.assert_close(
            attention(*arguments, 12, 3, *weights),
            aten._native_multi_head_attention(*arguments, 12, 3, *weights),
            rtol=1e-4,
            atol=1e-4,
        )
