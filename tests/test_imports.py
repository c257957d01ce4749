"""What `import metaschedule` brings along: its six dependencies, and nothing optional."""

from __future__ import annotations

import importlib.metadata as metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = (
    "torch",
    "ray",
    "psycopg",
    "openvino",
    "transformers",
    "starlette",
    "uvicorn",
    "plotly",
    "onnx",
    "pyopencl",
    "cupy",
    "cuda",
)


@pytest.mark.parametrize("module", ["metaschedule", "metaschedule.cli"])
def test_optional_packages_are_not_imported(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {OPTIONAL} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout == "[]\n"


def test_directories_of_tests_hide_no_package() -> None:
    """`import torch` must not find tests/torch where PyTorch is not installed."""
    here = Path(__file__).parent
    assert not [entry for entry in sys.path if Path(entry).resolve() in (here, here.parent / "metaschedule")]


WHOSE = """
import importlib.metadata as metadata, json, re, sys
import metaschedule
loaded = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
owners = metadata.packages_distributions()
print(json.dumps(sorted({owner for name in loaded for owner in owners.get(name, ())})))
"""
DEPENDENCIES = {"llvmlite", "ml_dtypes", "numpy", "rich", "typer", "xgboost-cpu"}


def test_nothing_else_is_imported_either() -> None:
    """Every loaded package is one of the six dependencies, or required by one of them."""
    done = subprocess.run([sys.executable, "-c", WHOSE], text=True, capture_output=True, check=True)
    loaded = {normalise(name) for name in json.loads(done.stdout)}
    allowed = {"metaschedule", *map(normalise, DEPENDENCIES)}
    queue = list(DEPENDENCIES)
    while queue:
        for line in metadata.requires(queue.pop()) or ():
            name = re.split(r"[^\w.-]", line)[0]
            if "extra ==" not in line and normalise(name) not in allowed and is_installed(name):
                allowed.add(normalise(name))
                queue.append(name)
    # what a start-up file of the environment loads, `.pth` of setuptools or coverage, is not ours
    without = [sys.executable, "-c", WHOSE.replace("import metaschedule\n", "")]
    bare = subprocess.run(without, text=True, capture_output=True, check=True)
    assert loaded - allowed - {normalise(name) for name in json.loads(bare.stdout)} == set()


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_no_library_of_a_gpu_is_loaded() -> None:
    libraries = ("libcuda", "libOpenCL", "libnvrtc")
    code = f"import metaschedule.cli; print([x for x in {libraries} if x in open('/proc/self/maps').read()])"
    if not sys.platform.startswith("linux"):
        pytest.skip("reads /proc")
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout == "[]\n"
