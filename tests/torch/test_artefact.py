"""Models compiled ahead of time: called, saved, loaded in another process."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.runtime import StorageError  # noqa: E402
from metaschedule.torch import stored  # noqa: E402

nn = torch.nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))

    def forward(self, x: Any, more: dict[str, Any], power: int) -> Any:
        hidden = torch.relu(self.first(x)) + more["y"]
        ordered = torch.sort(hidden, dim=-1, stable=True)  # runs in eager
        return {"out": self.second(ordered.values) ** power, "turned": hidden.t(), "scaled": x * self.scale}


@pytest.fixture(scope="module")
def case() -> Any:
    torch.manual_seed(0)
    model, args = Model().eval(), (torch.randn(4, 6), {"y": torch.randn(4, 8)}, 2)
    with torch.no_grad():
        return ms.torch.compile(torch.export.export(model, args)), args, model(*args)


def test_the_same_in_another_process(case: Any, tmp_path: Path) -> None:
    run, args, want = case
    torch.testing.assert_close(run(*args), want)
    run.save(tmp_path / "model.ms")
    torch.save((args, want), tmp_path / "case.pt")
    text = f"""
import sys, torch
import metaschedule as ms
from metaschedule.runtime import executable
executable.compile_object = None  # nothing is compiled
args, want = torch.load({str(tmp_path / "case.pt")!r})
run = ms.torch.load({str(tmp_path / "model.ms")!r})
found = run(*args)
torch.testing.assert_close(found, want)
assert found["turned"].stride() == want["turned"].stride()
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arguments_are_checked(case: Any) -> None:
    run, (x, more, power), _ = case
    with pytest.raises(ValueError, match=r"argument 0 must be float32\[4, 6\] on cpu, got float32\[5, 6\]"):
        run(torch.randn(5, 6), more, power)
    with pytest.raises(ValueError, match="argument 2 was 2 when exported, got 3"):
        run(x, more, 3)
    with pytest.raises(TypeError, match="exported for arguments like"):
        run(x, more)


def test_other_files_are_refused(case: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.ms"
    path.write_bytes(b"something else")
    with pytest.raises(ms.runtime.StorageError, match="not a saved model"):
        ms.torch.load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("model.json", '{"version": 99}')
    with pytest.raises(ms.runtime.StorageError, match="has format 99"):
        ms.torch.load(path)


class Keywords(nn.Module):
    def forward(self, x: Any, y: Any = None, z: Any = None) -> Any:
        return x * 2 + y * z


@pytest.fixture(scope="module")
def keywords() -> Any:
    x, y, z = torch.arange(8.0).view(2, 4), torch.ones(2, 4), torch.full((2, 4), 3.0)
    exported = torch.export.export(Keywords(), (x,), {"y": y, "z": z})
    return ms.torch.compile(exported, strict=True), (x, y, z), Keywords()(x, y, z)


def test_arrays_and_keywords_in_any_order(keywords: Any) -> None:
    run, (x, y, z), want = keywords
    torch.testing.assert_close(run(x, z=z, y=y), want)
    torch.testing.assert_close(run(x.numpy(), y=y, z=z.numpy()), want)


def test_what_is_no_argument_is_refused(keywords: Any) -> None:
    run, (x, y, z), _ = keywords
    with pytest.raises(TypeError, match="exported for arguments like"):
        run(x, y=y)
    with pytest.raises(TypeError, match="argument 0 must be a tensor float32"):
        run(1.0, y=y, z=z)
    with pytest.raises(ValueError, match="argument 0 must be float32"):
        run(x.numpy().astype("float64"), y=y, z=z)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(run)


def test_a_file_that_was_edited(keywords: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.ms"
    keywords[0].save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    for name in parts:
        changed = parts | {name: parts[name][:-1]}
        with zipfile.ZipFile(path, "w") as file:
            for part, data in changed.items():
                file.writestr(part, data)
        with pytest.raises(StorageError):
            ms.torch.load(path)


def test_a_constant_without_its_values_is_refused() -> None:
    with pytest.raises(ValueError, match="has 0 bytes"):
        stored.tensor((2, 3), "float32", b"")
    assert stored.tensor((0, 3), "float32", b"").shape == (0, 3)
