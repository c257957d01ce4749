"""Takes the pictures of the dashboard in docs/images: `python scripts/screenshots.py [--db shown.db]`.

Without a database it tunes one, in a few minutes: a matrix product in two spaces and a small network. The
pictures are of real runs, so they differ from machine to machine and are not compared by a test. It needs
Debian's chromium, `pip install "metaschedule[dashboard]" playwright` and torch.
"""

from __future__ import annotations

import argparse
import base64
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import metaschedule as ms

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1400, 880


def tune_something(path: Path) -> None:
    """A matrix product in the space of AutoTVM and in ours, then the kernels of a network."""
    import torch

    product = ms.workloads.create("GMM", 0)
    ms.tune(product, trials=32, database=path, space=ms.space.preset("autotvm"), label="GMM, one tiling")
    ms.tune(product, trials=64, database=path, label="GMM, default space")
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3, 2, 1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3, 1, 1, groups=32),
        torch.nn.Conv2d(32, 64, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 128, 3, 2, 1),
        torch.nn.GELU(),
        torch.nn.AdaptiveAvgPool2d(7),
        torch.nn.Flatten(),
        torch.nn.Linear(128 * 49, 100),
        torch.nn.Softmax(-1),
    ).eval()
    ms.torch.tune(network, (torch.randn(1, 3, 112, 112),), trials=8, database=path)


@contextmanager
def serve(path: Path) -> Iterator[str]:
    """The address of a dashboard over a database."""
    command = [sys.executable, "-u", "-m", "metaschedule", "dashboard", str(path), "--port", "0"]
    server = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        (address,) = re.findall(r"http://\S+", server.stdout.readline())
        yield address
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        server.stdout.close()


def pages(path: Path) -> dict[str, str]:
    """The address of each view, on the runs of `tune_something` or on the largest of another database."""
    with ms.database.open(path, readonly=True) as db:
        runs = sorted(db.runs(), key=lambda run: run.started)
        calls: dict[str, list[Any]] = {}
        for run in runs:
            calls.setdefault(run.call, []).append(run)
        alone = [run for run in runs if len(calls[run.call]) == 1]
        first, best = alone[0], alone[-1]
        model = max(calls, key=lambda call: len(calls[call]))
        place = f"{best.workload}/{quote(best.target, safe='')}"
        leaders = db.ranked(best.workload, best.target, limit=20)
        other = next((r for r in leaders if r.sketch != leaders[0].sketch), leaders[-1])
    return {
        "runs": "#/",
        "run": f"#/run/{best.uid}",
        "model": f"#/model/{model}",
        "kernel": f"#/kernel/{place}",
        "space": f"#/space/{place}",
        "compare": f"#/compare/runs/{first.uid}/{best.uid}",
        "records": f"#/compare/records/{other.uid}/{leaders[0].uid}",
    }


def take(browser: Any, address: str, views: dict[str, str]) -> None:
    for theme in ("light", "dark"):
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=theme)
        for name, place in views.items():
            if theme == "dark" and name not in ("run", "kernel"):
                continue
            page.goto("about:blank")
            page.goto(address + place)
            page.wait_for_selector("h1")
            page.wait_for_timeout(1500)  # plots are drawn after the text
            if name == "kernel":  # what an instruction changed
                page.get_by_label("Trace", exact=True).locator("button", has_text="sch.split").nth(1).hover()
                page.wait_for_timeout(500)
            save(page, name if theme == "light" else f"{name}-dark")
            if name == "kernel" and theme == "light":
                page.get_by_role("button", name="Show the machine code").click()
                page.get_by_label("Assembly").wait_for()
                page.wait_for_timeout(300)
                page.locator("section", has=page.get_by_label("Assembly")).scroll_into_view_if_needed()
                save(page, "assembly", page.locator("section", has=page.get_by_label("Assembly")))
        page.close()
    phone = browser.new_page(viewport={"width": 400, "height": 800})
    phone.goto(address + views["run"])
    phone.wait_for_selector("h1")
    phone.wait_for_timeout(1500)
    save(phone, "run-narrow")
    phone.close()


def save(page: Any, name: str, part: Any = None) -> None:
    """A picture of what is seen, or of an element, as WebP: a third of the bytes of PNG, and sharp enough."""
    box = {"x": 0, "y": 0, **page.viewport_size} if part is None else part.bounding_box()
    options: dict[str, Any] = {"format": "webp", "quality": 85}
    if part is not None:
        box["y"] += page.evaluate("scrollY")
        options["clip"] = {**box, "height": min(box["height"], HEIGHT), "scale": 1}
    answer = page.context.new_cdp_session(page).send("Page.captureScreenshot", options)
    path = IMAGES / f"{name}.webp"
    path.write_bytes(base64.b64decode(answer["data"]))
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--db", type=Path, help="database to show; tuned into if it does not exist")
    given: Path | None = parser.parse_args().db
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as directory:
        path = given or Path(directory) / "shown.db"
        if not path.exists():
            tune_something(path)
        IMAGES.mkdir(exist_ok=True)
        with serve(path) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            take(browser, address, pages(path))
            browser.close()


if __name__ == "__main__":
    main()
