"""Random functions of views, writes in place and computations give what eager gives, with the same memory."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
random_graphs: Any = pytest.importorskip("tests.torch.random_graphs")


def check(seed: int) -> None:
    function = random_graphs.Maker(seed).make()
    with torch.no_grad():
        why = random_graphs.why_different(function, random_graphs.compiled(function))
    assert not why, f"{function}\n{why}"


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_eager(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(10))
def test_many_agree_with_eager(hundred: int) -> None:
    for seed in range(100 * hundred + 1000, 100 * hundred + 1100):
        check(seed)
