"""The tests of clusters, in a process of their own: one that has started a Ray for itself, as those of other
files do, does not reliably join a cluster afterwards. They mostly wait, so other tests run beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from metaschedule.measure.cluster.connection import is_installed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not is_installed(), reason='Ray is not installed: pip install "metaschedule[ray]"')
def test_clusters_in_a_process_of_their_own(request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/measure/test_cluster.py"]
    command += ["--long"] if request.config.getoption("--long") else []
    own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTEST_"))}
    done = subprocess.run(
        command, cwd=ROOT, env=own | {"METASCHEDULE_APART": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout[-10_000:]}{done.stderr[-5_000:]}"
