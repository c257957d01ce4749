"""Whom the server answers, and with what."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="pip install 'metaschedule[dashboard]'")
pytest.importorskip("httpx", reason="Starlette's test client needs httpx")
pytest.importorskip("plotly", reason="pip install 'metaschedule[dashboard]'")

from starlette.testclient import TestClient
from typer.testing import CliRunner

from metaschedule.cli import app
from metaschedule.dashboard.page import FILES, plotly_script
from metaschedule.dashboard.report import join_scripts, make_page
from metaschedule.dashboard.server import make_app, make_token
from metaschedule.dashboard.source import Source
from metaschedule.database import open
from tests.dashboard.databases import HOSTILE, copy_of_real_run, many_records
from tests.postgres import Server


def client_of(path: Path, host: str = "127.0.0.1", token: str | None = None) -> TestClient:
    return TestClient(make_app(Source(str(path)), host, token), base_url="http://127.0.0.1:8266")


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return client_of(copy_of_real_run(tmp_path))


def test_files_and_views_are_served_with_a_strict_policy(client: TestClient) -> None:
    for path in ["/", "/plotly.js", "/api/runs", *(f"/{name}" for name in FILES)]:
        answer = client.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'self';" in policy


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8266", "127.0.0.1.evil.example", ""])
def test_other_names_of_this_address_are_refused(client: TestClient, name: str) -> None:
    assert client.get("/api/runs", headers={"host": name}).status_code == 421


@pytest.mark.parametrize("name", ["localhost:8266", "[::1]:8266", "127.0.0.1"])
def test_loopback_has_several_names(client: TestClient, name: str) -> None:
    assert client.get("/api/runs", headers={"host": name}).status_code == 200


def test_other_pages_may_not_ask(client: TestClient) -> None:
    assert client.get("/api/runs", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/api/runs", headers={"origin": "http://127.0.0.1:8266"}).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_nothing_can_be_written(client: TestClient, method: str) -> None:
    assert getattr(client, method)("/api/runs").status_code == 405


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/static/../server.py",
        "/%2e%2e/server.py",
        "/server.py",
        "/api/../../etc/passwd",
    ],
)
def test_no_other_file_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_bound_elsewhere_it_asks_for_its_token(tmp_path: Path) -> None:
    token = make_token("0.0.0.0")
    assert token is not None
    assert make_token("127.0.0.1") is None
    client = client_of(copy_of_real_run(tmp_path), "0.0.0.0", token)
    assert client.get("/api/runs").status_code == 403
    assert client.get("/api/runs?token=wrong").status_code == 403
    assert client.get(f"/?token={token}").status_code == 200  # sets a cookie
    assert client.get("/api/runs").status_code == 200


def test_missing_damaged_and_deleted_databases_are_told(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    client = client_of(path)
    assert client.get("/api/runs").status_code == 503
    copy_of_real_run(tmp_path)
    assert client.get("/api/runs").status_code == 200
    path.unlink()
    assert client.get("/api/runs").status_code == 503
    path.write_bytes(b"no database at all")
    answer = client.get("/api/runs")
    assert answer.status_code == 503
    assert "not a tuning database" in answer.json()["error"]
    path.unlink()
    copy_of_real_run(tmp_path)
    assert client.get("/api/runs").status_code == 200


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_locked_database_is_told_soon_and_read_afterwards(tmp_path: Path, when: str) -> None:
    """Locked by somebody who shares it with nobody; a writer alone does not keep a page from reading."""
    path = copy_of_real_run(tmp_path)
    client = client_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if when == "before":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
        else:
            assert client.get("/api/runs").status_code == 200
        other.execute("BEGIN EXCLUSIVE")
        other.execute("CREATE TABLE more (x)")
        started = time.monotonic()
        answer = client.get("/api/runs")
        assert time.monotonic() - started < 15
        if when == "before":
            assert answer.status_code == 503
            assert "keep it locked" in answer.json()["error"]
            assert client.get("/app.js").status_code == 200
        else:
            assert answer.status_code == 200
    assert client.get("/api/runs").status_code == 200


def test_a_database_on_a_server_is_shown_again_when_the_server_is_back(
    postgres: Server, tmp_path: Path
) -> None:
    url = postgres.create_database()
    with open(url) as db, open(copy_of_real_run(tmp_path), readonly=True) as known:
        db.merge(known)
    source = Source(url)
    client = TestClient(make_app(source), base_url="http://127.0.0.1:8266")
    (call,) = client.get("/api/runs").json()["calls"]
    assert (call["label"], call["trials"]) == ("a small model", 16)
    postgres.kill()
    assert client.get("/api/runs").status_code == 503
    postgres.start()
    assert client.get(f"/api/model/{call['call']}").status_code == 200
    source.forget()


def test_empty_databases_are_shown(tmp_path: Path) -> None:
    open(tmp_path / "empty.db").close()
    assert client_of(tmp_path / "empty.db").get("/api/runs").json()["calls"] == []


def test_two_pages_ask_at_once(client: TestClient) -> None:
    run = client.get("/api/runs").json()["calls"][0]["runs"][0]["uid"]
    codes: list[int] = []
    threads = [
        threading.Thread(target=lambda: codes.append(client.get(f"/api/run/{run}").status_code))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 8


def test_reports_are_one_file_that_asks_nobody(tmp_path: Path) -> None:
    with open(copy_of_real_run(tmp_path), readonly=True) as db:
        page = make_page(db)
    own = page.replace(plotly_script().replace("</script", "<\\/script"), "")
    assert len(page) < 8_000_000
    assert "src=" not in own
    assert "http://" not in own.replace("http-equiv", "")
    assert "import " not in join_scripts()
    data = json.loads(own.partition('id="report-data">')[2].partition("</script>")[0])
    assert sum(name.startswith("kernel/") for name in data) == 2


@pytest.mark.parametrize(
    ("kind", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("md", b"# a small model\n"), ("json", b"{")]
)
def test_plots_and_tables_alone(kind: str, begins: bytes, tmp_path: Path) -> None:
    if kind == "png":
        pytest.importorskip("resvg_py", reason="pip install 'metaschedule[dashboard]'")
    out = tmp_path / f"report.{kind}"
    words = ["report", str(copy_of_real_run(tmp_path)), "--format", kind, "-o", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert out.read_bytes().startswith(begins)
    if kind == "json":
        assert sum(name.startswith("run/") for name in json.loads(out.read_text())) == 2


def test_hostile_names_stay_text_in_a_report(tmp_path: Path) -> None:
    with open(many_records(tmp_path / "hostile.db", 20, HOSTILE)) as db:
        page = make_page(db)
    assert HOSTILE not in page


def test_a_report_of_a_thousand_trials_is_small(tmp_path: Path) -> None:
    with open(many_records(tmp_path / "many.db", 1000)) as db:
        assert len(make_page(db)) < 8_000_000
