"""Numbers that a model counts in Python: one plan for all of them."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from metaschedule.torch.backend import EVERY, Specialised  # noqa: E402


class Cache(torch.nn.Module):
    """Counts what it has seen; what it computes changes once, when it is full."""

    def __init__(self, shown: bool = False) -> None:
        super().__init__()
        self.linear, self.seen, self.shown = torch.nn.Linear(8, 8), 0, shown

    def forward(self, x: Any) -> Any:
        is_full = self.seen >= 8
        self.seen += x.shape[0]
        y = self.linear(x)
        if self.shown:
            y = y + self.seen
        return y * 2 if is_full else y


def run_steps(shown: bool) -> int:
    """How many plans twelve calls need."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, other = Cache(shown).eval(), Cache(shown).eval()
    other.load_state_dict(model.state_dict())
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    own = {id(p) for p in model.parameters()}
    with torch.no_grad():
        for n in range(12):
            x = torch.randn(1, 8)
            torch.testing.assert_close(run(x), other(x), rtol=1e-4, atol=1e-4)
            assert model.seen == n + 1
    every = [one for one in list(EVERY) if isinstance(one, Specialised) and one.weights is not None]
    return sum(len(one.known) for one in every if own & set(map(id, one.weights.tensors)))


def test_a_count_beside_tensors_needs_no_further_plans() -> None:
    assert run_steps(shown=False) == 3  # the first call, counting, full


def test_a_count_that_tensors_depend_on_is_right() -> None:
    run_steps(shown=True)
