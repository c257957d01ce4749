"""What `import metaschedule` brings along: its six dependencies, and nothing optional."""

from __future__ import annotations

import subprocess
import sys

import pytest

OPTIONAL = ("torch", "ray", "psycopg", "openvino", "transformers", "starlette", "uvicorn", "plotly", "onnx")


@pytest.mark.parametrize("module", ["metaschedule", "metaschedule.cli"])
def test_optional_packages_are_not_imported(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {OPTIONAL} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout == "[]\n"
