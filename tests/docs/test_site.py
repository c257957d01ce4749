"""The site builds without a warning, and its reference has every public name."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import metaschedule as ms

for package in ("mkdocs", "material", "mkdocstrings", "mkdocs_jupyter", "torch", "onnx"):
    pytest.importorskip(package, reason="pip install 'metaschedule[docs,torch,onnx]'")

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    *(ms, ms.te, ms.workloads, ms.space, ms.schedule, ms.search, ms.cost),
    *(ms.database, ms.measure, ms.target, ms.torch, ms.onnx),
]
METHODS = {  # of classes whose methods are public names
    ms.Schedule: ["fork", "show", "can", "get", "run", "sample"],
    ms.Trace: ["apply", "to_json", "from_json"],
    ms.space.Space: ["sketches", "sample", "size", "replace"],
    ms.runtime.Executable: ["__call__", "benchmark", "bind", "source", "save", "export_library"],
    ms.search.Result: ["build"],
    ms.database.Database: ["best", "records", "runs", "merge", "prune", "export"],
    ms.torch.Artefact: ["save", "export_library"],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as scripts/docs does, but for the notebooks, which test_notebooks.py runs."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env=os.environ | {"DOCS_EXECUTE": "false", "NO_MKDOCS_2_WARNING": "1"},
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def public_names(module: ModuleType) -> dict[str, Any]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]
    found = {name: getattr(module, name) for name in names}
    return {n: value for n, value in found.items() if inspect.isclass(value) or inspect.isfunction(value)}


def test_every_public_name_is_documented(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    entries = {line.split(" ", 1)[0] for line in zlib.decompress(inventory).decode().splitlines()}
    names = {path_of(value) for package in PACKAGES for value in public_names(package).values()}
    names |= {f"{path_of(owner)}.{method}" for owner, methods in METHODS.items() for method in methods}
    assert sorted(names - entries) == []


def test_every_public_name_has_a_docstring() -> None:
    missing = [
        f"{package.__name__}.{name}"
        for package in PACKAGES
        for name, value in public_names(package).items()
        if not inspect.getdoc(value)
    ]
    methods = [(owner, method) for owner, methods in METHODS.items() for method in methods]
    missing += [f"{owner.__name__}.{m}" for owner, m in methods if not getattr(owner, m).__doc__]
    assert missing == []


def path_of(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures are the site's own; links may lead anywhere."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=[\"']?(https?:[^\"'> ]+)", text)
        loaded += re.findall(r"<link[^>]* rel=[\"']?stylesheet[^>]* href=[\"']?(https?:[^\"'> ]+)", text)
        assert loaded == [], page


def test_every_page_is_in_the_menu(site: Path) -> None:
    """MkDocs warns of pages that are not, which `--strict` makes an error; here, that there are so many."""
    assert len(list(site.glob("*.html"))) >= 20
    assert len(list((site / "notebooks").glob("*.html"))) == 4
