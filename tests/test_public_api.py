"""Every public function with arguments that it should not get: it refuses them by name.

The functions come from `__all__` of the packages and the calls from their signatures, so a new function is
tried as soon as it is public.
"""

from __future__ import annotations

import inspect
import math
import os
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metaschedule as ms
from metaschedule import te
from metaschedule.database import DatabaseError
from metaschedule.schedule import Schedule, Trace, register_intrinsic
from tests.conftest import LONG
from tests.hostile import Whim, hostile, refused

CALLS = (20, 200)  # of an example: at a glance, in the long run
PROGRAM = ms.workloads.create("GMM", b=1, n=4, m=4, k=8)
KERNEL: Any = ms.build(Schedule(PROGRAM))
PAIR: Any = (1.0, 2.0)
THREE: Any = 3


class Reached(Exception):
    """The call was accepted, and would now do its work."""


def stop(*_: Any, **__: Any) -> Any:
    raise Reached


def public(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    every = {f"{module.__name__}.{n}": getattr(module, n) for n in names if n != "torch"}
    return {n: f for n, f in every.items() if inspect.isfunction(f)}


def methods(owner: Any, *names: str) -> dict[str, Callable[..., Any]]:
    return {f"{type(owner).__name__}.{name}": getattr(owner, name) for name in names}


def functions() -> dict[str, Callable[..., Any]]:
    sch = Schedule(PROGRAM)
    (_, i, *_) = sch.get_loops(sch.get_block("matmul"))
    sch.sample_tile(i, 2)
    space = ms.space.Space([], name="as written")
    found: dict[str, Callable[..., Any]] = {}
    for module in (ms, te, ms.space, ms.workloads, ms.database, ms.target):
        found |= public(module)
    found |= methods(sch.trace, "apply", "with_decisions", "steps")
    found |= methods(sch, "run", "sample", "can", "get")
    found |= methods(space, "sample", "sketches", "size", "replace", "__add__", "__sub__")
    db = ms.database.open(None)
    found |= methods(db, "add_program", "add", "add_all", "records", "best", "merge", "import_", "export")
    found |= methods(KERNEL, "__call__", "benchmark", "bind", "source", "save", "export_library")
    found |= {"load": ms.runtime.load, "set_num_threads": ms.runtime.set_num_threads}
    found |= {"Trace.from_json": Trace.from_json, "Schedule": Schedule, "Space": ms.space.Space}
    return found | {"register_intrinsic": register_intrinsic}


FUNCTIONS = functions()
# It was accepted, or the error says what it is of.
ACCEPTED = (Reached, DatabaseError, ms.InterpreterError, ms.ScriptError, OSError, Whim)
REAL = [PROGRAM, "matmul", "GMM", 0, 1, 2, (4, 4), [4], "float32", te.placeholder((4,)), te.reduce_axis(4)]


def try_one(rng: random.Random) -> None:
    name = rng.choice(sorted(FUNCTIONS))
    function = FUNCTIONS[name]
    parameters = list(inspect.signature(function).parameters.values())
    args: list[Any] = []
    named: dict[str, Any] = {}
    for p in parameters:
        value = hostile(rng, REAL)
        if p.kind is p.VAR_POSITIONAL:
            args += [hostile(rng, REAL) for _ in range(rng.randrange(3))]
        elif p.kind is p.KEYWORD_ONLY and rng.random() < 0.5:
            named[p.name] = value
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            args.append(value)
    names = [name.rpartition(".")[2].strip("_"), *[p.name for p in parameters], *words(name)]
    try:
        refused(lambda: function(*args, **cheap(name, named)), names, (TypeError, ValueError))
    except ACCEPTED:
        pass


def cheap(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """Nothing is measured, and no other program started."""
    if name == "metaschedule.tune":
        return {"trials": 1, "space": lambda sch: None, **named, "measurer": stop}
    if name == "Executable.benchmark":
        return {**named, "watch": stop}
    return {key: value for key, value in named.items() if key != "cc"}


def words(name: str) -> list[str]:
    """What errors of some functions speak of instead of a parameter."""
    if "te." in name:
        kinds = ["bool", "float", "integer"]
        return ["expression", "extent", "dtype", "tensor", "condition", "fit", "output", *kinds]
    if "Executable" in name:
        return ["input", "argument"]
    return ["saved", "decision", "script", "workload", "create", "space", "JSON", "parameters", "ms.parse"]


@given(st.integers(0, 2**32))
def test_hostile_arguments_are_refused_by_name(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    os.chdir(tmp_path_factory.getbasetemp())  # some are told to write files
    rng = random.Random(seed)
    for _ in range(CALLS[LONG["long"]]):
        try_one(rng)


# --- what was found ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 2.5}, "tune: trials must be an integer or None, got 2.5"),
        ({"trials": True}, "tune: trials must be an integer or None, got True"),
        ({"trials": -1}, "tune: trials must be at least 1, got -1"),
        ({"trials": 0}, "tune: trials must be at least 1, got 0"),
        ({"trials": 10**30}, "tune: trials must be an integer from"),
        ({"minutes": math.nan}, "tune: minutes must be more than 0, got nan"),
        ({"minutes": "1"}, "tune: minutes must be a number or None, got '1'"),
        ({"threads": 0}, "tune: threads must be from 1 to 4096, got 0"),
        ({"seed": 1.0}, "tune: seed must be an integer, got 1.0"),
        ({"seed": None}, "tune: seed must be an integer, got None"),
        ({"target": "z80"}, "unknown target 'z80'"),
        ({"target": 3}, "tune: target must be Target, a string or a sequence"),
        ({"database": 3}, "tune: database must be a string, PathLike, Database or None, got 3"),
        ({"space": 3}, "space must be a Space, a function that takes a schedule"),
        ({"strategy": "luck"}, "there is no strategy 'luck'"),
        ({"scheduler": "fair"}, "there is no scheduler 'fair'"),
        ({"weights": [1.0, 2.0]}, "tune: weights must be one per program, 1, got 2"),
        ({"weights": [-1.0]}, "tune: weights.0. must be from 0"),
        ({"program": "GMM"}, "tune: program must be Program or a sequence of Program"),
    ],
)
def test_tune_names_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ms.tune(**{"program": PROGRAM, **options}, measurer=stop)


def test_nothing_to_tune_is_nothing_done() -> None:
    assert ms.tune([]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "build: threads must be from 1 to 4096, got 0"),
        ({"threads": 1.0}, "build: threads must be an integer or None, got 1.0"),
        ({"constants": [1]}, "build: constants must be a mapping"),
        ({"constants": {"Q": np.zeros(3, "float32")}}, "Q"),
        ({"constants": {"Y": np.zeros(3, "float32")}}, "Y"),
        ({"constants": {"Y": np.zeros((1, 8, 4))}}, "Y"),
        ({"constants": {"Y": "weights"}}, "Y"),
        ({"database": 3}, "build: database must be"),
        ({"program": 3}, "build: program must be Program or Schedule, got 3"),
    ],
)
def test_build_names_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ms.build(**{"program": Schedule(PROGRAM), **options})


@pytest.mark.parametrize("shape", [(2**62,), (2**40, 2**40), (2**62, 0, 4), (2**63,)])
def test_tensors_whose_bytes_cannot_be_counted(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="x"):
        te.placeholder(shape, name="x")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: te.prod(PAIR, te.reduce_axis(4)),
            "prod: value must be one expression",
        ),
        (lambda: te.reduce_axis((1, 2, 3)), "extent must be a number or .low, high., got .1, 2, 3."),
        (lambda: te.table([1, [2]], name="t"), "table t: values must be an array of numbers"),
        (lambda: ms.database.open("a\0b"), "open: path must be a path, which holds no NUL"),
        (lambda: ms.runtime.load("a\0b"), "load: path must be a path, which holds no NUL"),
        (lambda: ms.runtime.load(THREE), "load: path must be a string or PathLike, got 3"),
        (lambda: ms.runtime.set_num_threads(2**40), "set_num_threads: n must be from 1 to 4096"),
        (lambda: KERNEL.bind([1]), "bind: constants must be a mapping"),
        (lambda: KERNEL.benchmark(min_time="1"), "benchmark: min_time must be a number"),
        (lambda: KERNEL.source(1), "source: kind must be a string"),
        (lambda: setattr(KERNEL, "threads", True), "threads must be an integer or None, got True"),
    ],
)
def test_others_name_what_they_refuse(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


class Halves:
    """A space of somebody else's."""

    def sketches(self, program: ms.Program) -> list[Trace]:
        return [self.sample(program, random.Random(0)).trace]

    def sample(self, program: ms.Program, rng: random.Random) -> Schedule:
        sch = Schedule(program, seed=rng)
        (_, i, *_) = sch.get_loops(sch.get_block("matmul"))
        sch.split(i, sch.sample_perfect_tile(i, 2))
        return sch


def test_a_space_of_the_users_own_making() -> None:
    result = ms.tune(PROGRAM, trials=2, space=Halves())
    assert {record.space for record in result.records} == {"Halves"}
    assert result.outcomes["ok"] == 2


@pytest.mark.parametrize("rng", [3, np.int64(3), random.Random(3), np.random.default_rng(3)])
def test_random_numbers_of_any_source(rng: Any) -> None:
    for space in (ms.space.Space([]), ms.space.as_space(lambda sch: None), ms.space.as_space(Halves())):
        assert space.sample(PROGRAM, rng).state.original is PROGRAM
    with pytest.raises(TypeError, match="rng must be"):
        ms.space.Space([]).sample(PROGRAM, "3")  # pyright: ignore[reportArgumentType]
