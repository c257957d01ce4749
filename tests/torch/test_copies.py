"""Who looks at a model leaves no trace: explain, profile, tune."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402

nn = torch.nn
LOOKS = {
    "explain": lambda model, x: ms.torch.explain(model, (x,)),
    "profile": lambda model, x: ms.torch.profile(model, (x,), calls=2),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_model_in_training_is_left_as_it_was(look: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    before, x = copy.deepcopy(model.state_dict()), torch.randn(3, 4)
    state, given = torch.get_rng_state(), x.clone()
    LOOKS[look](model, x)
    torch.testing.assert_close(dict(model.state_dict()), dict(before))
    torch.testing.assert_close(x, given)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


@pytest.mark.parametrize("look", LOOKS)
def test_a_function_that_writes_is_given_copies(look: str) -> None:
    norm, x = nn.BatchNorm1d(4), torch.zeros(3, 4)

    def model(x: Any) -> Any:
        x.add_(1)
        return norm(x)

    LOOKS[look](model, x)
    assert not x.any()
    assert norm.num_batches_tracked == 0


def test_a_model_without_kernels_has_nothing_to_tune() -> None:
    assert ms.torch.tune(lambda x: x.view(-1), (torch.randn(3),), database=None, trials=4) == []
