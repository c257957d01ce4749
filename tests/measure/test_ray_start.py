"""Clusters that people start themselves, by `ray start`: as the guide says it, asking for a token; through a
client; encrypted. All that is run is a process of its own, on loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from metaschedule import database
from metaschedule.measure.cluster.connection import RUNNER, is_installed
from tests.docs.blocks import blocks_of
from tests.measure.clusters import wait_until

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
Commands = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = pytest.mark.skipif(
    not is_installed() or not (BIN / "ray").exists(),
    reason='Ray is not installed: pip install "metaschedule[ray]"',
)

MODEL = """
import sys
import metaschedule as ms
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.GELU()).eval()
x = torch.randn(8, 64)
ms.torch.tune(model, (x,), workers=sys.argv[1], database=sys.argv[2], trials=4)
with torch.no_grad():
    torch.testing.assert_close(ms.torch.optimize(model, (x,), database=sys.argv[2])(x), model(x))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: Ray's sockets lie in it, and the system takes 107 characters."""
    with tempfile.TemporaryDirectory(prefix="ms", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        return True
    except OSError:
        return False


def environment(home: Path, **variables: object) -> dict[str, str]:
    """That of a terminal of somebody who has no Ray yet."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTEST_"))}
    paths = {
        "HOME": home,
        "PATH": f"{BIN}:{own['PATH']}",
        "PYTHONPATH": ROOT,
        "METASCHEDULE_CACHE": home / "c",
    }
    return own | {name: str(value) for name, value in (paths | variables).items()}


@contextmanager
def running_head(home: Path, script: str, port: int, **variables: object) -> Iterator[None]:
    """The cluster that a script starts, whose last command stays in the foreground."""
    script += f" --block --temp-dir={home}/r --object-store-memory=100000000"
    with (home / "head.txt").open("w") as log:
        head = subprocess.Popen(
            ["bash", "-ec", script], env=environment(home, **variables), stdout=log, stderr=log
        )
        try:
            wait_until(lambda: head.poll() is not None or is_open(port), 90)
            assert head.poll() is None, (home / "head.txt").read_text()
            yield
        finally:
            subprocess.run(["pkill", "-TERM", "-P", str(head.pid)], check=False)  # bash waits for it
            head.terminate()
            try:
                head.wait(40)
            except subprocess.TimeoutExpired:
                head.kill()
                head.wait()


def commands(home: Path, **variables: object) -> Commands:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in words], cwd=home, env=environment(home, **variables), text=True,
            capture_output=True, timeout=300,
        )  # fmt: skip

    return run


def count(path: Path) -> int:
    with database.open(path, readonly=True) as db:
        return sum(record.outcome == "ok" for record in db.records())


def terminals(port: int) -> tuple[str, str]:
    """What the guide says to paste, but for the port, a smaller budget, and the end of all Rays here."""
    first, second = [b.code for b in blocks_of(ROOT / "docs" / "cluster.md") if "terminal" in b.code][:2]
    assert "ray get-auth-token --generate" in first
    lines = second.replace("tune GMM", "tune GMM --trials 8").splitlines()
    joins = "\n".join(line for line in lines if not line.startswith("ray stop"))
    return first.strip().replace("6379", str(port)), joins.replace("6379", str(port))


def test_the_files_of_the_guide_are_what_ray_takes() -> None:
    """That of `ray up`, with what everybody fills in, by Ray's schema; KubeRay's is in no package."""
    import jsonschema
    import ray
    import yaml

    pages = blocks_of(ROOT / "docs" / "cluster.md")
    up, kube = [yaml.safe_load(block.code) for block in pages if block.language == "yaml"]
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate({"cluster_name": "tuning", "provider": {"type": "local"}} | up, schema)
    assert kube["kind"] == "RayCluster"
    names = {RUNNER, "CPU"}
    assert {name for kind in up["available_node_types"].values() for name in kind["resources"]} == names
    (runners,) = [group for group in kube["spec"]["workerGroupSpecs"] if group["groupName"] == "runners"]
    assert json.loads(json.loads(runners["rayStartParams"]["resources"])) == {RUNNER: 1}


def test_the_two_terminals_of_the_guide(home: Path) -> None:
    port = free_port()
    starts, joins = terminals(port)
    run = commands(home)
    with running_head(home, starts, port):
        done = run("bash", "-ec", joins)
        assert done.returncode == 0, done.stdout + done.stderr
        assert count(home / "tuning.db") >= 6
        table = done.stdout[done.stdout.rindex("builders") :]  # a row may be broken where names are long
        assert "free" in table, done.stdout
        exports = [line for line in joins.splitlines() if line.startswith("export ")]
        done = run("bash", "-ec", "\n".join([*exports, "metaschedule doctor --json"]))
        (ray,) = [finding for finding in json.loads(done.stdout) if finding["name"] == "ray"]
        assert ray["ok"], ray


def test_doctor_says_where_nobody_is(home: Path) -> None:
    done = commands(home)("metaschedule", "doctor", "--json", "--ray", f"127.0.0.1:{free_port()}")
    (ray,) = [finding for finding in json.loads(done.stdout) if finding["name"] == "ray"]
    assert (done.returncode, ray["ok"]) == (1, False)
    assert "nothing answers at 127.0.0.1" in ray["text"]
    assert "Traceback" not in ray["text"]


@pytest.mark.slow
def test_a_wrong_token_is_said_to_be_a_reason(home: Path) -> None:
    port = free_port()
    starts, _ = terminals(port)
    run = commands(home)
    with running_head(home, starts, port):
        for wrong in ("RAY_AUTH_TOKEN=" + 64 * "0", "RAY_AUTH_MODE=disabled"):
            tune = "metaschedule tune SFM --trials 2 --workers ray"
            done = run(
                "bash", "-ec", f"export RAY_AUTH_MODE=token; {wrong} RAY_ADDRESS=127.0.0.1:{port} {tune}"
            )
            assert done.returncode == 1, done.stdout
            assert "if the cluster asks for a token" in done.stdout + done.stderr
            assert "Traceback" not in done.stderr


def plain_head(port: int, client: int) -> str:
    return (
        "export RAY_USAGE_STATS_ENABLED=0 RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 RAY_worker_niceness=0\n"
        f"ray start --head --node-ip-address=127.0.0.1 --port={port} --ray-client-server-port={client} "
        "--resources='{\"metaschedule_runner\": 1}' --include-dashboard=false"
    )


@pytest.mark.slow
def test_a_client_tunes_operators_and_models(home: Path) -> None:
    """From a machine that is no node."""
    port, client = free_port(), free_port()
    address, run = f"ray://127.0.0.1:{client}", commands(home)
    with running_head(home, plain_head(port, client), client):
        done = run("metaschedule", "tune", "SFM", "--trials", 4, "--workers", address, "--db", "tuning.db")
        assert done.returncode == 0, done.stderr
        assert count(home / "tuning.db") >= 3
        done = run("metaschedule", "cluster", "status", "--workers", address, "--json")
        assert '"is_runner": true' in done.stdout, done.stderr
        pytest.importorskip("torch")
        done = run(sys.executable, "-W", "ignore", "-c", MODEL, address, "model.db")
        assert done.returncode == 0, done.stderr
        assert count(home / "model.db") >= 3
        done = run("metaschedule", "bench", "operators", "SFM", "--trials", 4, "--workers", address)
        assert done.returncode == 0, done.stderr
        assert "SFM" in done.stdout
        few = ("--trials", 2, "--workers", address, "--json", home / "report.json")
        spaces = ("--workloads", "GMM:n=8,m=16,k=4", "--spaces", "loops,default", "--seeds", 1)
        operators = ("--parts", "operators", "--only", "int8 512x512x512")
        models = ("nbeats", "--small", "--against", "eager", "--seconds", 0.01)
        for what in (("spaces", *spaces), ("instructions", *operators), ("models", *models)):
            done = run("metaschedule", "bench", *what, *few)
            assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_encrypted(home: Path) -> None:
    """Who does not know the certificates does not get in."""
    make_certificates(home)
    files = {
        "RAY_USE_TLS": 1, "RAY_TLS_SERVER_CERT": home / "node.crt", "RAY_TLS_SERVER_KEY": home / "node.key",
        "RAY_TLS_CA_CERT": home / "ca.crt",
    }  # fmt: skip
    port, client = free_port(), free_port()
    tune = ("metaschedule", "tune", "SFM", "--trials", 4, "--db", "tuning.db", "--workers")
    with running_head(home, plain_head(port, client), client, **files):
        for workers, address in (("ray", f"127.0.0.1:{port}"), (f"ray://127.0.0.1:{client}", "")):
            done = commands(home, **files, **({"RAY_ADDRESS": address} if address else {}))(*tune, workers)
            assert done.returncode == 0, done.stderr
        assert count(home / "tuning.db") >= 3
        stranger = commands(home, RAY_ADDRESS=f"127.0.0.1:{port}")
        done = stranger(*tune[:5], "--workers", "ray")
        assert done.returncode == 1
        assert "error: " in done.stderr
        assert "RAY_USE_TLS" in done.stderr


def make_certificates(home: Path) -> None:
    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=home, check=True, capture_output=True)

    (home / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca")
    openssl("req -newkey rsa:2048 -nodes -keyout node.key -out node.csr -subj /CN=node")
    openssl(
        "x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out node.crt -days 2 -extfile names"
    )
