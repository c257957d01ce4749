"""What is there and what answers: this machine, the compiler, optional packages, Ray, PostgreSQL.

Every check ends in a `Finding`, whatever goes wrong in it. What was asked for, or is needed, and does not
work is a failure; an optional package that is not there is not.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from .. import __version__, database
from ..build import build
from ..database import DatabaseError
from ..measure.calibration import Calibration, calibration_kernel
from ..measure.cluster.connection import HINT
from ..measure.machine import Machine
from ..measure.watch import ThreadWatch
from ..runtime.toolchain import ToolchainError, find_compiler
from ..script import parse
from ..target import COMPUTE_FEATURES, native
from ..target.detect import cpu_quota

log = logging.getLogger("metaschedule")
RAY_SECONDS = 30  # until a cluster counts as silent
POSTGRES_SETTINGS = (
    "PGHOST",
    "PGSERVICE",
    "PGDATABASE",
    "PGHOSTADDR",
)  # of these any means: there is a server
CALIBRATIONS = 20
JOIN_RAY = """
import sys
from metaschedule.measure.cluster.connection import Connection, import_ray
from metaschedule.measure.outcome import WorkersError
try:
    connection = Connection("ray", join=True)
except WorkersError as error:
    sys.exit(str(error))
ray = import_ray()
alive = [node for node in ray.nodes() if node["Alive"]]
cores = ray.cluster_resources().get("CPU", 0)
connection.close()
print(f"Ray {ray.__version__}, {len(alive)} nodes, {cores:.0f} cores")
"""
PROBE = """
@ms.program
def probe(X: T.Tensor((8,), "float32"), Y: T.Output((8,), "float32")):
    for i in range(8):
        with T.block("Y"):
            v = T.spatial(8, i)
            Y[v] = X[v] + 1.0
"""


class Finding(NamedTuple):
    """`ok` None: not there, and not needed. `data` is for scripts."""

    name: str
    ok: bool | None
    text: str
    data: dict[str, Any] = {}


def examine(postgres: str | None = None, ray: str | None = None) -> Iterator[Finding]:
    """All findings; a server or a cluster that is not given is looked for in the environment."""
    yield describe_versions()
    yield describe_machine()
    yield check_disturbance()
    yield check_compiler()
    yield check_kernel()
    yield from list_extras()
    yield check_postgres(postgres)
    yield check_ray(ray)


def describe_versions() -> Finding:
    names = ("llvmlite", "ml_dtypes", "numpy", "rich", "typer", "xgboost-cpu")
    versions = {"metaschedule": __version__, "python": platform.python_version()}
    versions |= {name: installed for name in names if (installed := find_version(name)) is not None}
    return Finding("versions", True, ", ".join(f"{n} {v}" for n, v in versions.items()), versions)


def describe_machine() -> Finding:
    target, quota = native(), cpu_quota()
    instructions = sorted(f[1:] for f in target.features if f[0] == "+" and f[1:] in COMPUTE_FEATURES)
    allowed = "no quota" if quota is None else f"a quota of {quota:g} cores"
    text = f"{target}; {os.cpu_count()} cores, {target.cores} used, {allowed}; {' '.join(instructions)}"
    data = {
        "target": target.to_json(),
        "key": target.key,
        "instructions": instructions,
        "cores": os.cpu_count(),
        "quota": quota,
        "system": platform.platform(),
    }
    return Finding("machine", True, text, data)


def check_disturbance() -> Finding:
    """Whether anything could be measured just now; a busy machine is no failure."""
    target = native()
    used = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(target.cores)
    watch, machine = ThreadWatch(), Machine(sorted(used))
    calibration = Calibration(calibration_kernel(target, target.cores), target.cores, watch)
    found = [calibration.slowdown(lambda: None) for _ in range(CALIBRATIONS)]
    share = sum(slowdown is None for slowdown in found) / len(found)
    state = "quiet" if share == 0 else f"disturbed: {share:.0%} of samples were interrupted"
    return Finding(
        "quiet", True if share == 0 else None, f"{state}; {machine.describe()}", {"disturbed": share}
    )


def check_compiler() -> Finding:
    try:
        command = find_compiler()
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30)
        version = (done.stdout or done.stderr).partition("\n")[0]
        return Finding("compiler", done.returncode == 0, version, {"command": command, "version": version})
    except (ToolchainError, OSError, subprocess.SubprocessError) as error:
        return Finding("compiler", False, str(error))


def check_kernel() -> Finding:
    """A small kernel, from script to result."""
    try:
        result = build(parse(PROBE))(np.zeros(8, "float32"))
        works = bool((np.asarray(result) == 1).all())
        return Finding(
            "kernel", works, "builds and runs" if works else f"computes {result} where ones are right"
        )
    except Exception as error:
        log.debug("no kernel can be built", exc_info=True)
        return Finding("kernel", False, f"cannot be built: {type(error).__name__}: {error}")


def list_extras() -> Iterator[Finding]:
    """The optional packages that this one names, by extra."""
    try:
        requirements = metadata.requires("metaschedule") or []
    except metadata.PackageNotFoundError:
        requirements = []
    extras: dict[str, list[str]] = {}
    for line in requirements:
        if match := re.match(r"""([\w.-]+).*extra *== *["'](\w+)["']""", line):
            extras.setdefault(match[2], []).append(match[1])
    for extra, packages in extras.items():
        if extra != "dev":
            found = {package: find_version(package) for package in packages}
            missing = [package for package, version in found.items() if version is None]
            there = ", ".join(f"{p} {v}" for p, v in found.items() if v is not None)
            advice = f'without {", ".join(missing)}: pip install "metaschedule[{extra}]"' if missing else ""
            text = "; ".join(part for part in (there, advice) if part)
            yield Finding(f"extra {extra}", None if missing else True, text, {"packages": found})


def find_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_postgres(url: str | None) -> Finding:
    if url is None:
        if not any(name in os.environ for name in POSTGRES_SETTINGS):
            return Finding("postgresql", None, "none given: --db postgresql://user@host/name, or PGHOST")
        url = "postgresql://"
    try:
        with database.open(url, readonly=True) as db:
            return Finding(
                "postgresql", True, f"{db.name} answers: {db.count()} records", {"address": db.name}
            )
    except DatabaseError as error:
        empty = "no tuning records there" in str(error)  # it answers
        return Finding("postgresql", empty, str(error))


def check_ray(address: str | None) -> Finding:
    """In a process of its own, because joining a cluster that is not there can take for ever."""
    address = address or os.environ.get("RAY_ADDRESS")
    if not address:
        return Finding("ray", None, "none given: --ray ADDRESS, or RAY_ADDRESS")
    if find_version("ray") is None:
        return Finding("ray", False, 'not installed: pip install "metaschedule[ray]"')
    code, output = run_for(
        [sys.executable, "-P", "-c", JOIN_RAY], RAY_SECONDS, os.environ | {"RAY_ADDRESS": address}
    )
    last = output.strip().rpartition("\n")[2]
    if code == 0:
        return Finding("ray", True, f"{address} answers: {last}", {"address": address})
    return Finding("ray", False, f"{address}: no answer in {RAY_SECONDS} s; {HINT}" if code is None else last)


def run_for(command: Sequence[str], seconds: float, environment: dict[str, str]) -> tuple[int | None, str]:
    """Exit code, None if it had to be ended, and output."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            timeout=seconds,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return None, ""
