"""Numbers that a model counts in Python: one plan for all of them."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from metaschedule.torch.backend import EVERY, Specialised  # noqa: E402


class Seen:
    """Not an attribute of a module: Dynamo takes integers of modules for constants."""

    def __init__(self) -> None:
        self.rows = 0


class Model(torch.nn.Module):
    """Counts what it has seen; what it computes changes once."""

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.linear, self.shown = torch.nn.Linear(8, 8), shown

    def forward(self, x: Any, seen: Seen) -> Any:
        is_full = seen.rows >= 8
        seen.rows += x.shape[0]
        y = self.linear(x)
        if self.shown:
            y = y + seen.rows
        return y * 2 if is_full else y


def run_steps(shown: bool) -> int:
    """How many plans twelve calls need."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, seen, other = Model(shown).eval(), Seen(), Seen()
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    own = {id(p) for p in model.parameters()}
    with torch.no_grad():
        for n in range(12):
            x = torch.randn(1, 8)
            torch.testing.assert_close(run(x, seen), model(x, other), rtol=1e-4, atol=1e-4)
            assert seen.rows == n + 1
    every: Any = [one for one in list(EVERY) if isinstance(one, Specialised) and one.weights]
    return sum(len(one.known) for one in every if own & set(map(id, one.weights.tensors)))


def test_a_count_beside_tensors_needs_no_further_plans() -> None:
    assert run_steps(shown=False) == 3  # the first call, counting, full


def test_a_count_that_tensors_depend_on_is_right() -> None:
    run_steps(shown=True)
