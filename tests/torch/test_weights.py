"""A weight that is not what was compiled is noticed at the next call, however it was changed."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.torch import weights  # noqa: E402
from metaschedule.torch.backend import EVERY, Specialised  # noqa: E402
from metaschedule.torch.weights import Weights  # noqa: E402

nn = torch.nn
SIZE = 48


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


@pytest.fixture(params=["native", "asked"])
def layout(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asked":
        monkeypatch.setattr(weights, "is_layout_known", lambda: False)


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="metaschedule", options={"strict": True})


def test_torchs_objects_are_laid_out_as_expected() -> None:
    assert weights.is_layout_known()


def replace(model: Any) -> None:
    model.weight = nn.Parameter(torch.randn(SIZE, SIZE))


def write_with_numpy(model: Any) -> None:
    model.weight.detach().numpy()[:] *= 2


def write_with_dlpack(model: Any) -> None:
    torch.from_dlpack(model.weight.detach()).mul_(2)


def swap_data(model: Any) -> None:
    model.weight.data = torch.randn(SIZE, SIZE)


def transpose_data(model: Any) -> None:
    model.weight.data = model.weight.data.t()


def move_storage(model: Any) -> None:
    storage = model.weight.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    storage.resize_(size)
    model.weight.data.normal_()


CHANGES: list[Callable[[Any], Any]] = [
    replace,
    write_with_numpy,
    write_with_dlpack,
    swap_data,
    transpose_data,
    move_storage,
    lambda model: model.weight.mul_(2),
    lambda model: model.weight[17, 23].fill_(5),
    lambda model: model.weight.data.mul_(2),
    lambda model: model.weight.data.copy_(torch.randn(SIZE, SIZE)),
    lambda model: model.load_state_dict(nn.Linear(SIZE, SIZE).state_dict()),
    lambda model: nn.init.zeros_(model.bias),
]


@pytest.mark.usefixtures("layout")
def test_changes_are_noticed() -> None:
    for change in CHANGES:
        model = nn.Linear(SIZE, SIZE)
        args = [None, model.weight, model.bias]
        known = Weights(args, [1, 2])
        assert known.are_same(args)
        assert known.find_changed(args) == []
        change(model)
        after = [None, model.weight, model.bias]
        assert not known.are_same(after), change
        assert known.find_changed(after)


def test_what_is_no_change() -> None:
    model = nn.Linear(SIZE, SIZE)
    args = [model.weight]
    known = Weights(args, [0])
    model.weight.grad = torch.ones(SIZE, SIZE)
    model.weight.requires_grad_(False)
    views = [model.weight.t(), model.weight.detach(), model.weight + 1]
    assert known.find_changed(args) == []
    del views


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(0),
        lambda: torch.tensor(3.0),
        lambda: torch.randn(3, dtype=torch.bfloat16),
        lambda: torch.randint(0, 9, (5,), dtype=torch.uint8),
        lambda: torch.randn(300, 7).t(),
        lambda: torch.randn(50, 50)[:, 3],
        lambda: torch.randn(1, 40).expand(30, 40),
        lambda: torch.randn(100, 100)[10:20, 10:20],
    ],
)
def test_weights_of_all_shapes(make: Any) -> None:
    tensor = make()
    known = Weights([tensor], [0])
    assert known.are_same([tensor])
    if tensor.numel() and 0 not in tensor.stride():
        torch.from_dlpack(tensor).add_(1)
        assert not known.are_same([tensor])
        assert known.find_changed([tensor]) == [0]


def test_a_model_whose_weights_change() -> None:
    model = nn.Linear(SIZE, SIZE).eval()
    run, x = compiled(model), torch.randn(3, SIZE)
    for change in [lambda model: None, *CHANGES[:6]]:
        change(model)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_weight_replaced_at_the_same_address() -> None:
    model = nn.Linear(SIZE, SIZE).eval()
    run, x = compiled(model), torch.randn(3, SIZE)
    for _ in range(6):
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        model.weight = None
        gc.collect()
        model.weight = nn.Parameter(torch.randn(SIZE, SIZE))


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adagrad", "Adam"])
def test_fused_optimizers(name: str) -> None:
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, 1))
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, fused=True)
    run, x = compiled(model), torch.randn(3, SIZE)
    for _ in range(3):
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        with torch.enable_grad():
            model(x).square().sum().backward()
        optimizer.step()


def test_weights_made_in_inference_mode_are_constants() -> None:
    with torch.inference_mode():
        model = nn.Linear(SIZE, SIZE).eval()
        run, x = compiled(model), torch.randn(3, SIZE)
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
            model.weight.mul_(1.5)
        found = [one for one in EVERY if one.weights and any(model.weight is t for t in one.weights.tensors)]
        assert [len(one.places) for one in found if isinstance(one, Specialised)] == [2]


def test_weights_that_keep_changing_become_inputs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model = nn.Linear(8, 8, bias=False).eval()
    run, x = compiled(model), torch.randn(3, 8)
    for _ in range(12):
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
        model.weight.data.mul_(1.1)
    assert caplog.text.count("weights keep changing") == 1


def test_refresh_reads_what_no_sample_shows() -> None:
    model = nn.Linear(SIZE, SIZE).eval()
    run, x = compiled(model), torch.randn(3, SIZE)
    run(x)
    for what in (model, None):
        model.weight.data[17, 23] += 1
        ms.torch.refresh(what)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
