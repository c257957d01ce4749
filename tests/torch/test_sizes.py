"""Kernels for all sizes of a graph."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import metaschedule as ms
from metaschedule.torch.backend import EVERY, Specialised
from metaschedule.torch.explain import tune
from metaschedule.torch.resize import arguments_of_sizes
from metaschedule.torch.sizes import size_class


def compile_dynamic(model: torch.nn.Module) -> object:
    torch._dynamo.reset()
    return torch.compile(model, backend="metaschedule", dynamic=True, options={"strict": True})


def graphs_of(model: torch.nn.Module) -> list[Specialised]:
    own = {id(p) for p in model.parameters()}
    return [
        one
        for one in list(EVERY)
        if isinstance(one, Specialised) and one.weights and own & set(map(id, one.weights.tensors))
    ]


def builds(model: torch.nn.Module) -> int:
    """Kernels that were compiled for a model."""
    return sum(family.builds for graph in graphs_of(model) for family in graph.families.values())


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(32, 96)
        self.norm = torch.nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        return x + (scores @ v).transpose(1, 2).reshape(x.shape) + x.mean(1, keepdim=True)


def test_lengths_share_kernels_and_agree_with_eager() -> None:
    torch.manual_seed(0)
    model = Attention().eval()
    run = compile_dynamic(model)
    compiled = []
    with torch.no_grad():
        for n in (50, 61, 77, 100, 99, 113, 127):
            x = torch.randn(1, n, 32)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)  # pyright: ignore
            compiled.append(builds(model))
    assert compiled[-1] == compiled[2] > 0  # another variant or two may come with the second and third size


def test_a_linear_layer_of_unknown_batch_without_recompilation() -> None:
    model = torch.nn.Linear(784, 128).eval()
    run = compile_dynamic(model)
    compiled = []
    with torch.no_grad():
        for n in (100, 33, 128, 64, 97, 101):
            x = torch.randn(n, 784)
            torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)  # pyright: ignore
            compiled.append(builds(model))
    assert compiled == [compiled[0]] * 6


def test_more_shapes_than_are_kept_do_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Specialised.__module__], "MOST_SHAPES", 3)
    model = torch.nn.Linear(8, 8).eval()
    run = compile_dynamic(model)
    with torch.no_grad():
        for n in (20, 21, 22, 23, 24, 20, 21, 25):
            x = torch.randn(n, 8)
            torch.testing.assert_close(run(x), model(x))  # pyright: ignore
    (graph,) = graphs_of(model)
    assert len(graph.known) <= 3
    assert all(found.runner is not None for found in graph.known.values())


def test_changed_weights_are_noticed_in_every_size() -> None:
    model = torch.nn.Linear(16, 16).eval()
    run = compile_dynamic(model)
    with torch.no_grad():
        for _ in range(2):
            for n in (20, 30, 40):
                x = torch.randn(n, 16)
                torch.testing.assert_close(run(x), model(x))  # pyright: ignore
            model.weight.add_(1.0)


def test_a_marked_dimension_is_one_graph() -> None:
    model = torch.nn.Linear(16, 16).eval()
    torch._dynamo.reset()
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    with torch.no_grad():
        for n in (20, 30, 40, 41):
            x = torch.randn(n, 16)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(run(x), model(x))
    assert len(graphs_of(model)) == 1


def test_sizes_in_classes() -> None:
    assert len({size_class(n) for n in range(1, 513)}) == 4


def test_sizes_between_take_the_record_of_the_largest(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(48, 40), torch.nn.ReLU()).eval()
    file = tmp_path / "records.db"
    x = torch.randn(3, 48)
    results = tune(model, (x,), database=file, sizes={"batch": [1, 16]}, trials=8, show=False)
    assert sorted(result.program.inputs[-2].shape[0] for result in results) == [1, 16]
    with ms.database.open(file) as db:  # whichever was faster in the model
        best = {r.workload: r.uid for r in (result.best for result in results) if r}
        db.choose([replace(c, how="record", record=best[c.workload]) for c in db.choices()])
    torch._dynamo.reset()
    options: Any = {"strict": True, "database": file}
    run = torch.compile(model, backend="metaschedule", dynamic=True, options=options)
    with torch.no_grad():
        x = torch.randn(11, 48)
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    (graph,) = graphs_of(model)
    (family,) = graph.families.values()
    assert family.members is not None
    assert [member and member.latency is not None for member in family.members] == [True]


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"words": [1]}, "not of 'words'"),
        ({"seq": []}, "must be positive integers"),
        ({"batch": [0]}, "must be positive integers"),
        ({7: [1]}, "no argument has a dimension 7"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(sizes: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(arguments_of_sizes((torch.ones(2, 3),), None, sizes))


def test_arguments_of_an_image_and_its_mask() -> None:
    image, mask = torch.randn(1, 3, 8, 8), torch.ones(1, 8, 8, dtype=torch.bool)
    found = [
        [t.shape for t in args] for args, _ in arguments_of_sizes((image, mask), None, {"image": [4, 12]})
    ]
    assert found == [[(1, 3, 4, 4), (1, 4, 4)], [(1, 3, 12, 12), (1, 12, 12)]]
