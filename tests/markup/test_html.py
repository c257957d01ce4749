"""What notebooks show: whole, well-formed, and never the HTML of a user's name."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

import metaschedule as ms
from metaschedule.markup import html, svg
from metaschedule.search.notebook import Picture, ProgressBar, is_notebook
from tests.dashboard.databases import HOSTILE


class Tags(HTMLParser):
    """Checks that every tag is closed, and collects the text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


@pytest.fixture(scope="module")
def result() -> Any:
    return ms.tune(ms.workloads.create("GMM", b=1, n=16, m=16, k=16), trials=4)


def test_scripts_keep_every_character(result: Any) -> None:
    for value, expected in (
        (result.program, str(result.program)),
        (result.trace, str(result.trace)),
        (result.schedule, str(result.schedule.program)),
    ):
        shown = Tags(value._repr_html_())
        assert expected in shown.text
        assert "span" in shown.seen


def test_results_show_every_trial(result: Any) -> None:
    markup = result._repr_html_()
    shown = Tags(markup)
    assert markup.count("<circle") == sum(not r.confirmed for r in result.records)
    assert str(result.trace) in shown.text
    assert str(result) in shown.text


def test_spaces_show_their_modules() -> None:
    space = ms.space.default("x86-64-v3,cores=2")
    shown = Tags(space._repr_html_())
    assert shown.seen.count("tr") == 1 + len(space.modules) + len(space.postprocessors) + len(space.checks)
    assert "MultiLevelTiling" in shown.text


def test_failed_trials_are_hollow() -> None:
    drawn = svg.course([None, 3e-6, None, 1e-6])
    Tags(drawn)
    assert drawn.count("fill='none' stroke='#b8574f'") == 2
    assert svg.course([None]) == ""


def test_hostile_text_stays_text() -> None:
    for markup in (
        html.script(HOSTILE),
        html.table([HOSTILE], [[HOSTILE]]),
        html.paragraph(HOSTILE),
        html.unfold(HOSTILE),
        html.progress(1, 2, HOSTILE),
    ):
        shown = Tags(markup)
        assert not {"script", "img"} & set(shown.seen)
        assert HOSTILE in shown.text


def test_the_bar_fills_and_ends() -> None:
    assert not is_notebook()
    shown: list[Picture] = []

    class Output:
        def update(self, picture: Picture) -> None:
            shown.append(picture)

    ms.tune(ms.workloads.create("GMM", b=1, n=16, m=16, k=16), trials=4, progress=ProgressBar(Output()))
    assert 'value="4" max="4"' in shown[-1]._repr_html_()
    said = Tags(shown[-1]._repr_html_()).text
    assert "GMM" in said
    assert not {"left", "confirming"} & set(said.replace(",", " ").replace(":", " ").split())
