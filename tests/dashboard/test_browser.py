"""The page in a real browser, on the database of a real run: what is drawn, followed, typed and heard."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from metaschedule.database import Database, Record, TuningRun, open
from tests.dashboard.databases import HOSTILE, copy_of_real_run, many_records

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
pytest.importorskip("starlette", reason="pip install 'metaschedule[dashboard]'")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("no chromium here (Debian's package)", allow_module_level=True)

pytestmark = pytest.mark.xdist_group("browser")


class Server:
    """`metaschedule dashboard` in a process of its own."""

    def __init__(self, path: Path, port: int = 0) -> None:
        command = [
            sys.executable,
            "-m",
            "metaschedule",
            "dashboard",
            str(path),
            "--port",
            str(port),
            "--no-browser",
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[0]
        self.port = int(re.findall(r":(\d+)/", self.address)[0])

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that must not complain."""
    found = browser.new_page(viewport={"width": 1200, "height": 900})
    said: list[str] = []
    found.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
    found.on("pageerror", lambda error: said.append(str(error)))
    yield found
    found.close()
    assert [text for text in said if "ERR_CONNECTION" not in text and "503" not in text] == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Server]:
    server = Server(copy_of_real_run(tmp_path))
    yield server
    server.stop()


def test_from_the_model_to_the_machine_code(page: Any, served: Server) -> None:
    page.goto(served.address)
    page.get_by_role("link", name="a small model").click()
    page.get_by_role("heading", name="a small model").wait_for()
    page.wait_for_selector(".treemaplayer .trace")
    assert page.locator(".barlayer .trace .point").count() == 4  # two kernels, before and after
    page.locator("table a", has_text="GMM").first.click()
    page.get_by_role("heading", name=re.compile("^GMM: ")).wait_for()
    lines = page.get_by_label("Trace", exact=True).locator("button")
    split = next(n for n in range(lines.count()) if "sch.split" in lines.nth(n).inner_text())
    lines.nth(split).hover()
    page.get_by_role("heading", name=f"After instruction {split + 1}").wait_for()
    assert page.locator("pre .new").count() > 0
    page.get_by_role("button", name="Show the machine code").click()
    page.get_by_label("Assembly").wait_for()
    assert page.locator("pre .mark").count() > 2
    assert page.get_by_text("bound by").is_visible()
    for title, marks in (("Decisions of the best", "lines"), ("The cost model", "points")):
        part = page.locator("section", has=page.get_by_role("heading", name=title))
        part.scroll_into_view_if_needed()
        part.locator(f".scatterlayer .{marks} path").first.wait_for()


def test_a_run_draws_every_candidate(page: Any, served: Server, tmp_path: Path) -> None:
    with open(tmp_path / "tuning.db", readonly=True) as db:
        run = db.runs()[0]
        count = sum(not r.confirmed for r in db.records(run=run.uid))
    page.goto(f"{served.address}#/run/{run.uid}")
    page.wait_for_selector(".scatterlayer .points path")
    first = page.locator(".plot").first
    assert first.locator(".scatterlayer .points path").count() == count
    page.locator("section", has=page.get_by_role("heading", name="Phases")).scroll_into_view_if_needed()
    page.locator(".barlayer .trace .point").first.wait_for()
    page.get_by_text("The same as a table").first.click()
    assert page.get_by_role("region", name="Latency over trials").is_visible()


def test_space_and_comparison(page: Any, served: Server, tmp_path: Path) -> None:
    page.goto(served.address)
    page.get_by_role("link", name="space").first.click()
    page.get_by_role("heading", name=re.compile("what was searched")).wait_for()
    assert page.locator("main table").first.locator("tbody tr").count() >= 1
    page.goto(served.address)
    page.locator("section").nth(1).locator("a", has_text="GMM").click()
    page.get_by_role("link", name="compare").first.click()
    page.get_by_role("heading", name="Two records").wait_for()
    assert page.get_by_label("Traces side by side: second").is_visible()


def test_runs_and_spaces_are_compared(page: Any, served: Server, tmp_path: Path) -> None:
    with open(tmp_path / "tuning.db", readonly=True) as db:
        first, second = db.runs()
    page.goto(f"{served.address}#/compare/runs/{first.uid}/{second.uid}")
    page.get_by_role("heading", name="Two runs").wait_for()
    page.wait_for_selector(".scatterlayer .trace")
    assert page.locator(".scatterlayer .trace").count() == 2
    assert page.get_by_role("region", name="Runs").locator("tbody tr").first.inner_text().count("GMM") == 1
    place = f"{first.workload}/{quote(first.target, safe='')}/{first.space}"
    page.goto(f"{served.address}#/compare/spaces/{place}/{first.space}")
    page.get_by_role("heading", name="Two spaces").wait_for()
    page.wait_for_selector(".scatterlayer .trace")
    assert page.get_by_role("region", name="Spaces").locator("tbody tr").count() == 2


def add_trial(path: Path, n: int) -> None:
    with open(path) as db:
        known = db.records(run="run")[0]
        run = db.runs()[0]
        db.add_all(
            [
                Record(
                    known.workload, known.target, known.sketch, known.decisions, "ok", latency=1e-6, trial=n,
                    run="run", elapsed=float(n),
                )
            ],
            TuningRun(**{**vars(run), "updated": time.time(), "stopped": None}),
        )  # fmt: skip


def wait_until(page: Any, condition: str) -> None:
    """Playwright's own waiting for a function evaluates text in the page, which its policy forbids."""
    deadline = time.monotonic() + 20
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(50)


def wait_for_dots(page: Any, count: int) -> None:
    dots = "document.querySelector('.plot').querySelectorAll('.scatterlayer .points path')"
    wait_until(page, f"{dots}.length === {count}")


def test_a_live_run_grows_and_survives_the_server(page: Any, tmp_path: Path) -> None:
    path = many_records(tmp_path / "live.db", 12)
    server = Server(path)
    dots = page.locator(".plot").first.locator(".scatterlayer .points path")
    try:
        page.goto(f"{server.address}#/run/run")
        page.wait_for_selector(".scatterlayer .points path")
        wait_until(page, "document.getElementById('state').textContent === 'live'")
        before = dots.count()
        add_trial(path, 12)
        wait_for_dots(page, before + 1)
        assert page.locator(".live").is_visible()
        server.stop()
        wait_until(page, "document.getElementById('state').className === 'bad'")
        add_trial(path, 13)
        server = Server(path, server.port)
        wait_for_dots(page, before + 2)
    finally:
        server.stop()


def test_two_pages_follow_a_run_and_say_when_its_database_is_gone(page: Any, tmp_path: Path) -> None:
    path = many_records(tmp_path / "live.db", 12)
    server = Server(path)
    other = page.context.browser.new_page()
    try:
        for one in (page, other):
            one.goto(f"{server.address}#/run/run")
            one.wait_for_selector(".scatterlayer .points path")
            wait_until(one, "document.getElementById('state').textContent === 'live'")
        before = page.locator(".plot").first.locator(".scatterlayer .points path").count()
        add_trial(path, 12)
        for one in (page, other):
            wait_for_dots(one, before + 1)
        path.rename(tmp_path / "elsewhere.db")
        for one in (page, other):
            wait_until(one, "document.getElementById('state').className === 'bad'")
        (tmp_path / "elsewhere.db").rename(path)
        for one in (page, other):
            wait_until(one, "document.getElementById('state').textContent === 'live'")
            wait_for_dots(one, before + 1)
    finally:
        other.close()
        server.stop()


def test_hostile_names_are_text(page: Any, tmp_path: Path) -> None:
    server = Server(many_records(tmp_path / "hostile.db", 12, HOSTILE))
    try:
        for address in ("", "#/run/run", "#/model/call"):
            page.goto(server.address + address)
            page.wait_for_selector("h1")
            page.wait_for_timeout(300)
            assert page.title() != "owned"
            assert page.locator("main img").count() == 0
    finally:
        server.stop()


def addresses_of(db: Database) -> list[str]:
    """Of every view."""
    (run, other), kernel = db.runs(), db.summaries()[0]
    place = f"{kernel.workload}/{quote(kernel.target, safe='')}"
    first, second = (r.uid for r in db.ranked(kernel.workload, kernel.target, limit=2))
    return [
        *("#/", f"#/run/{run.uid}", f"#/model/{run.call}", f"#/kernel/{place}", f"#/space/{place}"),
        *(f"#/compare/runs/{run.uid}/{other.uid}", f"#/compare/records/{first}/{second}"),
        f"#/compare/spaces/{place}/{run.space}/{run.space}",
    ]


def test_narrow_screens_themes_and_keyboards(page: Any, served: Server, tmp_path: Path) -> None:
    with open(tmp_path / "tuning.db", readonly=True) as db:
        addresses = addresses_of(db)
    page.set_viewport_size({"width": 400, "height": 800})
    for address in addresses:
        page.goto(served.address + address)
        page.wait_for_selector("h1")
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.goto(served.address)
    page.wait_for_selector("h1")
    theme = page.evaluate("document.documentElement.dataset.theme")
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") != theme
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") != theme
    page.wait_for_selector("main a")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(
            "document.activeElement.closest('main') !== null && document.activeElement.tagName === 'A'"
        ):
            break
    page.keyboard.press("Enter")
    wait_until(page, "location.hash.length > 2")


def test_a_report_opens_from_a_file(page: Any, tmp_path: Path) -> None:
    from metaschedule.dashboard.report import write_report

    with open(copy_of_real_run(tmp_path), readonly=True) as db:
        write_report(db, tmp_path / "report.html")
    page.goto((tmp_path / "report.html").as_uri())
    page.get_by_role("link", name="a small model").click()
    page.wait_for_selector(".treemaplayer .trace")
    page.locator("table a", has_text="GMM").first.click()
    page.get_by_role("button", name="Show the machine code").click()
    page.get_by_label("Assembly").wait_for()
    seen: set[str] = set()
    waiting = ["#/"]
    while waiting:
        seen.add(address := waiting.pop())
        page.goto(f"{(tmp_path / 'report.html').as_uri()}{address}")
        page.wait_for_selector("h1")
        assert page.get_by_role("heading", name="Cannot be shown").count() == 0, address
        links = page.locator("main a").evaluate_all("found => found.map((a) => a.getAttribute('href'))")
        waiting += [link for link in set(links) - seen if link not in waiting]
    assert len(seen) == 8  # the list, the model; a run, a kernel and a space of each program


def axe_script() -> Path | None:
    """axe-core, where the set-up installed it (npm)."""
    for root in (
        Path.cwd() / "node_modules",
        Path("/usr/local/lib/node_modules"),
        Path("/usr/lib/node_modules"),
    ):
        if (script := root / "axe-core" / "axe.min.js").is_file():
            return script
    return None


@pytest.mark.skipif(axe_script() is None, reason="no axe-core here (npm install -g axe-core)")
def test_axe_finds_nothing_serious(browser: Any, served: Server, tmp_path: Path) -> None:
    with open(tmp_path / "tuning.db", readonly=True) as db:
        addresses = addresses_of(db)
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    found: dict[str, Any] = {}
    for theme in ("light", "dark"):
        for address in addresses:
            page.goto(served.address + address)
            page.evaluate(f"localStorage.setItem('theme', '{theme}')")
            page.reload()
            page.wait_for_selector("h1")
            page.wait_for_timeout(600)
            script = axe_script()
            assert script is not None
            page.add_script_tag(path=str(script))
            result = page.evaluate("axe.run({ resultTypes: ['violations'] })")
            for violation in result["violations"]:
                if violation["impact"] in ("serious", "critical"):
                    nodes = [node["html"][:160] for node in violation["nodes"][:3]]
                    found[f"{theme} {address} {violation['id']}"] = nodes
    context.close()
    assert found == {}
