"""The models of the comparisons, small, through `torch.compile`: what eager gives, and all of it ours."""

from __future__ import annotations

import logging
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
models: Any = pytest.importorskip("metaschedule.report.models")

import metaschedule.torch  # noqa: E402, F401  (makes the backend known)

QUICK = (*models.PAPER, "bert_large", "dcgan", "lstm", "convnext", "mixer", "shufflenet", "recommender")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in models.names()]
)
def test_agrees_with_eager_and_nothing_falls_back(name: str, caplog: pytest.LogCaptureFixture) -> None:
    if name in models.TRANSFORMERS:
        pytest.importorskip("transformers")
    model, args = models.create(name, small=True)
    with torch.inference_mode(), caplog.at_level(logging.WARNING, logger="metaschedule"):
        wanted = model(*args)
        got = torch.compile(model, backend="metaschedule")(*args)
    assert not caplog.messages
    wanted, got = (y if isinstance(y, tuple) else (y,) for y in (wanted, got))
    for y, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(y, want, rtol=1e-3, atol=1e-4 * want.abs().max().item())
