"""`Case`: a workload to compare contestants on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import workloads
from ..build import declare_constants
from ..ir import Program
from ..runtime import ArgSpec
from ..runtime.timing import random_arrays
from ..workloads.work import bytes_moved

# The operators that the paper measures one by one.
TWELVE: Sequence[str] = ("C1D", "C2D", "C3D", "DEP", "DIL", "GMM", "GRP", "T2D", "CBR", "TBG", "NRM", "SFM")


@dataclass(frozen=True)
class Case:
    """`config` has all keywords of the workload. `constant`: its weights are known before the call."""

    label: str
    name: str
    config: dict[str, Any]
    constant: bool = False

    @cached_property
    def program(self) -> Program:
        program = workloads.create(self.name, **self.config)
        return declare_constants(program, workloads.weights(self.name) if self.constant else ())

    @cached_property
    def arrays(self) -> list[np.ndarray]:
        """Data for all inputs, weights included; the same for every contestant."""
        return random_arrays([ArgSpec.of(b) for b in self.program.inputs])

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The inputs that are constant, by name."""
        return {b.name: a for b, a in zip(self.program.inputs, self.arrays, strict=True) if b.constant}

    @property
    def arguments(self) -> list[np.ndarray]:
        """The inputs of a call."""
        return [a for b, a in zip(self.program.inputs, self.arrays, strict=True) if not b.constant]

    @property
    def flops(self) -> int:
        return workloads.flops(self.name, **self.config)  # not of the program: T2D's multiplies zeros

    @property
    def bytes(self) -> int:
        return bytes_moved(self.program)


def cases(names: Sequence[str], config: str = "0", constant: bool = False) -> list[Case]:
    """The cases that names of workloads stand for, each in one configuration or in "all". A name may carry
    keywords of its own; with `constant` workloads without weights are left out.

    >>> [case.label for case in cases(["GMM", "SFM"], "1")]
    ['GMM 1', 'SFM 1']
    >>> cases(["GMM:n=64,k=32"])[0].config
    {'b': 1, 'n': 64, 'm': 128, 'k': 32}
    """
    found: list[Case] = []
    for text in names:
        name, _, keywords = text.partition(":")
        configurations = workloads.configurations(name)
        if constant and not workloads.weights(name):
            continue
        numbers = range(len(configurations)) if config == "all" else [number(config)]
        for n in numbers:
            workloads.create(name, n, **(overrides := parse_sizes(keywords)))  # refuses what is not there
            label = f"{name} {n}" if n and not overrides else text
            found.append(Case(label, name, configurations[n] | overrides, constant))
    return found


def number(config: str) -> int:
    if not config.isdigit():
        raise ValueError(f"the configuration is a number or all, not {config!r}")
    return int(config)


def parse_sizes(keywords: str) -> dict[str, int]:
    """`n=64,k=32` as a dictionary."""
    pairs = [pair.partition("=") for pair in keywords.split(",") if pair]
    if wrong := [key for key, _, value in pairs if not value.isdigit()]:
        raise ValueError(f"{wrong[0]} needs a number, as in GMM:n=64,k=32")
    return {key: int(value) for key, _, value in pairs}
