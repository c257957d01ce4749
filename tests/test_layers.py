"""The packages import only what stands above them (DESIGN section 2): the table here is the order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import metaschedule

ROOT = Path(metaschedule.__file__).parent

# Each line may import from its own and the lines above. `script` and `verifier` come below `arith`, because
# the parser infers block signatures and the verifier proves indices out of bounds with it.
LAYERS = [
    ["markup", "validation"],
    ["errors", "ir"],
    ["arith"],
    ["affine"],
    ["script", "verifier"],
    ["interpreter"],
    ["te"],
    ["workloads"],
    ["target"],
    ["cache"],
    ["runtime"],
    ["codegen"],
    ["schedule"],
    ["cost"],
    ["database"],
    ["space"],
    ["measure"],
    ["search"],
    ["build"],
    ["torch"],
    ["onnx"],
    ["report"],
    ["dashboard"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported_parts(path: Path) -> set[str]:
    """The top-level parts of metaschedule that a file imports, wherever in the file."""
    package = path.relative_to(ROOT.parent).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = (*start, *(node.module.split(".") if node.module else ()))
            names = [(*module, alias.name) for alias in node.names]
        found |= {name[1] for name in names if name[0] == "metaschedule" and len(name) > 1}
    return found & {p.stem for p in ROOT.iterdir()}


FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem != "__init__")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upwards(path: Path) -> None:
    part = path.relative_to(ROOT).with_suffix("").parts[0]
    assert part in LEVEL, f"{part} has no place in the table of layers"
    below = {name for name in imported_parts(path) if LEVEL[name] > LEVEL[part]}
    assert not below, f"{path.relative_to(ROOT)} imports from below: {sorted(below)}"
