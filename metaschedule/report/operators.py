"""The comparison of contestants on workloads: all measured alternately in one run, on the same data."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..measure.compare import difference
from ..measure.numerics import tolerance
from ..measure.peak import measure_peak
from ..runtime import ArgSpec
from ..target import Target
from ..workloads.work import MEMORY_BOUND
from .case import Case
from .contestants import Contestant, ContestantError, Variant
from .timing import keep_freed_memory

ROUNDS = 8


class Time(NamedTuple):
    seconds: float
    kind: str  # the fastest of a contestant's variants


@dataclass(frozen=True)
class OperatorRow:
    """`python` and `native` are the times of the contestants, called from Python and in native loops.

    `tuning` is how long each searched, if it did; `peak` in GFLOPS, of the same run.
    """

    case: Case
    python: dict[str, Time]
    native: dict[str, Time]
    peak: float
    tuning: dict[str, float]

    @property
    def opponents(self) -> list[str]:
        return [name for name in {**self.python, **self.native} if name != "ours"]

    def ratio(self, contestant: str) -> float:
        """How many times as fast as a contestant we are, both timed in the same way."""
        times = self.native if contestant in self.native else self.python
        return times[contestant].seconds / times["ours"].seconds

    @property
    def gflops(self) -> float:
        return self.case.flops / self.native["ours"].seconds / 1e9

    @property
    def share(self) -> float:
        """Of the peak."""
        return self.gflops / self.peak

    @property
    def bandwidth(self) -> float | None:
        """GB/s, of a case that memory bounds."""
        if self.case.flops / self.case.bytes >= MEMORY_BOUND:
            return None
        return self.case.bytes / self.native["ours"].seconds / 1e9

    def as_data(self) -> dict[str, Any]:
        return {
            "label": self.case.label,
            "workload": self.case.name,
            "config": self.case.config,
            "constant_weights": self.case.constant,
            "called_from_python": {name: time._asdict() for name, time in self.python.items()},
            "native_loop": {name: time._asdict() for name, time in self.native.items()},
            "ratios": {name: self.ratio(name) for name in self.opponents},
            "gflops": self.gflops,
            "peak": self.peak,
            "share_of_peak": self.share,
            "bandwidth": self.bandwidth,
            "tuning_seconds": self.tuning,
        }


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what was compared until then."""

    def __init__(self, tables: list[list[OperatorRow]], failures: list[str]) -> None:
        super().__init__("the comparison was interrupted")
        self.tables, self.failures = tables, failures


def compare_all(
    groups: Sequence[Sequence[Case]],
    contestants: Sequence[Contestant],
    target: Target,
    tell: Callable[[str], None],
) -> tuple[list[list[OperatorRow]], list[str]]:
    """A row for each case that contestants agree on, and what is wrong with the others.

    All is prepared before anything is measured; ours is the first contestant. Ctrl-C raises `Interrupted`.
    """
    failures: list[str] = []
    tables: list[list[OperatorRow]] = [[] for _ in groups]
    total = sum(map(len, groups))

    def prepare(case: Case) -> dict[str, float]:
        tuning: dict[str, float] = {}
        for contestant in contestants:
            tell(f"{case.label}: preparing {contestant.name}")
            if (seconds := contestant.prepare(case)) is not None:
                tuning[contestant.name] = seconds
        return tuning

    try:
        tunings = [[prepare(case) for case in group] for group in groups]
        keep_freed_memory()
        for group, found, rows in zip(groups, tunings, tables, strict=True):
            for case, tuning in zip(group, found, strict=True):
                tell(f"{case.label}: measuring, {sum(map(len, tables))} of {total} done")
                try:
                    rows.append(compare(case, contestants, target, tuning))
                except ContestantError as error:
                    failures.append(str(error))
    except KeyboardInterrupt:
        raise Interrupted(tables, failures) from None
    return tables, failures


def compare(
    case: Case, contestants: Sequence[Contestant], target: Target, tuning: dict[str, float]
) -> OperatorRow:
    """Measure one case, which all contestants have prepared."""
    variants = [variant for contestant in contestants for variant in contestant.variants(case)]
    check(case, variants)
    best, peak = [float("inf")] * len(variants), 0.0
    for _ in range(ROUNDS):
        peak = max(peak, measure_peak(target, rounds=1))
        best = [min(before, variant.seconds()) for before, variant in zip(best, variants, strict=True)]
    times: dict[bool, dict[str, Time]] = {False: {}, True: {}}
    for seconds, variant in sorted(zip(best, variants, strict=True), key=lambda pair: pair[0]):
        times[variant.native].setdefault(variant.contestant, Time(seconds, variant.kind))
    order = [contestant.name for contestant in contestants]
    python, native = ({name: found[name] for name in order if name in found} for found in times.values())
    return OperatorRow(case, python, native, peak, tuning)


def check(case: Case, variants: Sequence[Variant]) -> None:
    """All contestants must agree with us: a time of something else would mean nothing."""
    (output,) = case.program.outputs
    spec = ArgSpec(output.name, output.shape, output.dtype)
    want = variants[0].output()
    for variant in variants[1:]:
        if wrong := difference(spec, variant.output(), want, tolerance(case.program)):
            who = f"{variant.contestant} ({variant.kind})" if variant.kind else variant.contestant
            raise ContestantError(f"{case.label}: {who} computes something else than we do: {wrong}")


def geometric_means(rows: Sequence[OperatorRow]) -> dict[str, float]:
    """Of our ratio to each contestant."""
    names = dict.fromkeys(name for row in rows for name in row.opponents)
    return {
        name: statistics.geometric_mean([row.ratio(name) for row in rows if name in row.opponents])
        for name in names
    }
