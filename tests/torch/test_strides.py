"""What is returned has the strides that were traced, and shares memory as in eager."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402

nn = torch.nn
IMAGE = (2, 3, 5, 4)


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def compiled(model: Any) -> Any:
    return torch.compile(model, backend="metaschedule", options={"strict": True})


def last(*shape: int) -> Any:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def leaves(result: Any) -> list[Any]:
    return [t for t in (result if isinstance(result, tuple) else (result,)) if isinstance(t, torch.Tensor)]


def check(model: Any, *args: Any) -> None:
    want, found = model(*args), compiled(model)(*args)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    assert [t.stride() for t in leaves(found)] == [t.stride() for t in leaves(want)]


MODELS = {
    "a transposed product": (lambda x: (x.t() * 2, (x.t() * 2).stride()), (torch.randn(4, 3),)),
    "a permuted sum": (lambda x: x.permute(2, 0, 1) + 1, (torch.randn(2, 3, 4),)),
    "with extents of one": (lambda x: x.permute(2, 0, 1) * 2, (torch.randn(1, 3, 4),)),
    "a view of it": (lambda x: (x.t() * 2).t().view(-1), (torch.randn(4, 3),)),
    "both": (lambda x: (x.t() * 2, x.t() * 2 + 1, x * 3), (torch.randn(4, 3),)),
    "read again": (lambda x: ((y := x.t() * 2), y.sum(0), y.relu()), (torch.randn(4, 3),)),
    "reshaped": (lambda x: x.reshape(-1), (torch.randn(4, 3).t(),)),
    "flattened": (lambda x: x.flatten(1), (last(*IMAGE),)),
    "reshaped and more": (lambda x: (x.reshape(-1), x.reshape(2, 6) + 1, x), (torch.randn(4, 3).t(),)),
    "contiguous": (lambda x: x.contiguous(), (torch.randn(4, 3).t(),)),
    "cloned": (lambda x: x.clone(), (torch.randn(4, 3).t(),)),
    "channels last": (lambda x: torch.relu(x), (last(*IMAGE),)),
    "channels last, pooled": (lambda x: nn.functional.max_pool2d(x, 2), (last(*IMAGE),)),
    "made channels last": (lambda x: (x * 2).to(memory_format=torch.channels_last), (torch.randn(IMAGE),)),
    "expanded": (lambda x: (x * 2).expand(3, 4), (torch.randn(1, 4),)),
    "every other": (lambda x: (x * 2)[:, ::2], (torch.randn(3, 8),)),
    "zeros like": (lambda x: torch.zeros_like(x) + x, (torch.randn(4, 3).t(),)),
    "a product of both": (lambda x, y: x * y, (torch.randn(4, 3).t(), torch.randn(3, 4))),
    "the same twice": (lambda x: ((y := x.t() * 2), y), (torch.randn(4, 3),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_strides(name: str) -> None:
    model, args = MODELS[name]
    check(model, *args)


@pytest.mark.parametrize("weights", ["contiguous", "channels last"])
def test_a_convolution_keeps_channels_last(weights: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()).eval()
    if weights == "channels last":
        model = model.to(memory_format=torch.channels_last)
    check(model, last(*IMAGE))
    check(model, torch.randn(IMAGE))


def test_after_a_graph_break() -> None:
    def model(x: Any) -> Any:
        y = x.t() * 2
        torch._dynamo.graph_break()
        return y.t().view(-1) + 1

    check(model, torch.randn(4, 3))


def test_what_is_returned_is_its_own() -> None:
    for model in (lambda x: x.reshape(-1), lambda x: x.contiguous(), lambda x: x.clone()):
        x = torch.randn(4, 3).t()
        found = compiled(model)(x)
        before = x.clone()
        found.zero_()
        torch.testing.assert_close(x, before)


def test_views_of_what_is_given_share_its_memory() -> None:
    x = torch.randn(4, 3)
    view, flat = compiled(lambda x: (x.t(), x.view(-1)))(x)
    x.zero_()
    assert not view.any()
    assert not flat.any()


def test_an_exported_model_too(tmp_path: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.t() * 2, x.reshape(-1), x.t()

    for x in (torch.randn(4, 3), torch.randn(4, 3).t()):
        model = ms.torch.compile(torch.export.export(Model(), (x,)))
        model.save(tmp_path / "model.ms")
        for run in (model, ms.torch.load(tmp_path / "model.ms")):
            want, found = Model()(x), run(x)
            torch.testing.assert_close(found, want)
            assert [t.stride() for t in found] == [t.stride() for t in want]
