"""`Identity`: what must be the same for an entry to mean the same: the package's code, LLVM, the machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

ROOT = Path(__file__).parent.parent
CODE = (".py", ".c", ".h")


def identify(target: Mapping[str, Any]) -> str:
    """Of what this version of the package makes for a target: 16 hexadecimal digits, in file names."""
    return digest_of([*versions(), target])[:16]


@cache
def versions() -> tuple[str, ...]:
    """The package's code by its content, so that an edit counts; llvmlite and its LLVM."""
    return code_digest(), llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info))


def code_digest() -> str:
    """Of the files of the package: 3 MB, 10 ms."""
    whole = hashlib.sha256()
    for path in sorted(p for p in ROOT.rglob("*") if p.suffix in CODE):
        whole.update(f"{path.relative_to(ROOT)}\0".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()


def digest_of(data: Any) -> str:
    """Of plain values: 64 hexadecimal digits.

    >>> digest_of({"a": 1, "b": (2,)}) == digest_of({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
