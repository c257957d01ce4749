"""What catches any error keeps it: raises, hands it on, or logs it with its traceback."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "metaschedule"
BROAD = {"Exception", "BaseException"}
HANDS_ON = {"append", "give_up"}  # functions that are given the error itself


def broad_handlers(tree: ast.AST) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if any(kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD) for kind in kinds):
                yield node


def broad_suppressions(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("suppress"):
            continue
        if any(isinstance(a, ast.Name) and a.id in BROAD for a in node.args):
            yield node


def keeps_error(handler: ast.ExceptHandler) -> bool:
    def is_error(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == handler.name

    for node in (inner for s in handler.body for inner in ast.walk(s)):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Assign) and is_error(node.value):
            return True
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in ("format_exc", "print_exc") or any(k.arg == "exc_info" for k in node.keywords):
                return True
            if called in HANDS_ON and any(map(is_error, node.args)):
                return True
    return False


@pytest.mark.parametrize(
    ("handler", "keeps"),
    [
        ("except Exception: pass", False),
        ("except: x = 1", False),
        ("except (KeyError, Exception) as e: log.debug('%s', e)", False),
        ("except Exception as e: log.debug('it fails', exc_info=True)", True),
        ("except Exception as e: self.error = e", True),
        ("except BaseException: raise", True),
    ],
)
def test_a_handler_that_hides_is_told_from_one_that_does_not(handler: str, keeps: bool) -> None:
    (found,) = broad_handlers(ast.parse(f"try: f()\n{handler}"))
    assert keeps_error(found) == keeps


def test_no_broad_handler_hides_a_bug() -> None:
    hidden: list[str] = []
    count = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        found = list(broad_handlers(tree))
        count += len(found)
        places = [h.lineno for h in found if not keeps_error(h)]
        places += [s.lineno for s in broad_suppressions(tree)]
        hidden += [f"{path.relative_to(PACKAGE.parent)}:{line}" for line in places]
    assert count > 10
    assert not hidden
