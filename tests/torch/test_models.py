"""The models of the comparisons are what they are called, and give values worth comparing."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
models: Any = pytest.importorskip("metaschedule.report.models")

SHAPES = {
    "resnet50": [(1, 10)],
    "mobilenet_v2": [(1, 10)],
    "googlenet": [(1, 10)],
    "bert": [(1, 11, 24), (1, 24)],
    "bert_large": [(1, 11, 24), (1, 24)],
    "gpt2": [(1, 11, 24)],
    "dcgan": [(1, 3, 64, 64)],
    "lstm": [(1, 5, 9)],
    "convnext": [(1, 8, 9, 9)],
    "mixer": [(1, 10)],
    "mobilenet_v3": [(1, 10)],
    "efficientnet": [(1, 10)],
    "shufflenet": [(1, 10)],
    "ghostnet": [(1, 10)],
    "squeezenet": [(1, 10)],
    "densenet": [(1, 10)],
    "unet": [(1, 4, 16, 16)],
    "detector": [(1, 21, 7)],
    "diffusion": [(1, 16, 4, 4)],
    "gru_steps": [(1, 5)],
    "tagger": [(1, 4, 5)],
    "stacked_gru": [(1, 6)],
    "speech": [(1, 4, 7)],
    "keywords": [(1, 7)],
    "forecast": [(1, 12)],
    "nbeats": [(1, 4)],
    "recommender": [(1, 1)],
    "bert_small": [(1, 11, 24), (1, 24)],
    "llama": [(1, 11, 24)],
    "vit": [(1, 17, 24)],
    "swin": [(1, 64, 12)],
}


@pytest.fixture(params=models.names())
def name(request: pytest.FixtureRequest) -> str:
    if request.param in models.TRANSFORMERS:
        pytest.importorskip("transformers")
    return request.param


def results(model: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    with torch.inference_mode():
        out = model(*args)
    return out if isinstance(out, tuple) else (out,)


def test_small_models_give_finite_values_that_differ(name: str) -> None:
    outputs = results(*models.create(name, small=True))
    assert [tuple(y.shape) for y in outputs] == SHAPES[name]
    for y in outputs:
        assert y.isfinite().all()
        assert y.numel() == 1 or 0.005 < y.std() < 100


def test_the_same_at_every_call(name: str) -> None:
    (first, args), (second, again) = models.create(name, small=True), models.create(name, small=True)
    assert torch.equal(args[0], again[0])
    states = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in states)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet50", 25_557_032),
        ("mobilenet_v2", 3_504_872),
        ("googlenet", 6_624_904),
        ("bert", 109_482_240),
        ("bert_large", 335_141_888),
        ("gpt2", 124_439_808),
    ],
)
def test_parameters_of_the_full_models(name: str, count: int) -> None:
    if name in models.TRANSFORMERS:
        pytest.importorskip("transformers")
    with torch.device("meta"):
        model = models.MODELS[name].make()
    assert sum(p.numel() for p in model.parameters()) == count


def test_unknown_name() -> None:
    with pytest.raises(ValueError, match="no model 'vgg': one of resnet50, "):
        models.create("vgg")
