"""Which program a command is about: the name of a workload, or `file.py:name`."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .. import workloads
from ..ir import Program

if TYPE_CHECKING:
    from ..torch.placement import GraphCall

ONNX = ".onnx"


def find_program(spec: str, config: int = 0) -> Program:
    """The program that `GMM`, or `kernels.py:blur`, stands for. A name in a file is a program or a function
    that makes one."""
    path, colon, name = spec.rpartition(":")
    if not colon:
        if spec not in workloads.names():
            known = ", ".join(workloads.names())
            raise typer.BadParameter(
                f"there is no workload {spec!r}; known are {known}, or give file.py:name"
            )
        count = len(workloads.configurations(spec))
        if not 0 <= config < count:
            raise typer.BadParameter(f"{spec} has configurations 0 to {count - 1}, not {config}")
        return workloads.create(spec, config)
    program = evaluate(spec)
    if not isinstance(program, Program):
        raise typer.BadParameter(
            f"{spec} is a {type(program).__name__}, neither a program nor a function that makes one"
        )
    return program


@dataclass(frozen=True)
class Tasks:
    """Programs to tune, and how often each is called. `threads` are those that they will be called with; None
    for as many as the target has cores."""

    programs: list[Program]
    weights: list[float]
    threads: int | None = None
    calls: Sequence[GraphCall] = ()  # of the model that they are of


def find_tasks(spec: str, config: int = 0) -> Tasks:
    """What to tune: a program, or those of a model, for which a function in a file gives
    `(model, example_args)`."""
    if spec.endswith(ONNX):
        return find_onnx_tasks(spec)
    found = evaluate(spec) if ":" in spec else None
    if not isinstance(found, tuple):
        return Tasks([find_program(spec, config)], [1])
    from torch import get_num_threads  # not at the top: most commands need no torch

    from ..torch.explain import look
    from ..torch.tasks import tasks

    calls = look(*found)
    parts = tasks([call.parts for call in calls])
    return Tasks([task.program for task in parts], [task.weight for task in parts], get_num_threads(), calls)


def find_onnx_tasks(path: str) -> Tasks:
    """The programs of a model in ONNX; sizes that it leaves open are 1."""
    try:
        from torch import get_num_threads

        from ..onnx.errors import OnnxError
        from ..onnx.tuning import fuse_model
    except ImportError as why:
        raise typer.BadParameter(f'{why}: pip install "metaschedule[onnx]"') from None
    from ..torch.tasks import tasks

    try:
        call = fuse_model(path)
    except (OnnxError, OSError) as why:
        raise typer.BadParameter(str(why)) from None
    parts = tasks([call.parts])
    return Tasks([task.program for task in parts], [task.weight for task in parts], get_num_threads(), [call])


def evaluate(spec: str) -> Any:
    """What `file.py:name` is, or what it returns if it is a function."""
    path, _, name = spec.rpartition(":")
    with running(Path(path)):
        found = load_name(Path(path), name)
        return found() if isinstance(found, Callable) and not isinstance(found, Program) else found


@contextmanager
def running(path: Path) -> Iterator[None]:
    """What a user's file raises is told as Python tells it, from the file on: our frames are left out."""
    try:
        yield
    except typer.BadParameter:
        raise
    except Exception as why:
        at = why.__traceback__
        while at is not None and Path(at.tb_frame.f_code.co_filename) != path.resolve():
            at = at.tb_next
        told = "".join(traceback.format_exception(type(why), why, at)).rstrip()
        print(f"{told}\n{path} could not be run", file=sys.stderr)
        raise typer.Exit(1) from why


def load_name(path: Path, name: str) -> Any:
    """What is called `name` in a Python file."""
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses in the file look themselves up
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        names = ", ".join(n for n, v in vars(module).items() if isinstance(v, Program)) or "no programs"
        raise typer.BadParameter(f"{path} has no {name!r}; it has {names}")
    return getattr(module, name)
