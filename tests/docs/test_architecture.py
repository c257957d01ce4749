"""docs/architecture.md is what `scripts/architecture.py` writes; what the documents point to exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> Any:
    """A script as a module, whatever else is called `scripts`."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


architecture, primitives = load("architecture"), load("primitives")
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *[f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")]]
PATH = re.compile(r"(?:metaschedule|tests|scripts|examples|benchmarks|docs|\.ci|\.github)/[\w./-]*\w")


def test_page_is_up_to_date() -> None:
    old = architecture.PAGE.read_text()
    new = architecture.page(old)
    if architecture.ASSEMBLY not in old:  # another version of LLVM may choose other registers
        old, new = (text.partition("### Machine code")[0] for text in (old, new))
    assert old == new, "run: .venv/bin/python scripts/architecture.py"


def test_primitives_are_up_to_date() -> None:
    old = primitives.PAGE.read_text()
    assert old == primitives.primitives_page(), "run: .venv/bin/python scripts/primitives.py"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    """Those in backticks and those of links."""
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL)
    mentioned = {m[0] for quoted in re.findall(r"`([^`]+)`", text) for m in PATH.finditer(quoted)}
    linked = {link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link}
    missing = [p for p in mentioned if not (ROOT / p).exists()]
    missing += [p for p in linked if not (ROOT / document).parent.joinpath(p).exists()]
    assert not missing


def test_glossary_has_at_most_40_words() -> None:
    _, _, glossary = architecture.PAGE.read_text().partition("## Glossary")
    words = re.findall(r"^\| ([^|]+) \|", glossary, flags=re.MULTILINE)[1:]
    assert 0 < len(words) <= 40
    assert words == sorted(words, key=lambda word: word.strip("`").lower())


@pytest.mark.parametrize(
    "readme", sorted((ROOT / "metaschedule").rglob("README.md")), ids=lambda p: p.parent.name
)
def test_files_that_a_readme_names_exist(readme: Path) -> None:
    named = re.findall(r"`([\w/]+\.(?:py|c|md|js|css))`", readme.read_text())
    places = [readme.parent, *[p for p in readme.parents if p == ROOT or ROOT in p.parents]]
    missing = [
        n for n in named if not any((p / n).exists() for p in places) and not [*readme.parent.rglob(n)]
    ]
    assert not missing
