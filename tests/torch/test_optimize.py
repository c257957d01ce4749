"""`ms.torch.optimize`: calls without Dynamo, right whatever is done to the model or given to it."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn.modules.module import register_module_forward_hook  # noqa: E402

import metaschedule as ms  # noqa: E402
from metaschedule.torch import module_state  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.fixture(params=["native", "compared"])
def counted(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "compared":
        monkeypatch.setattr(module_state, "is_change_counted", lambda: False)


class Settings:
    def __init__(self) -> None:
        self.factor, self.by_name = 1.0, {"shift": 0.0}


class Net(nn.Module):
    power = 1

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Dropout(0.5)
        self.offset = torch.ones(16)
        self.scale = 2.0
        self.settings, self.numbers, self.tensors = Settings(), [1.0, (2.0,)], [torch.ones(16)]

    def forward(self, x: Any, bias: Any = None) -> Any:
        y = self.drop(torch.relu(self.norm(self.first(x)))) * self.scale + self.offset
        y = y**self.power * self.settings.factor + self.settings.by_name["shift"]
        y = y * self.numbers[0] * self.tensors[0]
        return y if bias is None else {"sum": y + bias, "parts": (y, bias)}


def make() -> tuple[Any, Any, Any]:
    model, x = Net().eval(), torch.randn(3, 12)
    return model, x, ms.torch.optimize(model, (x,), strict=True)


def agrees(model: Any, run: Any, *args: Any, **kwargs: Any) -> bool:
    with torch.no_grad():
        torch.testing.assert_close(run(*args, **kwargs), model(*args, **kwargs), rtol=1e-4, atol=1e-5)
    return not run.handed_over


def test_dictionaries_count_their_changes() -> None:
    assert module_state.is_change_counted()


def test_calls_like_the_example_need_no_dynamo() -> None:
    model, x, run = make()
    assert all(agrees(model, run, torch.randn(3, 12)) for _ in range(3))
    assert not run(x).requires_grad


def test_convolutions_are_traced_once() -> None:
    """Tracing sets their strides and paddings anew, to what they were."""
    model, x = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU()).eval(), torch.randn(1, 2, 6, 6)
    run = ms.torch.optimize(model, (x,), strict=True)
    for _ in range(2):
        agrees(model, run, x)
    assert (run.changes, run.handed_over.total()) == (0, 0)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_layers_keep_lists_of_their_weights(kind: Any) -> None:
    """Their lists are made anew of what stands for the weights while they are traced."""
    model, x = kind(4, 6, bidirectional=True).eval(), torch.randn(3, 1, 4)
    run = ms.torch.optimize(model, (x,), strict=True)
    for _ in range(2):
        assert agrees(model, run, x)
    assert run.changes == 0
    model.weight_hh_l0 = nn.Parameter(torch.randn_like(model.weight_hh_l0))
    assert agrees(model, run, x)
    assert run.changes == 1


def test_keywords_and_trees() -> None:
    model, x, bias = Net().eval(), torch.randn(3, 12), torch.randn(16)
    run = ms.torch.optimize(model, (), {"x": x, "bias": bias}, strict=True)
    assert agrees(model, run, bias=bias, x=x)
    assert set(run(x=x, bias=bias)) == {"sum", "parts"}


def replace_weight(model: Any) -> None:
    model.first.weight = nn.Parameter(torch.randn(16, 12))


def write_in_place(model: Any) -> None:
    with torch.no_grad():
        model.first.bias.add_(1)


def replace_module(model: Any) -> None:
    model.first = nn.Linear(12, 16)


def hook(model: Any) -> None:
    model.first.register_forward_hook(lambda module, args, out: out * 3)


def load(model: Any) -> None:
    model.load_state_dict({k: v + 0.5 for k, v in model.state_dict().items()})


def set_number(model: Any) -> None:
    model.scale = 3.0


def write_attribute(model: Any) -> None:
    model.offset.mul_(5)


def replace_buffer(model: Any) -> None:
    model.norm.running_mean = torch.randn(16)


def change_settings(model: Any) -> None:
    model.settings.factor = 3.0


def change_dictionary(model: Any) -> None:
    model.settings.by_name["shift"] = 3.0


def change_list(model: Any) -> None:
    model.numbers[0] = 3.0


def write_into_list(model: Any) -> None:
    model.tensors[0].mul_(3)


def change_class(model: Any) -> None:
    type(model).power = 2


CHANGES = [
    change_settings,
    change_dictionary,
    change_list,
    write_into_list,
    change_class,
    replace_weight,
    write_in_place,
    replace_module,
    hook,
    load,
    set_number,
    write_attribute,
    replace_buffer,
]


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("change", CHANGES)
def test_changes_show_at_the_next_call(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Net, "power", 1)
    model, x, run = make()
    before = run(x)
    change(model)
    assert agrees(model, run, x)
    assert not torch.equal(run(x), before)


def test_an_attribute_set_to_what_it_was_traces_nothing() -> None:
    model, x, run = make()
    traced = run.traced
    model.scale = 2.0
    assert agrees(model, run, x)
    assert run.traced is traced


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.randn(7, 12),
        lambda: torch.randn(12, 3).t(),
        lambda: torch.randn(0, 12),
    ],
)
def test_other_arguments_go_through_torch_compile(other: Any) -> None:
    model, x, run = make()
    assert not agrees(model, run, other())
    assert agrees(model, run, x) is False  # counted, and the example's shape is as before
    assert sum(run.handed_over.values()) == 1


@pytest.mark.falls_back
def test_gradients_of_inputs_are_eagers() -> None:
    model, x, run = make()
    x.requires_grad_()
    run(x).sum().backward()
    expected = torch.autograd.grad(model(x).sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)


def test_training_and_autocast_are_left_to_torch(caplog: Any) -> None:
    model, x, run = make()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert run(x).dtype == model(x).dtype
    assert run.handed_over
    model.train()
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        run(x)
    assert "training mode" in caplog.text
    assert model.norm.num_batches_tracked == 1


class Counts(nn.Module):
    def __init__(self, change: Any) -> None:
        super().__init__()
        self.linear, self.change = nn.Linear(12, 4), change
        self.calls, self.seen, self.hidden = 0, [], torch.zeros(3, 4)

    def forward(self, x: Any) -> Any:
        self.change(self, self.linear(x))
        return self.linear(x) * (self.calls + 1) + self.hidden


def count(model: Any, y: Any) -> None:
    model.calls += 1


def append(model: Any, y: Any) -> None:
    model.seen.append(y)


def remember(model: Any, y: Any) -> None:
    model.hidden = model.hidden + y


@pytest.mark.falls_back
@pytest.mark.parametrize("change", [count, append, remember])
def test_what_a_model_changes_of_itself_is_changed(change: Any) -> None:
    model, x = Counts(change).eval(), torch.randn(3, 12)
    other = copy.deepcopy(model)
    run = ms.torch.optimize(model, (x,))
    assert (model.calls, model.seen) == (0, [])
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), other(x))
    assert (model.calls, len(model.seen)) == (other.calls, len(other.seen))
    torch.testing.assert_close(model.hidden, other.hidden)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of jit
def test_transformed_and_traced_calls_are_the_models_own() -> None:
    model, x, run = make()
    xs = torch.randn(5, 3, 12)
    with torch.no_grad():
        torch.testing.assert_close(torch.vmap(run)(xs), torch.vmap(model)(xs))
        traced = make_fx(lambda x: run(x))(x)
        torch.testing.assert_close(traced(2 * x), model(2 * x))
        outer = torch.compile(lambda x: run(x) + 1, backend="eager", fullgraph=True)
        torch.testing.assert_close(outer(x), model(x) + 1)
    torch.testing.assert_close(torch.func.jvp(run, (x,), (x,)), torch.func.jvp(model, (x,), (x,)))
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(x, x)
        torch.testing.assert_close(forward_ad.unpack_dual(run(dual)), forward_ad.unpack_dual(model(dual)))
    linear = nn.Linear(12, 4).eval().requires_grad_(False)
    run = ms.torch.optimize(linear, (x,), strict=True)
    torch.testing.assert_close(torch.jit.trace(run.__call__, (x,))(2 * x), linear(2 * x))


def test_hooks_of_all_modules_are_called() -> None:
    model, x, run = make()
    handle = register_module_forward_hook(lambda module, args, out: out + 1)
    try:
        torch.testing.assert_close(run(x), model(x))
    finally:
        handle.remove()
    assert torch.equal(run(x), ms.torch.optimize(model, (x,))(x))


def test_tensors_of_the_default_dtype() -> None:
    class Zeros(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.zeros(3), x * 2

    run, x = ms.torch.optimize(Zeros().eval(), (torch.ones(3),), strict=True), torch.ones(3)
    assert run(x)[0].dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert run(x)[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_assertion_of_an_exported_model_is_kept() -> None:
    class Positive(nn.Module):
        def forward(self, x: Any) -> Any:
            torch._assert_async(x.sum() > 0)
            return x * 2

    model, x = Positive().eval(), torch.ones(3)
    for run in (ms.torch.optimize(model, (x,)), ms.torch.compile(torch.export.export(model, (x,)))):
        torch.testing.assert_close(run(x), x * 2)
        with pytest.raises(RuntimeError, match="nonzero"):
            run(-x)


@pytest.mark.parametrize("number", [4, -1])
def test_a_class_out_of_range_raises_as_in_eager(number: int) -> None:
    class Classes(nn.Module):
        def forward(self, classes: Any) -> Any:
            return nn.functional.one_hot(classes, 4)

    model, fine, wrong = Classes().eval(), torch.tensor([0, 3]), torch.tensor([1, number])
    for run in (ms.torch.optimize(model, (fine,)), ms.torch.compile(torch.export.export(model, (fine,)))):
        assert torch.equal(run(fine), model(fine))
        with pytest.raises(RuntimeError, match="Class values must be"):
            run(wrong)


def test_two_of_one_model_leave_each_other_alone() -> None:
    """Exporting puts copies of lists in their places."""
    model, xs = nn.Conv2d(2, 4, 3, padding=1).eval(), [torch.randn(n, 2, 6, 6) for n in (1, 2)]
    runs = [ms.torch.optimize(model, (x,), strict=True) for x in xs]
    for _ in range(3):
        for run, x in zip(runs, xs):
            traced = run.traced
            assert agrees(model, run, x)
            assert run.traced is traced


def test_it_is_neither_copied_nor_pickled() -> None:
    _, _, run = make()
    for take in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="optimize a copy"):
            take(run)


@pytest.mark.falls_back
def test_a_model_that_cannot_be_exported_is_no_fault(caplog: Any) -> None:
    class Branches(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.sum() > 0 else x - 1

    run = ms.torch.optimize(Branches().eval(), (torch.ones(3),))
    assert "torch.export cannot trace the model" in caplog.text
    assert "should not happen" not in caplog.text
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(run(x), run.model(x))


def test_refresh_reads_everything_again() -> None:
    model, x, run = make()
    run(x)
    model.first.weight.data[5, 7] += 1
    ms.torch.refresh(model)
    assert agrees(model, run, x)


def test_threads_call_one_model() -> None:
    model, x, run = make()
    with torch.no_grad():
        xs = [torch.randn(3, 12) for _ in range(8)]
        expected = [model(one) for one in xs]
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(50):
            if not torch.allclose(run(xs[n]), expected[n], rtol=1e-4, atol=1e-5):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_index_out_of_range_raises_as_in_eager() -> None:
    model = nn.Embedding(5, 4).eval()
    run = ms.torch.optimize(model, (torch.tensor([1, 2]),), strict=True)
    with pytest.raises(IndexError):
        run(torch.tensor([1, 7]))


def test_weights_of_inference_mode_need_no_other_way() -> None:
    with torch.inference_mode():
        model = Net().eval()
    x = torch.randn(3, 12)
    run = ms.torch.optimize(model, (x,), strict=True)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(run(x), model(x))
    assert not run.handed_over


def test_made_under_autocast_is_the_model_itself() -> None:
    model, x = Net().eval(), torch.randn(3, 12)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        run = ms.torch.optimize(model, (x,), strict=True)
        torch.testing.assert_close(run(x), model(x), rtol=2e-2, atol=2e-2)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="model"):
        ms.torch.optimize(3, ())  # pyright: ignore
    with pytest.raises(TypeError, match="args"):
        ms.torch.optimize(nn.Linear(2, 2), torch.ones(2))
