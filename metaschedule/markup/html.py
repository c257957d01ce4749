"""Coloured scripts, tables and parts that unfold, as HTML for notebooks.

Colours are those of the notebook's theme where it says so (JupyterLab's variables), else dark on light; no
script runs and nothing is fetched, so that a notebook shows them whether it is trusted or not.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

STYLE = """<style>
.metaschedule { background: var(--jp-layout-color1, #fbfbf9); color: var(--jp-content-font-color1, #1d1f21);
  padding: .4em .6em; font: 13px/1.5 system-ui, sans-serif; overflow-x: auto }
.metaschedule pre { font: 12px/1.45 ui-monospace, monospace; margin: .3em 0;
  background: none; color: inherit }
.metaschedule table { border-collapse: collapse; margin: .3em 0; font-variant-numeric: tabular-nums }
.metaschedule th, .metaschedule td { text-align: left; padding: .1em .8em .1em 0; border: 0 }
.metaschedule .n { text-align: right }
.metaschedule summary { cursor: pointer }
.metaschedule .k { color: var(--jp-mirror-editor-keyword-color, #8a3ab9) }
.metaschedule .f { color: var(--jp-mirror-editor-def-color, #1756a9) }
.metaschedule .v { color: var(--jp-mirror-editor-number-color, #9a4a00) }
.metaschedule .c { color: var(--jp-mirror-editor-comment-color, #5f6b5f) }
</style>"""
KEYWORDS = "for|in|with|def|if|else|while|return|and|or|not|True|False|None"
SCRIPT = re.compile(
    rf"(?P<c>\#[^\n]*)|(?P<v>\"(?:[^\"\\\n]|\\.)*\"|\b\d[\w.]*)|\b(?P<k>{KEYWORDS})\b|(?P<f>\b(?:T|sch|ms)\.\w+)"
)


def view(*parts: str) -> str:
    """What a `_repr_html_` gives: HTML with the style that its parts need."""
    return f'<div class="metaschedule">{STYLE}{"".join(parts)}</div>'


def script(text: str) -> str:
    """A program or a trace with its keywords, names, numbers and comments coloured.

    >>> script("i < 3  # few")
    '<pre>i &lt; <span class="v">3</span>  <span class="c"># few</span></pre>'
    """
    parts: list[str] = []
    end = 0
    for found in SCRIPT.finditer(text):
        parts.append(html.escape(text[end : found.start()], quote=False))
        parts.append(f'<span class="{found.lastgroup}">{html.escape(found[0], quote=False)}</span>')
        end = found.end()
    return f"<pre>{''.join(parts)}{html.escape(text[end:], quote=False)}</pre>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are text, or HTML as `Markup`; a column named with a leading ">" holds numbers. It has a class
    because sites give tables without one a look of their own.

    >>> table([">us"], [["<3"]])
    '<table class="t"><tr><th class="n">us</th></tr><tr><td class="n">&lt;3</td></tr></table>'
    """
    numeric = [' class="n"' if c.startswith(">") else "" for c in columns]
    head = "".join(f"<th{kind}>{escape(c.lstrip('>'))}</th>" for c, kind in zip(columns, numeric))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, numeric)) + "</tr>"
        for row in rows
    )
    return f'<table class="t"><tr>{head}</tr>{body}</table>'


class Markup(str):
    """Text that is HTML already."""


def escape(value: object) -> str:
    return value if isinstance(value, Markup) else html.escape(str(value), quote=False)


def paragraph(text: str) -> str:
    return f"<div>{escape(text)}</div>"


def unfold(title: str, *parts: str) -> str:
    """Parts that a click shows."""
    return f"<details><summary>{escape(title)}</summary>{''.join(parts)}</details>"


def bar(share: float, title: str = "") -> Markup:
    """A bar of so much of its cell."""
    width = max(0.0, min(1.0, share)) * 120
    said = html.escape(title)
    return Markup(
        f'<svg width="120" height="10" role="img" aria-label="{said}"><rect width="{width:.1f}" height="10"'
        f' fill="#3b6fb6"/></svg>'
    )


def progress(done: int, of: int | None, text: str) -> str:
    """A bar that fills; one that only moves where the end is not known."""
    known = f'value="{done}" max="{of}"' if of else ""
    return f'<progress {known} style="width: 20em; vertical-align: middle"></progress> {escape(text)}'
