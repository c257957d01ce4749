"""`compile`: an exported model ahead of time; `save` and `load`: a file that runs it in another process.

The file is a zip of the plan (JSON), the kernels' object code and the constants, with a digest of them all:
what has been damaged or edited is refused. Reading one executes nothing: no pickle, no import by name except
of torch's operators. The code is native and does what whoever made the file wants: load files
from people you trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
    treespec_dumps,
)

from ..runtime import Executable, Kernel, StorageError
from ..runtime.storage import write_atomically
from ..validation import check_arguments
from .backend import Options, build_runner
from .capture import capture_exported
from .fallback import attempt
from .kernels import Compiled
from .plan import Plan
from .runner import Runner
from .stored import decode, encode, plan_from_json, plan_to_json, structure
from .tasks import DatabaseLike

VERSION = 3
DIGEST = "digest"  # the last part of a file
TENSOR = object()
# What reading a file raises that is none of ours, or not any more. Running out of memory is not among these.
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
    LookupError, ValueError, TypeError, AttributeError, OverflowError, OSError,
)  # fmt: skip


class Artefact:
    """A compiled model, called as the model is, with tensors or NumPy's arrays. The leaves of its arguments
    that are no tensors are `fixed`."""

    def __init__(self, runner: Runner, takes: TreeSpec, gives: TreeSpec, fixed: Sequence[Any]) -> None:
        self.runner, self.takes, self.gives = runner, takes, gives
        self.fixed = list(fixed)  # TENSOR where one is taken

    @property
    def plan(self) -> Plan:
        return self.runner.plan

    def __reduce__(self) -> Any:
        raise TypeError("a compiled model is not pickled; save(path) writes it, ms.torch.load(path) reads it")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, in_order(kwargs, self.takes)))
        if spec != self.takes:
            raise TypeError(f"the model was exported for arguments like {self.takes}, got {spec}")
        return tree_unflatten(self.runner(self._tensors(leaves)), self.gives)

    def _tensors(self, leaves: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors among the arguments, checked: kernels trust shapes and dtypes."""
        expected = iter(self.plan.inputs)
        found: list[torch.Tensor] = []
        for number, (leaf, fixed) in enumerate(zip(leaves, self.fixed, strict=True)):
            if isinstance(leaf, np.ndarray):
                leaf = torch.from_numpy(leaf)
            if fixed is not TENSOR:
                if isinstance(leaf, torch.Tensor) or leaf != fixed:
                    raise ValueError(
                        f"argument {number} was {fixed!r} when exported, got {describe_leaf(leaf)}"
                    )
                continue
            shape, dtype = next(expected)
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(
                    f"argument {number} must be a tensor {dtype}{list(shape)}, got {type(leaf).__name__}"
                )
            got = tuple(leaf.shape), str(leaf.dtype).removeprefix("torch.")
            if got != (shape, dtype) or leaf.device.type != "cpu":
                raise ValueError(
                    f"argument {number} must be {dtype}{list(shape)} on cpu, got {describe_leaf(leaf)}"
                )
            found.append(leaf)
        return found

    @check_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads, in any process on a machine like this one; whole or not at all."""
        plan = self.plan
        content = {
            "version": VERSION,
            "plan": plan_to_json(plan),
            "takes": treespec_dumps(self.takes),
            "gives": treespec_dumps(self.gives),
            "fixed": [encode(value) if value is not TENSOR else {"tensor": True} for value in self.fixed],
            "kernels": [{**c.kernel.kernel.to_json(), "llvm": ""} for c in plan.kernels],
        }
        parts = {"model.json": json.dumps(content).encode()}
        parts |= {f"kernels/{n}.o": compiled.kernel.code for n, compiled in enumerate(plan.kernels)}
        parts |= {f"constants/{n}": as_bytes(t).numpy().tobytes() for n, t in enumerate(plan.constants)}
        with write_atomically(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, data)
            archive.writestr(DIGEST, digest(parts))


class EagerArtefact(Artefact):
    """An exported model that cannot be compiled: torch runs it."""

    def __init__(self, exported: ExportedProgram) -> None:
        self.module = exported.module()

    @property
    def plan(self) -> Plan:
        raise ValueError("this model runs in eager and has no plan; the log says why")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self.module(*args, **kwargs)

    def save(self, path: str | os.PathLike[str]) -> None:
        raise ValueError("this model runs in eager and cannot be saved; the log says why it is not compiled")


def compile(exported: ExportedProgram, *, database: DatabaseLike = None, strict: bool = False) -> Artefact:
    """Compile an exported model for inputs like its examples, with the records of the database. One that
    cannot be compiled runs in eager, with a warning; `strict` raises instead.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> run = compile(torch.export.export(model, (torch.ones(2, 8),)))
    >>> run(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """
    leaves = tree_leaves(exported.example_inputs)
    fixed = [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with torch.no_grad():
        runner = attempt(lambda: build_runner(capture_exported(exported), Options(database)), strict)
    if runner is None:
        return EagerArtefact(exported)
    takes, gives = exported.call_spec.in_spec, exported.call_spec.out_spec
    assert takes is not None
    assert gives is not None
    return Artefact(runner, takes, gives, fixed)


@check_arguments
def load(path: str | os.PathLike[str]) -> Artefact:
    """The model that `Artefact.save` wrote; nothing is traced, tuned or compiled."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                if sum(part.file_size for part in archive.infolist()) > os.fstat(file.fileno()).st_size:
                    raise StorageError(f"{path}: parts larger than the file: not a saved model")
                parts = {name: archive.read(name) for name in archive.namelist()}
            content = json.loads(parts["model.json"])
            if content["version"] != VERSION:
                raise StorageError(f"{path}: has format {content['version']}, this version reads {VERSION}")
            if parts.pop(DIGEST) != digest(parts):
                raise StorageError(f"{path}: damaged or edited: its content is not what its digest says")
            return unpack(content, parts)
        except UNREADABLE as error:
            raise StorageError(f"{path}: not a saved model, or a damaged one: {error}") from error


def unpack(content: Mapping[str, Any], parts: Mapping[str, bytes]) -> Artefact:
    kernels = [
        Compiled(Executable(Kernel.from_json(k), code=parts[f"kernels/{n}.o"]), None, None)
        for n, k in enumerate(content["kernels"])
    ]
    plan = plan_from_json(content["plan"], kernels, lambda n: parts[f"constants/{n}"])
    takes, gives = (structure(content[which]) for which in ("takes", "gives"))
    fixed = [TENSOR if value == {"tensor": True} else decode(value) for value in content["fixed"]]
    return Artefact(Runner(plan), takes, gives, fixed)


def digest(parts: Mapping[str, bytes]) -> bytes:
    """Of names and contents; in their order."""
    whole = hashlib.sha256()
    for name, data in parts.items():
        whole.update(f"{name} {len(data)}\n".encode())
        whole.update(data)
    return whole.hexdigest().encode()


def in_order(kwargs: dict[str, Any], takes: TreeSpec) -> dict[str, Any]:
    """Keyword arguments in the order in which the model was exported with them."""
    names = list(takes.child(1).context)
    return {name: kwargs[name] for name in names} if set(names) == set(kwargs) else kwargs


def describe_leaf(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device.type}"


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
