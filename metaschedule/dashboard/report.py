"""One file that shows what the dashboard shows of a run: to attach to a message, or to keep.

The page's own scripts are joined into one, the plotting library's stands beside it, and the data of every
view that the page can lead to is embedded: the file asks nobody for anything, as its security policy says.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..database import Database
from ..errors import ScheduleError
from .page import plotly_script, read_file
from .views import finite, view

SCRIPTS = ("text", "charts", "views", "app")  # in the order in which they need each other
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'"
)
IMPORT = re.compile(r"^import (?:\* as (\w+)|\{[^}]*\}) from \"\./(\w+)\.js\";\n", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const) (\w+)", re.MULTILINE)


def make_page(db: Database, call: str | None = None) -> str:
    """HTML that needs nothing else, of one call of `tune` (the latest unless named) and its kernels."""
    data = collect(db, call)
    html, _ = read_file("index.html")
    style, _ = read_file("style.css")
    html = html.replace('<link rel="stylesheet" href="style.css">', f"<style>\n{style}</style>")
    html = html.replace(
        '<meta charset="utf-8">',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
    )
    plotly = plotly_script().replace("</script", "<\\/script")
    scripts = (
        f"<script>{plotly}</script>\n"
        f'<script type="application/json" id="report-data">{embed(data)}</script>\n'
        f'<script type="module">\n{join_scripts()}</script>'
    )
    before, _, rest = html.partition('<script src="plotly.js"')
    return before + scripts + rest.partition('src="app.js"></script>')[2]


def collect(db: Database, call: str | None = None) -> dict[str, Any]:
    """The data of every view that can be reached from a call's page, by its path."""
    calls = view(db, "runs")["calls"]
    chosen = next((c for c in calls if call in (None, c["call"])), None)
    if call is not None and chosen is None:
        raise LookupError(f"no call {call}")
    data: dict[str, Any] = {}
    if chosen is None:  # records of a version that kept no runs
        pairs = [(p["workload"], p["target"], None) for p in view(db, "runs")["programs"]]
        data["runs"] = view(db, "runs")
    else:
        data["runs"] = {**view(db, "runs"), "calls": [chosen], "programs": []}
        data[f"model/{chosen['call']}"] = view(db, f"model/{chosen['call']}")
        kernels = data[f"model/{chosen['call']}"]["kernels"]
        pairs = [(k["workload"], k["target"], k["run"]) for k in kernels]
    for workload, target, run in pairs:
        place = f"{quote(workload, safe='')}/{quote(target, safe='')}"
        data[f"space/{place}"] = view(db, f"space/{place}")
        candidates = [place]
        if run is not None:
            data[f"run/{run}"] = view(db, f"run/{run}")
            leader = data[f"run/{run}"]["leader"]  # another run of this program may have a faster one
            candidates += [f"{place}/{leader}"] if leader else []
        for name, candidate in itertools.product(("kernel", "steps", "code"), candidates):
            try:
                data[f"{name}/{candidate}"] = view(db, f"{name}/{candidate}")
            except (LookupError, ScheduleError) as error:
                data[f"{name}/{candidate}"] = {"error": str(error)}
    return finite(data)


def embed(data: Any) -> str:
    """JSON within HTML: no text of a database can end the script that holds it."""
    return json.dumps(data).replace("<", "\\u003c")


def join_scripts() -> str:
    """The page's modules as one: `import * as charts` becomes an object of what charts.js exports."""
    parts: list[str] = []
    for name in SCRIPTS:
        source, _ = read_file(f"{name}.js")
        exports = ", ".join(EXPORT.findall(source))
        spaces = {found[1]: found[2] for found in IMPORT.finditer(source) if found[1]}
        body = re.sub(r"^export ", "", IMPORT.sub("", source), flags=re.MULTILINE)
        named = "".join(
            f"const {{ {imported_names(source, other)} }} = {other}$;\n" for other in uses(source)
        )
        whole = "".join(f"const {local} = {other}$;\n" for local, other in spaces.items())
        parts.append(f"const {name}$ = (() => {{\n{named}{whole}{body}\nreturn {{ {exports} }};\n}})();\n")
    return "".join(parts)


def uses(source: str) -> list[str]:
    """Modules of which names are imported one by one."""
    return [found[2] for found in IMPORT.finditer(source) if not found[1]]


def imported_names(source: str, module: str) -> str:
    found = re.search(rf"^import \{{([^}}]*)\}} from \"\./{module}\.js\";", source, re.MULTILINE)
    return found[1].strip() if found else ""


def write_report(db: Database, path: Path, call: str | None = None) -> None:
    """Write `make_page`'s HTML to a file."""
    path.write_text(make_page(db, call), encoding="utf-8")
