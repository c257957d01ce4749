"""The page's files: ours out of this package, the plotting library's out of its own."""

from __future__ import annotations

import functools
from importlib import resources

FILES = {  # all that is served; nothing else of the machine is
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "views.js": "text/javascript; charset=utf-8",
    "text.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}


def read_file(name: str) -> tuple[str, str]:
    """Text and type of one of `FILES`."""
    return (resources.files("metaschedule.dashboard") / "static" / name).read_text(encoding="utf-8"), FILES[
        name
    ]


@functools.cache
def plotly_script() -> str:
    """Plotly's JavaScript out of the installed `plotly`: 4.8 MB that need no internet. Bokeh's wheel carries
    its own too, but lacks parallel coordinates and treemaps, which two of the views are made of."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
