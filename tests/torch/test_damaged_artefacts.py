"""Saved models that were damaged or made up: refused by a `StorageError`, or what was saved."""

from __future__ import annotations

import functools
import io
import json
import random
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch")

import metaschedule as ms  # noqa: E402
from metaschedule.runtime import StorageError  # noqa: E402
from metaschedule.torch.artefact import DIGEST, digest  # noqa: E402
from tests.conftest import LONG  # noqa: E402
from tests.test_files_from_elsewhere import flipped, mutated  # noqa: E402

nn = torch.nn
CASES = (5, 50)  # of an example: at a glance, in the long run
ARGUMENT = torch.arange(12.0).view(2, 6)
Parts = dict[str, bytes]


class Model(nn.Module):
    """Kernels, a step in eager, constants, views and a number among its results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.linear(x))
        return {"y": y.t(), "sorted": torch.sort(y, dim=-1, stable=True).values * 2}


@functools.cache
def saved() -> bytes:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.ms"
        ms.torch.compile(torch.export.export(Model().eval(), (ARGUMENT,)), strict=True).save(path)
        return path.read_bytes()


@functools.cache
def expected() -> Any:
    return loaded(saved())(ARGUMENT)


def loaded(data: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ms"
        path.write_bytes(data)
        return ms.torch.load(path)


def parts_of(data: bytes) -> Parts:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(
    parts: Mapping[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, part in parts.items() if isinstance(parts, Mapping) else parts:
            archive.writestr(name, part)
    return file.getvalue()


def signed(parts: Parts) -> Parts:
    rest = {name: part for name, part in parts.items() if name != DIGEST}
    return rest | {DIGEST: digest(rest)}


def try_damaged(rng: random.Random) -> None:
    """The bytes of the file."""
    try:
        model = loaded(flipped(saved(), rng))
    except StorageError:
        return
    torch.testing.assert_close(model(ARGUMENT), expected())  # damaged where nothing is read


def try_edited(rng: random.Random) -> None:
    """The parts of the zip, under the old digest."""
    old = parts_of(saved())
    items = list(old.items())
    at, way = rng.randrange(len(items)), rng.randrange(5)
    name, part = items[at]
    if way == 0:
        items[at] = name, flipped(part, rng) if part else b"x"
    elif way == 1:
        del items[at]
    elif way == 2:
        items.insert(rng.randrange(len(items)), (rng.choice(["../x", "kernels/9.o", "é"]), part))
    elif way == 3:
        items[at] = rng.choice(["x", "model.json/", f"/{name}"]), part
    else:
        items.append((name, flipped(part, rng) if part else b"x"))  # which of the two counts?
    if dict(items) == old:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two parts with one name
        data = zipped(items)
    with pytest.raises(StorageError):
        loaded(data)


def try_made_up(rng: random.Random) -> None:
    """The plan, under a digest of its own. Not run: whoever writes the digest writes the code, too."""
    parts = parts_of(saved())
    content = json.loads(parts["model.json"])
    for _ in range(rng.choice((1, 1, 2, 5))):
        content = mutated(content, rng)
    try:
        loaded(zipped(signed(parts | {"model.json": json.dumps(content).encode()})))
    except StorageError:
        pass


@pytest.mark.parametrize("attempt", [try_damaged, try_edited, try_made_up], ids=lambda f: f.__name__)
@given(st.integers(0, 2**32))
def test_damaged_models_are_refused_or_right(attempt: Callable[[random.Random], None], seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(CASES[LONG["long"]]):
        attempt(rng)


# --- what was found ---------------------------------------------------------------------------------


def test_a_part_that_begins_before_the_file(tmp_path: Path) -> None:
    data = bytearray(saved())
    end = data.rindex(b"PK\5\6")  # the end of the central directory; at 16 its offset, 4 bytes
    data[end + 16 : end + 20] = (int.from_bytes(data[end + 16 : end + 20], "little") + 2**20).to_bytes(
        4, "little"
    )
    with pytest.raises(StorageError, match="not a saved model, or a damaged one"):
        loaded(bytes(data))


def made_up(**changes: Any) -> bytes:
    """A file with other entries in its JSON, and a digest that says so."""
    parts = parts_of(saved())
    content = json.loads(parts["model.json"]) | changes
    return zipped(signed(parts | {"model.json": json.dumps(content).encode()}))


def test_no_module_is_imported_by_name() -> None:
    context = '[{"__enum__": true, "fqn": "antigravity:X", "name": "a"}]'
    node = {"type": "builtins.dict", "context": context, "children_spec": []}
    with pytest.raises(StorageError, match="import that first"):
        loaded(made_up(takes=json.dumps([1, node])))
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("value", ["load", "hub", "float32"])
def test_names_are_those_of_dtypes(value: str) -> None:
    with pytest.raises(StorageError, match="no layout of torch"):
        loaded(made_up(fixed=[{"layout": value}]))


def test_a_constant_larger_than_its_bytes_takes_no_memory() -> None:
    plan = json.loads(parts_of(saved())["model.json"])["plan"]
    plan["constants"][0][0] = [2**40]
    with pytest.raises(StorageError, match="a constant float32"):
        loaded(made_up(plan=plan))


def test_parts_that_unpack_to_more_than_the_file_are_refused() -> None:
    with pytest.raises(StorageError, match="parts larger than the file"):
        loaded(zipped({"model.json": b" " * 10**8}, zipfile.ZIP_DEFLATED))


def test_a_model_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.ms"
    path.write_bytes(saved())
    model = ms.torch.load(path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.ms"]
    assert path.read_bytes() == saved()
