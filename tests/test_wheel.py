"""The wheel: built out of a copy of the repository, installed into an empty environment, used elsewhere."""

from __future__ import annotations

import email.parser
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

import metaschedule as ms

ROOT = Path(ms.__file__).parents[1]
if not (ROOT / "pyproject.toml").is_file():
    pytest.skip("not a checkout", allow_module_level=True)
pytest.importorskip("setuptools", reason="a wheel is built by setuptools")
pytestmark = pytest.mark.xdist_group("wheel")
EXTRAS = {"torch", "ray", "postgres", "dashboard", "onnx", "docs", "dev"}
VERSIONS = ("3.12", "3.13")  # besides the one that runs the tests


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built out of a copy, because setuptools leaves its work in the tree."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "metaschedule", source / "metaschedule", ignore=without)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheel, and the dependencies that are installed here: found behind it, by a
    path that processes no `.pth`, so that this checkout is not among them."""
    place = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    install = [*(sys.executable, "-m", "pip", "--python", str(python)), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, "--quiet", str(wheel)], check=True, env=clean())
    (site,) = place.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def clean() -> dict[str, str]:
    """The environment of a process that knows nothing of this checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_it_holds_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said = email.parser.Parser().parsestr(files.read(metadata).decode())
    tree = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "metaschedule").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".md"}
    }
    assert tree <= names
    assert "metaschedule/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Version"] == ms.__version__
    assert set(said.get_all("Provides-Extra") or ()) >= EXTRAS
    required = [line for line in said.get_all("Requires-Dist") or () if "extra ==" not in line]
    assert len(required) == 6


def test_it_runs_outside_of_the_repository(python: Path, tmp_path: Path) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [str(python), "-m", *command], cwd=tmp_path, env=clean(), text=True, capture_output=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    script = python.with_name("metaschedule")
    where = "import metaschedule; print(metaschedule.__file__)"
    found = subprocess.run([python, "-c", where], cwd=tmp_path, env=clean(), text=True, capture_output=True)
    assert str(python.parents[1]) in found.stdout
    version = subprocess.run([script, "--version"], cwd=tmp_path, env=clean(), text=True, capture_output=True)
    assert version.stdout == f"metaschedule {ms.__version__}\n"
    assert "4 ok" in run("metaschedule", "tune", "SFM", "--trials", "4", "--db", "tuning.db")
    assert "complete_bash" in run("metaschedule", "--show-completion", "bash")


def test_its_dashboard_runs(python: Path, tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="pip install 'metaschedule[dashboard]'")
    pytest.importorskip("plotly", reason="pip install 'metaschedule[dashboard]'")
    ms.tune(ms.workloads.create("GMM", b=1, n=16, m=16, k=16), trials=2, database=tmp_path / "tuning.db")
    server = subprocess.Popen(
        [str(python), "-m", "metaschedule", "dashboard", "tuning.db", "--port", "0", "--no-browser"],
        cwd=tmp_path,
        env=clean() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        (address,) = re.findall(r"http://\S+", server.stdout.readline())
        for name in ("", "app.js", "plotly.js", "api/runs"):
            with urllib.request.urlopen(address + name, timeout=20) as answer:
                assert answer.status == 200
                assert len(answer.read()) > 100
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        server.stdout.close()


def find_python(version: str) -> str | None:
    """An interpreter of this version, on the path or among pyenv's."""
    for command in (
        f"python{version}",
        *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
    ):
        found = shutil.which(command)
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    return None


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on_other_versions_of_python(version: str, wheel: Path, tmp_path: Path) -> None:
    """With the dependencies and the dashboard that an index has for that version."""
    interpreter = find_python(version)
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    subprocess.run([interpreter, "-m", "venv", str(tmp_path / "venv")], check=True, env=clean())
    programs = tmp_path / "venv" / "bin"
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[dashboard]"]
    if (done := subprocess.run(install, env=clean(), text=True, capture_output=True)).returncode:
        pytest.skip(f"the dependencies cannot be installed here: {done.stderr[-200:]}")
    tune = [str(programs / "metaschedule"), "tune", "SFM", "--trials", "2", "--db", "tuning.db"]
    done = subprocess.run(tune, cwd=tmp_path, env=clean(), text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ok" in done.stdout
    report = [str(programs / "metaschedule"), "report", "tuning.db"]
    subprocess.run(report, cwd=tmp_path, env=clean(), check=True, capture_output=True)
    assert (tmp_path / "report.html").stat().st_size < 8_000_000
