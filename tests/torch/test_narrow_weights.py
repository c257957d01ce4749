"""Weights narrow in memory: of quantised models as they come, and by an option."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule.torch  # noqa: E402, F401  (makes the backend known)
from metaschedule.torch.backend import EVERY  # noqa: E402


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    EVERY.clear()
    with torch.no_grad():
        yield


def make_model() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 64, bias=False)).eval()


def run(model: Any, x: Any, **options: Any) -> tuple[Any, set[Any]]:
    """What a model gives, and the dtypes of its large constants."""
    found = torch.compile(model, backend="metaschedule", dynamic=False, options={"strict": True, **options})(
        x
    )
    plans = [one.runner.plan for each in EVERY for one in each.known.values()]  # pyright: ignore
    return found, {t.dtype for plan in plans for t in plan.constants if t.numel() > 1000}


def error(found: Any, expected: Any) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("weights", "dtype", "most"),
    [("int8", "int8", 0.01), ("int8:32", "int8", 0.01), ("bfloat16", "bfloat16", 0.005)],
)
@pytest.mark.parametrize("rows", [1, 40])
def test_weights_are_narrow_by_an_option(weights: str, dtype: str, most: float, rows: int) -> None:
    model, x = make_model(), torch.randn(rows, 128)
    found, dtypes = run(model, x, weights=weights)
    assert dtypes == {getattr(torch, dtype)}
    assert 1e-5 < error(found, model(x)) < most


def test_groups_that_do_not_divide_stay_wide() -> None:
    model, x = make_model(), torch.randn(1, 128)
    found, dtypes = run(model, x, weights="int8:64")  # 128 terms, then 96
    assert dtypes == {torch.int8, torch.float32}
    assert error(found, model(x)) < 0.01


@pytest.mark.parametrize("weights", ["int4", "int8:x", "int8:4", "float16", ""])
def test_other_weights_are_refused(weights: str) -> None:
    with pytest.raises(Exception, match="weights are 'int8'"):
        run(make_model(), torch.randn(1, 128), weights=weights)


class Quantised(torch.nn.Module):
    """A layer as libraries write it: numbers with an offset, in groups."""

    def __init__(self, terms: int, columns: int, group: int) -> None:
        super().__init__()
        self.register_buffer("number", torch.randint(-7, 8, (columns, terms // group, group)).to(torch.int8))
        self.register_buffer("zero", torch.randint(-2, 2, (columns, terms // group, 1)).to(torch.int8))
        self.register_buffer("scale", torch.rand(columns, terms // group, 1) + 0.5)

    def forward(self, x: Any) -> Any:
        weight = (self.number.float() - self.zero.float()) * self.scale
        return x @ weight.reshape(len(self.number), -1).T


@pytest.mark.parametrize("group", [16, 32, 128])
def test_numbers_of_a_model_stay_narrow(group: int) -> None:
    model, x = Quantised(128, 64, group), torch.randn(3, 128)
    found, dtypes = run(model, x)
    assert dtypes == {torch.int8}
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)


def test_many_rows_are_multiplied_wide() -> None:
    model, x = Quantised(128, 64, 32), torch.randn(256, 128)
    found, dtypes = run(model, x)
    assert dtypes == {torch.float32}
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-4)


def test_models_of_torchao_keep_their_bytes() -> None:
    torchao: Any = pytest.importorskip("torchao.quantization")
    model, x = make_model(), torch.randn(1, 128)
    whole, groups = copy.deepcopy(model), copy.deepcopy(model)
    torchao.quantize_(whole, torchao.Int8WeightOnlyConfig())
    config = torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=torchao.PerGroup(32))
    torchao.quantize_(groups, config)
    for one in (whole, groups):
        EVERY.clear()
        found, dtypes = run(one, x)
        assert dtypes == {torch.int8}
        torch.testing.assert_close(found, one(x), rtol=1e-4, atol=1e-4)
