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
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils._pytree import (
    TreeSpec,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_unflatten,
    treespec_dumps,
)

from ..runtime import Executable, Kernel, StorageError
from ..runtime.model_library import INSIDE, export_model
from ..runtime.storage import write_atomically
from ..target import Target, missing_features
from ..validation import check_arguments
from .backend import Options, machine_of, plan_exported
from .fallback import attempt
from .kernels import Compiled
from .library import model_tables
from .plan import Plan
from .runner import Runner
from .stored import decode, encode, plan_from_json, plan_to_json, structure, tensor
from .tasks import DatabaseLike
from .transforms import is_transformed

VERSION = 4
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

    def __init__(
        self,
        plan: Plan,
        takes: TreeSpec,
        gives: TreeSpec,
        fixed: Sequence[Any],
        names: Sequence[str],
        target: Target,
    ) -> None:
        self._plan, self.takes, self.gives = plan, takes, gives
        self.fixed = list(fixed)  # TENSOR where one is taken
        self.names = list(names)  # of the tensors that it takes
        self.target = target
        self.runner = None if missing_features(target) else Runner(plan)

    @property
    def plan(self) -> Plan:
        return self._plan

    def __reduce__(self) -> Any:
        raise TypeError("a compiled model is not pickled; save(path) writes it, ms.torch.load(path) reads it")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, in_order(kwargs, self.takes)))
        if spec != self.takes:
            raise TypeError(f"the model was exported for arguments like {self.takes}, got {spec}")
        if self.runner is None:
            raise RuntimeError(other_machine(self.target))
        if is_transformed():
            raise TypeError("a compiled model is not traced, nor transformed by vmap or torch.func")
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
            "names": self.names,
            "target": self.target.to_json(),
            "kernels": [{**c.on_cpu.kernel.to_json(), "llvm": ""} for c in plan.kernels],
        }
        parts = {"model.json": json.dumps(content).encode()}
        parts |= {f"kernels/{n}.o": compiled.on_cpu.code for n, compiled in enumerate(plan.kernels)}
        parts |= {f"constants/{n}": as_bytes(t).numpy().tobytes() for n, t in enumerate(plan.constants)}
        with write_atomically(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, data in parts.items():
                archive.writestr(name, data)
            archive.writestr(DIGEST, digest(parts))

    @check_arguments
    def export_library(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        weights: str = INSIDE,
        cc: str = "cc",
    ) -> Path:
        """Write a shared library that runs the model without Python. Beside it come a C header `<name>.h` and
        `<name>_loader.py`, which needs NumPy only. `name` is what its functions begin with, by default the
        file's ("libresnet.so": resnet); `weights` are "inside", or "beside": in a file `<name>.weights` that
        is mapped; `cc` is the C compiler of the machine that the model is compiled for.

        A model of which torch computes a part is refused, with the names of these nodes.
        """
        tables = model_tables(self.plan, self.names, output_names(self.gives), self.target)
        return export_model(Path(path), tables, name, weights, cc)


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

    def export_library(self, path: str | os.PathLike[str], **_: Any) -> Path:
        raise ValueError(
            "this model runs in eager and cannot be exported; the log says why it is not compiled"
        )


def compile(
    exported: ExportedProgram,
    *,
    database: DatabaseLike = None,
    strict: bool = False,
    target: Target | str = "native",
) -> Artefact:
    """Compile an exported model for inputs like its examples, with the records of the database. One that
    cannot be compiled runs in eager, with a warning; `strict` raises instead. For another `target` than this
    machine it can be saved and exported, not called.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> run = compile(torch.export.export(model, (torch.ones(2, 8),)))
    >>> run(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """
    leaves = tree_leaves(exported.example_inputs)
    fixed = [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with torch.no_grad():
        machine = machine_of(target)
        if machine.gpu is not None:
            raise ValueError(f"target: models are saved for CPUs, not for {machine.name}; see torch.compile")
        plan = attempt(lambda: plan_exported(exported, Options(database), machine), strict)
    if plan is None:
        return EagerArtefact(exported)
    takes, gives = exported.call_spec.in_spec, exported.call_spec.out_spec
    assert takes is not None
    assert gives is not None
    names = [str(n) for n, one in zip(exported.graph_signature.user_inputs, fixed) if one is TENSOR]
    return Artefact(plan, takes, gives, fixed, names, machine)


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
            if missing_features(target := Target.from_json(content["target"])):
                raise StorageError(f"{path}: {other_machine(target)}")
            return unpack(content, parts)
        except UNREADABLE as error:
            raise StorageError(f"{path}: not a saved model, or a damaged one: {error}") from error


def unpack(content: Mapping[str, Any], parts: Mapping[str, bytes]) -> Artefact:
    kernels = [
        Compiled(Executable(Kernel.from_json(k), code=parts[f"kernels/{n}.o"]), None, None)
        for n, k in enumerate(content["kernels"])
    ]
    specs = content["plan"]["constants"]
    constants = [tensor(shape, dtype, parts[f"constants/{n}"]) for n, (shape, dtype) in enumerate(specs)]
    plan = plan_from_json(content["plan"], kernels, constants)
    takes, gives = (structure(content[which]) for which in ("takes", "gives"))
    fixed = [TENSOR if value == {"tensor": True} else decode(value) for value in content["fixed"]]
    return Artefact(plan, takes, gives, fixed, content["names"], Target.from_json(content["target"]))


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


def output_names(gives: TreeSpec) -> list[str]:
    """A name for each leaf of what a model returns, by the keys on the way to it.

    >>> output_names(tree_flatten({"logits": 0, "states": [1, 2]})[1]), output_names(tree_flatten(0)[1])
    (['logits', 'states_0', 'states_1'], ['output'])
    """
    paths, _ = tree_flatten_with_path(tree_unflatten(list(range(gives.num_leaves)), gives))
    keys = [re.findall(r"\w+", keystr(path)) for path, _ in paths]
    return ["_".join(key if key and not key[0].isdecimal() else ["output", *key]) for key in keys]


def other_machine(target: Target) -> str:
    return f"compiled for {target}; this machine lacks {', '.join(missing_features(target))}"


def describe_leaf(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    return f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device.type}"


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
