"""`compile`: an exported model ahead of time; `save` and `load`: a file that runs it in another process.

The file is a zip of the plan (JSON), the kernels' object code and the constants. Reading one executes nothing
but that code: no pickle, no import by name except of torch's operators.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
    treespec_dumps,
    treespec_loads,
)

from ..runtime import Executable, Kernel, StorageError
from .backend import Options, built
from .capture import capture_exported
from .kernels import Compiled
from .plan import Plan
from .runner import Runner
from .stored import plan_from_json, plan_to_json
from .tasks import DatabaseLike

VERSION = 2


class Artefact:
    """A compiled model, called as the model is. `examples` are the leaves of its arguments; those that are no
    tensors are fixed."""

    def __init__(self, runner: Runner, takes: TreeSpec, gives: TreeSpec, fixed: Sequence[Any]) -> None:
        self.runner, self.takes, self.gives = runner, takes, gives
        self.fixed = list(fixed)  # None where a tensor is taken

    @property
    def plan(self) -> Plan:
        return self.runner.plan

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        if spec != self.takes:
            raise TypeError(f"the model was exported for arguments like {self.takes}, got {spec}")
        return tree_unflatten(self.runner(self._tensors(leaves)), self.gives)

    def _tensors(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors among the arguments, checked: kernels trust shapes and dtypes."""
        expected = iter(self.plan.inputs)
        found: list[torch.Tensor] = []
        for number, (leaf, fixed) in enumerate(zip(leaves, self.fixed, strict=True)):
            if not isinstance(leaf, torch.Tensor):
                if leaf != fixed:
                    raise ValueError(f"argument {number} was {fixed!r} when exported, got {leaf!r}")
                continue
            shape, dtype = next(expected)
            got = tuple(leaf.shape), str(leaf.dtype).removeprefix("torch.")
            if got != (shape, dtype) or leaf.device.type != "cpu":
                text = f"{got[1]}{list(got[0])} on {leaf.device.type}"
                raise ValueError(f"argument {number} must be {dtype}{list(shape)} on cpu, got {text}")
            found.append(leaf)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads, in any process on a machine like this one."""
        plan = self.plan
        content = {
            "version": VERSION,
            "plan": plan_to_json(plan),
            "takes": treespec_dumps(self.takes),
            "gives": treespec_dumps(self.gives),
            "fixed": self.fixed,
            "kernels": [{**c.kernel.kernel.to_json(), "llvm": ""} for c in plan.kernels],
        }
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("model.json", json.dumps(content))
            for n, compiled in enumerate(plan.kernels):
                file.writestr(f"kernels/{n}.o", compiled.kernel.code)
            for n, tensor in enumerate(plan.constants):
                file.writestr(f"constants/{n}", as_bytes(tensor).numpy().tobytes())


def compile(exported: ExportedProgram, *, database: DatabaseLike = None) -> Artefact:
    """Compile an exported model for inputs like its examples, with the records of the database.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> run = compile(torch.export.export(model, (torch.ones(2, 8),)))
    >>> run(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """
    leaves = tree_leaves(exported.example_inputs)
    fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with torch.no_grad():
        runner = built(capture_exported(exported), Options(database))
    takes, gives = exported.call_spec.in_spec, exported.call_spec.out_spec
    assert takes is not None
    assert gives is not None
    return Artefact(runner, takes, gives, fixed)


def load(path: str | os.PathLike[str]) -> Artefact:
    """The model that `Artefact.save` wrote; nothing is traced, tuned or compiled."""
    try:
        with zipfile.ZipFile(path) as file:
            content = json.loads(file.read("model.json"))
            if content["version"] != VERSION:
                raise StorageError(f"{path}: has format {content['version']}, this version reads {VERSION}")
            kernels = [
                Compiled(Executable(Kernel.from_json(k), code=file.read(f"kernels/{n}.o")), None, None)
                for n, k in enumerate(content["kernels"])
            ]
            plan = plan_from_json(content["plan"], kernels, lambda n: file.read(f"constants/{n}"))
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise StorageError(f"{path}: not a saved model, or a damaged one: {error}") from error
    specs = [treespec_loads(content[which]) for which in ("takes", "gives")]
    return Artefact(Runner(plan), specs[0], specs[1], content["fixed"])


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
