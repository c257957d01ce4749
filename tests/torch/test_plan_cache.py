"""A second start finds plans, kernels and constants on disk; whatever is wrong there is made again."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.cache import Store, store  # noqa: E402
from metaschedule.torch import plan_cache  # noqa: E402
from metaschedule.torch.kernels import KNOWN  # noqa: E402
from metaschedule.torch.plan_cache import SHARED  # noqa: E402
from tests.cache.disks import mounted, read_only  # noqa: E402

backend = importlib.import_module("metaschedule.torch.backend")
nn = torch.nn


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("METASCHEDULE_CACHE", str(tmp_path / "cache"))
    with torch.no_grad():
        yield


class Model(nn.Module):
    """With a layer that is folded, one that is packed, a table that is used as it is, and a node in eager."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 32, 1), nn.BatchNorm2d(32)
        self.linear, self.table = nn.Linear(32, 48), nn.Parameter(torch.randn(300, 48))

    def forward(self, x: Any, index: Any) -> Any:
        image = torch.relu(self.norm(self.convolution(x)))
        hidden = self.linear(image.mean((2, 3))) + self.table[index]
        return hidden, torch.linalg.eigvalsh(hidden.T @ hidden)


def make_model() -> Any:
    torch.manual_seed(0)
    return Model().eval(), (torch.randn(2, 3, 9, 9), torch.tensor([3, 4]))


def start(model: Any, args: Any, **options: Any) -> Any:
    """What a new process does, as far as it matters: it knows nothing. Gives results and counts."""
    KNOWN.clear()
    SHARED.clear()
    torch._dynamo.reset()
    before = store().counts.copy()
    run = torch.compile(model, backend="metaschedule", options={"strict": True, **options})
    results = run(*args)
    return results, store().counts - before


def assert_same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.fixture
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("made again")

    for name in ("capture", "fuse_graph", "plan_calls", "aot_autograd"):
        monkeypatch.setattr(backend, name, fail)


def test_a_second_start_makes_nothing(request: pytest.FixtureRequest) -> None:
    model, args = make_model()
    wanted = model(*args)
    first, counts = start(model, args)
    assert_same(first, wanted)
    assert counts["plans missing"] == counts["plans written"] == 1
    assert counts["kernels missing"] == counts["kernels written"] > 1
    request.getfixturevalue("nothing_is_made")
    second, counts = start(model, args)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert counts["plans found"] == 1
    assert not [what for what in counts if "missing" in what or "written" in what]


def test_equal_weights_of_another_model_have_the_same_plan(request: pytest.FixtureRequest) -> None:
    model, args = make_model()
    first, _ = start(model, args)
    request.getfixturevalue("nothing_is_made")
    again, _ = make_model()
    assert all(torch.equal(a, b) for a, b in zip(first, start(again, args)[0], strict=True))


def change_weight(model: Any, args: Any) -> Any:
    model.linear.weight[3, 4] += 1
    return args


def change_norm(model: Any, args: Any) -> Any:
    model.norm.running_mean[0] += 1
    return args


def change_shape(model: Any, args: Any) -> Any:
    return torch.randn(2, 3, 11, 9), args[1]


def change_strides(model: Any, args: Any) -> Any:
    return args[0].to(memory_format=torch.channels_last), args[1]


def test_what_differs_has_another_plan() -> None:
    model, args = make_model()
    start(model, args)
    for change in (change_weight, change_norm, change_shape, change_strides):
        args = change(model, args)
        results, counts = start(model, args)
        assert counts["plans missing"] >= 1  # before and after AOTAutograd
        assert_same(results, model(*args))


def test_weights_that_change_while_a_plan_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a start in eager: the plan is of neither the old weights nor the new ones."""
    model, args = make_model()
    plan_calls = backend.plan_calls

    def change_and_plan(*given: Any) -> Any:
        model.linear.weight.add_(1)
        return plan_calls(*given)

    with monkeypatch.context() as patched:
        patched.setattr(backend, "plan_calls", change_and_plan)
        _, counts = start(model, args)
    assert not counts["plans written"]
    again, _ = make_model()
    assert_same(start(again, args)[0], again(*args))


def test_another_instruction_of_the_users_has_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled with it: what it says in one process is not what it says in the next."""
    model, args = make_model()
    start(model, args)
    for instructions in ([["twice", "fadd"]], [["twice", "fmul"]]):
        monkeypatch.setattr(plan_cache, "extensions", lambda found=instructions: found)
        _, counts = start(model, args)
        assert counts["plans missing"]
        assert not counts["plans found"]


def test_weights_that_change_after_a_second_start_are_noticed() -> None:
    model, args = make_model()
    start(model, args)
    run = torch.compile(model, backend="metaschedule", options={"strict": True})
    run(*args)
    for tensor in (model.table, model.linear.weight, model.norm.running_var):
        tensor.mul_(2)
        assert_same(run(*args), model(*args))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.table = nn.Linear(32, 48), nn.Parameter(torch.randn(300, 48))

    def forward(self, x: Any, index: Any) -> Any:
        return self.linear(x) + self.table[index]


def test_several_models_have_one_copy_of_equal_constants() -> None:
    models = [Table().eval() for _ in range(2)]
    args = (torch.randn(2, 32), torch.tensor([3, 4]))
    runs = [ms.torch.optimize(model, args, strict=True) for model in models]
    wanted = runs[0](*args)
    packed = [{t.data_ptr() for t in run.plan.constants if t.nbytes > 256} for run in runs]
    tables = [{model.table.data_ptr()} for model in models]  # used as they are: each has its own
    assert tables[0] <= packed[0]
    assert packed[0] - tables[0] == packed[1] - tables[1] != set()
    models[1].table.zero_()
    torch.testing.assert_close(runs[0](*args), wanted)
    torch.testing.assert_close(runs[1](*args), models[1](*args))


class Returning(nn.Module):
    """An input, a changed input, or a view of another result."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        if self.kind == "input":
            x.add_(1)
        return {"view": (y, y[:, 1:3]), "itself": (y, x), "input": (y,)}[self.kind]


@pytest.mark.parametrize("kind", ["view", "itself", "input"])
def test_results_are_the_same_objects_after_a_second_start(kind: str) -> None:
    model, x = Returning(kind).eval(), torch.randn(4, 8)
    for what in ("missing", "found"):
        wanted_x, given = x.clone(), x.clone()
        wanted = model(wanted_x)
        results, counts = start(model, (given,))
        assert_same(results, wanted)
        assert_same([given], [wanted_x])
        assert counts[f"plans {what}"] == 1
        assert not (kind == "input" and counts["graphs found"])  # AOTAutograd's wrappers are needed
        if kind == "view":
            assert results[1].untyped_storage().data_ptr() == results[0].untyped_storage().data_ptr()
        elif kind == "itself":
            assert results[1] is given


def users_own(x: Any) -> Any:
    return torch.relu(x)


def test_what_tracing_depends_on_is_in_the_key() -> None:
    model, args = make_model()
    start(model, args)
    assert start(model, args)[1]["graphs found"] == 1
    with torch.autocast("cpu", torch.bfloat16):
        assert not [what for what in start(model, args)[1] if "graphs" in what]
    torch.set_default_dtype(torch.float64)
    try:
        assert start(model, args)[1]["graphs missing"] == 1
    finally:
        torch.set_default_dtype(torch.float32)
    model.convolution.stride = (2, 2)
    assert start(model, args)[1]["graphs missing"] == 1


def test_a_function_of_the_users_has_no_key() -> None:
    from metaschedule.torch.dynamo_key import describe_function
    from metaschedule.torch.graph_key import NoKey

    assert describe_function(torch.relu) == "torch.relu"
    assert describe_function(nn.functional.layer_norm) == "torch.nn.functional.layer_norm"
    assert describe_function(torch.ops.aten.relu.default) == "aten.relu.default"
    for function in (users_own, lambda x: x, torch.ops.quantized.add.default):
        with pytest.raises(NoKey):
            describe_function(function)


def test_weights_that_change_between_two_starts_are_packed_again() -> None:
    model, args = make_model()
    start(model, args)
    model.linear.weight.mul_(2)
    results, counts = start(model, args)
    assert (counts["graphs found"], counts["plans missing"]) == (1, 2)
    assert_same(results, model(*args))


def test_better_records_are_used(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU()).eval()
    args = (torch.randn(5, 64),)
    database = str(tmp_path / "tuning.db")
    ms.torch.tune(model, args, database=database, trials=2, show=False)
    start(model, args, database=database)
    assert start(model, args, database=database)[1]["plans found"] == 1
    with ms.database.open(database) as db:
        best = max(db.records(), key=lambda r: r.latency is not None)
        db.add(replace(best, uid="f" * 32, latency=1e-9, confirmed=True))
    _, counts = start(model, args, database=database)
    assert counts["plans outdated"] >= 1
    assert start(model, args, database=database)[1]["plans found"] == 1
    assert start(model, args)[1]["plans missing"] >= 1


def damage(kind: str, change: Any) -> int:
    found = [f for f in store().files() if f.kind == kind]
    for one in found:
        change(one.path)
    return len(found)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def test_truncated_and_missing_files_are_made_again() -> None:
    model, args = make_model()
    wanted, _ = start(model, args)
    for kind in ("kernels", "constants", "plans"):
        for change, what in ((truncate, "damaged"), (Path.unlink, "missing")):
            assert damage(kind, change)
            results, counts = start(model, args)
            assert_same(results, wanted)
            assert counts[f"{kind} {what}"] >= 1
            results, counts = start(model, args)
            assert (counts["plans found"], counts["plans incomplete"]) == (1, 0)


def test_another_version_compiles_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, args = make_model()
    wanted, _ = start(model, args)
    monkeypatch.setattr("metaschedule.cache.identity.versions", lambda: ("another", "", ""))
    results, counts = start(model, args)
    assert_same(results, wanted)
    assert counts["plans foreign"] == 1
    assert counts["kernels foreign"] == counts["kernels written"] > 1


@pytest.mark.parametrize("disk", ["full", "read-only", "off"])
def test_it_works_without(disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, args = make_model()
    wanted = model(*args)
    if disk == "off":
        monkeypatch.setenv("METASCHEDULE_CACHE_SIZE", "0")
        assert_same(start(model, args)[0], wanted)
        assert not list(store().files())
        return
    monkeypatch.setenv("METASCHEDULE_CACHE", str(tmp_path / "disk"))
    held = mounted(tmp_path / "disk", "size=32k") if disk == "full" else read_only(tmp_path / "disk")
    with held:
        for _ in range(2):
            results, counts = start(model, args)
            assert_same(results, wanted)
            assert counts["not written"]


def test_large_models_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METASCHEDULE_CACHE_SIZE", "30K")
    model, args = make_model()
    start(model, args)
    assert not [f for f in store().files() if f.kind == "plans"]


def test_an_operator_of_the_users_lowering_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, args = make_model()
    monkeypatch.setattr("metaschedule.torch.graph_key.OWN", frozenset())
    _, counts = start(model, args)
    assert not [what for what in counts if "plans" in what]


def test_exported_models_are_kept() -> None:
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU()).eval()
    args = (torch.randn(4, 24),)
    for n in range(2):
        KNOWN.clear()
        SHARED.clear()
        before = store().counts.copy()
        run = ms.torch.optimize(model, args, strict=True)
        torch.testing.assert_close(run(*args), model(*args))
        compiled = ms.torch.compile(torch.export.export(model, args), strict=True)
        torch.testing.assert_close(compiled(*args), model(*args))
        assert (store().counts - before)["plans found"] == 1 + n


class Counting(nn.Module):
    """Writes to its input, as to a cache of keys and values, and to another as a whole."""

    def forward(self, rows: Any, at: Any, total: Any, row: Any) -> Any:
        rows.index_copy_(0, at, row)
        total.add_(1)
        return rows.sum(0) * total


def test_inputs_are_written_to_after_a_second_start() -> None:
    at, row = torch.tensor([3]), torch.randn(1, 16)

    def results(run: Any) -> list[Any]:
        rows, total = torch.ones(8, 16), torch.ones(1)
        return [run(rows, at, total, row), rows, total]

    model = Counting()
    wanted = results(model)
    for what in ("missing", "found"):
        found: list[Any] = []

        def run(*args: Any, found: list[Any] = found) -> Any:
            found[:] = start(model, args)
            return found[0]

        assert_same(results(run), wanted)
        assert found[1][f"plans {what}"] == 1


PROCESS = """
import json, sys, torch
import metaschedule.torch
from metaschedule.cache import store
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
with torch.no_grad():
    x = torch.randn(3, 40)
    results = torch.compile(model, backend="metaschedule", options={"strict": True})(x)
    torch.testing.assert_close(results, model(x), rtol=1e-4, atol=1e-4)
print(json.dumps(store().counts))
"""


def test_two_processes_at_once_then_a_third() -> None:
    def begin() -> Any:
        return subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True)

    def counts(process: Any) -> Any:
        text, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        return json.loads(text.splitlines()[-1])

    both = [begin(), begin()]
    for one in map(counts, both):
        assert one.get("plans written", 0) + one.get("plans found", 0) == 1
    third = counts(begin())
    assert third["plans found"] == 1
    assert not [what for what in third if not what.endswith("found")]
    assert isinstance(store(), Store)
    assert plan_cache.PLANS in {f.kind for f in store().files()}
