"""The code of a page: its Python blocks, run one after the other as a reader would paste them.

    ```python                       is run
    <!-- not run: WHY -->           before a block: it is not, and tests/docs/test_code_blocks.py counts it
    <!-- run first                  code that is run and not shown: it makes what a block takes for granted
    x = ...
    -->
    <!-- written by SCRIPT --> ... <!-- end -->   what a script printed, which another test compares

`python -m tests.docs.blocks PAGE` runs a page in the working directory, with tuning budgets of a few trials.
A block that raises ends it, with the line of the page in the traceback.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRIALS = 2
PART = re.compile(
    r"<!-- written by .*?<!-- end -->"
    r"|<!-- run first\n(?P<hidden>.*?)-->"
    r"|(?:<!-- not run: (?P<reason>[^>]*?) -->\n\s*)?^ *```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A piece of code, the line of the page it begins at, and why it is not run, if so."""

    language: str
    code: str
    line: int
    reason: str | None = None


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found: list[Block] = []
    for part in PART.finditer(text):
        if part["hidden"] is not None:
            language, code, start = "python", part["hidden"], part.start("hidden")
        elif part["code"] is not None:
            language, code, start = part["language"], textwrap.dedent(part["code"]), part.start("code")
        else:
            continue
        found.append(Block(language, code, text.count("\n", 0, start) + 1, part["reason"]))
    return found


def run_page(page: Path) -> None:
    """All blocks in one namespace. They are compiled as lines of the page, where `inspect` finds them."""
    shorten_tuning(page.read_text())
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        if block.language == "python" and block.reason is None:
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, str(page), "exec"), namespace)


def shorten_tuning(text: str) -> None:
    import metaschedule as ms

    ms.tune = limit_trials(ms.tune)
    for name in ("torch", "onnx"):
        if f"ms.{name}.tune" in text:  # which takes seconds to import
            module = getattr(ms, name)
            module.tune = limit_trials(module.tune)


def limit_trials(tune: Callable[..., Any]) -> Callable[..., Any]:
    """`tune` with at most `TRIALS` trials, whatever it is asked for."""
    signature = inspect.signature(tune)

    @functools.wraps(tune)
    def limited(*args: Any, **options: Any) -> Any:
        signature.bind(*args, **options)
        options["trials"] = min(TRIALS, options.get("trials") or TRIALS)
        return tune(*args, **options)

    return limited


if __name__ == "__main__":
    run_page(Path(sys.argv[1]).resolve())
