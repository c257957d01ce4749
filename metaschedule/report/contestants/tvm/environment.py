"""TVM's virtual environment, made when it is first asked for. Its packages would disturb ours and torch's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from ..contestant import ContestantError

VERSION = "0.27.0.post1"
PACKAGES = (
    f"apache-tvm=={VERSION}", "apache-tvm-ffi==0.1.14.post0",  # a newer ffi crashes
    "xgboost-cpu", "scipy", "cloudpickle", "psutil", "tornado",
)  # fmt: skip


def interpreter(directory: Path) -> Path:
    """The Python of the environment in a directory, with TVM installed."""
    python, complete = directory / "bin" / "python", directory / f"tvm-{VERSION}"
    if not complete.exists():
        shutil.rmtree(directory, ignore_errors=True)  # what an interrupted run has left
        run(sys.executable, "-m", "venv", str(directory))
        run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
        complete.touch()
    return python


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise ContestantError(f"TVM could not be installed: {' '.join(command)}\n{''.join(last)}")
