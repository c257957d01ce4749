"""Traces: straight-line records of what was done to a program, with the decisions that were drawn.

A trace replays on any program of the same structure, with its decisions, with others, or with new ones drawn.
It prints as Python that can be pasted after `sch = ms.Schedule(program)`, and goes through JSON. Loading one
executes nothing: instructions are looked up by name and operands are plain data.
"""

from __future__ import annotations

import difflib
import json
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..ir import Program, structural_hash
from ..markup import html
from ..validation import Mismatch, Randomness, check_arguments, converters, describe_value, random_numbers
from .distribution import Decision, Distribution, as_decision
from .primitive.base import REGISTRY, BlockRV, ExprRV, Handle, LoopRV, Primitive, map_handles

if TYPE_CHECKING:
    from .schedule import Schedule

Choose = Callable[[int, Any, Decision], Decision]  # position, distribution, what was decided there before

VERSION = 1
HANDLES: dict[str, type[Handle]] = {h.letter: h for h in (BlockRV, LoopRV, ExprRV)}
HANDLE = re.compile(r"([blv])([0-9]{1,9})")  # as a trace names it
MOST_NESTED = 16  # lists in lists, of an operand
MOST_CHARACTERS = 10_000_000  # of JSON text
MOST_INSTRUCTIONS = 100_000


class TraceError(ValueError):
    """A stored trace that cannot be read: what is wrong, and where."""


@dataclass(slots=True, eq=False)
class Instruction:
    primitive: Primitive
    outputs: tuple[Handle, ...]
    decision: Decision = None  # of sampling primitives

    @property
    def is_sampling(self) -> bool:
        return isinstance(self.primitive, Distribution)


@dataclass(slots=True)
class Step:
    """One instruction of a trace with the program before and after it."""

    text: str
    before: Program
    after: Program

    def diff(self) -> str:
        """What the instruction changed, as a unified diff of the two scripts; empty if nothing."""
        before, after = str(self.before).splitlines(), str(self.after).splitlines()
        return "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=2))[2:])


class Trace:
    """Instructions in order. Equal and hashed by the workload they were made on, instructions and decisions.

    `program` is the program the trace was made on, if it is at hand; only its structural hash (`workload`) is
    stored.
    """

    __slots__ = ("_workload", "instructions", "program")

    def __init__(
        self,
        instructions: tuple[Instruction, ...] = (),
        program: Program | None = None,
        workload: str | None = None,
    ) -> None:
        self.instructions = instructions
        self.program = program
        self._workload = workload

    @property
    def workload(self) -> str | None:
        """The structural hash of the program that the trace was made on."""
        if self._workload is None and self.program is not None:
            self._workload = structural_hash(self.program)
        return self._workload

    def __len__(self) -> int:
        return len(self.instructions)

    @property
    def decisions(self) -> dict[int, Decision]:
        """By position of the sampling instruction."""
        return {n: i.decision for n, i in enumerate(self.instructions) if i.is_sampling}

    @check_arguments
    def with_decisions(self, decisions: Mapping[int, Decision]) -> Trace:
        """The same instructions with some decisions replaced."""
        new = list(self.instructions)
        for n, decision in self._check_decisions(decisions).items():
            new[n] = Instruction(new[n].primitive, new[n].outputs, decision)
        return Trace(tuple(new), self.program, self._workload)

    def _check_decisions(self, decisions: Mapping[int, Decision]) -> dict[int, Decision]:
        for n in decisions:
            if not 0 <= n < len(self.instructions) or not self.instructions[n].is_sampling:
                raise ValueError(
                    f"decisions: instruction {n} does not sample; those that do: {sorted(self.decisions)}"
                )
        return {n: as_decision(decision) for n, decision in decisions.items()}

    @check_arguments
    def apply(
        self,
        program: Program,
        decisions: Mapping[int, Decision] | None = None,
        rng: Randomness | None = None,
        moved: Collection[int] | None = None,
    ) -> Schedule:
        """Replay on a program. `decisions` replaces some; with `rng` the others are drawn anew, without it
        they stay. With `rng` and `moved`, the decisions at these positions become neighbours of what they
        are, those that this makes invalid become something close, and the others stay. Raises
        `ScheduleError` where a step is illegal or a decision invalid on this program."""
        known = self._check_decisions(decisions) if decisions else {}
        drawn = None if rng is None else random_numbers(rng)

        def choose(n: int, site: Distribution, old: Decision) -> Decision:
            if n in known:
                return known[n]
            if drawn is None:
                return old
            if moved is None:
                return site.draw(drawn)
            if n in moved and site.valid(old):
                return site.neighbour(old, drawn)
            return old if site.valid(old) else site.repair(old, drawn)

        return self.replay(program, choose)

    def replay(self, program: Program, choose: Choose) -> Schedule:
        """Replay on a program with the decisions that `choose` makes: of the position, of the distribution
        with numbers for its operands, and of the decision in this trace."""
        steps = self.instructions
        first = next((n for n, step in enumerate(steps) if step.is_sampling), len(steps))
        sch = opening(program, steps[:first]).copy(random.Random(0))
        for n in range(first, len(steps)):
            sch.repeat(n, steps[n], choose)
        return sch

    def without_dead(self) -> Trace:
        """Without instructions that only look or draw and whose results nobody uses."""
        used: set[Handle] = set()
        kept: list[Instruction] = []
        for i in reversed(self.instructions):
            pure = i.is_sampling or i.primitive.is_query
            if pure and not any(h in used for h in i.outputs):
                continue
            kept.append(i)
            map_handles(i.primitive.operands(), used.add)
        return Trace(tuple(reversed(kept)), self.program, self._workload)

    @check_arguments
    def steps(self, program: Program | None = None) -> Iterator[Step]:
        """What each instruction did, by replaying on `program` (default: the one the trace was made on)."""
        program = program or self.program
        if program is None:
            raise ValueError("a stored trace does not hold its program: give it, trace.steps(program)")
        before, lines = program, list(self.lines())
        for n, line in enumerate(lines, 1):
            after = Trace(self.instructions[:n]).apply(program).program
            yield Step(line, before, after)
            before = after

    # --- text ---

    def _repr_html_(self) -> str:
        """The instructions, coloured, for notebooks."""
        sampled = f"{len(self)} instructions, {len(self.decisions)} decisions"
        return html.view(html.paragraph(sampled), html.script(str(self)))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        names = self.names()
        for i in self.instructions:
            outputs = ", ".join(names[h] for h in i.outputs)
            if i.outputs and i.primitive.op in UNPACKED:
                outputs += "," if len(i.outputs) == 1 else ""
            yield f"{outputs} = {self.call(i, names)}" if outputs else self.call(i, names)

    def names(self) -> dict[Handle, str]:
        """Handles numbered by kind in order of appearance."""
        counts = dict.fromkeys(HANDLES, 0)
        names: dict[Handle, str] = {}
        for i in self.instructions:
            for h in i.outputs:
                names[h] = f"{h.letter}{counts[h.letter]}"
                counts[h.letter] += 1
        return names

    def call(self, i: Instruction, names: Mapping[Handle, str]) -> str:
        p = i.primitive
        if p.op in ("fuse", "reorder", "merge"):  # their loops are given one by one
            args = [names[h] for h in p.operands()[0]]
        else:
            args = [f"{name}={text(value, names)}" for name, value in p.given_operands().items()]
        if p.op == "get_block":
            args = [text(p.operands()[0], names)]
        if not i.is_sampling:
            return f"sch.{p.op}({', '.join(args)})"
        decision = f"decision={text(i.decision, names)}"
        if hasattr_schedule(p.op):
            return f"sch.{p.op}({', '.join([*args, decision])})"
        return f"sch.sample({type(p).__name__}({', '.join(args)}), {decision})"

    # --- equality ---

    def key(self) -> str:
        return json.dumps(self.as_data(), sort_keys=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    # --- JSON ---

    def as_data(self) -> dict[str, Any]:
        names = self.names()
        rows: list[list[Any]] = []
        for i in self.instructions:
            fields = {n: encode_operand(v, names) for n, v in i.primitive.given_operands().items()}
            row = [i.primitive.op, fields, [names[h] for h in i.outputs]]
            rows.append([*row, i.decision] if i.is_sampling else row)
        return {"version": VERSION, "workload": self.workload, "instructions": rows}

    def to_json(self) -> str:
        """As text that `from_json` reads back: instructions and decisions, plain data."""
        return json.dumps(self.as_data())

    @staticmethod
    def from_json(source: str) -> Trace:
        """The trace that `to_json` wrote. Executes nothing; refuses what is malformed with `TraceError`."""
        if not isinstance(source, str):
            raise TraceError(f"source must be the JSON text of a trace, got {describe_value(source)}")
        if len(source) > MOST_CHARACTERS:
            raise TraceError(f"{len(source)} characters: a trace has at most {MOST_CHARACTERS}")
        try:
            data = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"not JSON, or cut short: {error}") from None
        if not isinstance(data, dict) or set(data) != {"version", "workload", "instructions"}:
            raise TraceError('a trace is an object with "version", "workload" and "instructions"')
        if type(data["version"]) is not int or not 1 <= data["version"] <= VERSION:
            raise TraceError(f"version {data['version']!r}; this metaschedule reads up to {VERSION}")
        rows, workload = data["instructions"], data["workload"]
        if workload is not None and not isinstance(workload, str):
            raise TraceError("the workload must be a structural hash or null")
        if not isinstance(rows, list) or len(rows) > MOST_INSTRUCTIONS:
            raise TraceError(f"instructions must be a list of at most {MOST_INSTRUCTIONS}")
        known: dict[str, Handle] = {}
        return Trace(tuple(decode(n, row, known) for n, row in enumerate(rows)), workload=workload)


@lru_cache(maxsize=64)
def opening(program: Program, steps: tuple[Instruction, ...]) -> Schedule:
    """What comes before the first draw is the same in every replay on a program: carried out once."""
    from .schedule import Schedule

    sch = Schedule(program)
    for n, step in enumerate(steps):
        sch.repeat(n, step, lambda *_: None)
    return sch


UNPACKED = frozenset(  # give a list, also of one
    [
        "get_loops",
        "split",
        "loop_partition",
        "get_child_blocks",
        "get_producers",
        "get_consumers",
        "sample_perfect_tile",
        "sample_tile",
        "sample_partitioned_tile",
    ]
)


def hasattr_schedule(op: str) -> bool:
    from .schedule import Schedule

    return hasattr(Schedule, op)


def text(value: Any, names: Mapping[Handle, str]) -> str:
    """An operand as Python."""
    if isinstance(value, Handle):
        return names[value]
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(text(v, names) for v in value)}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def encode_operand(value: Any, names: Mapping[Handle, str]) -> Any:
    """An operand as plain data: a handle is {"rv": name}."""
    if isinstance(value, Handle):
        return {"rv": names[value]}
    if isinstance(value, (tuple, list)):
        return [encode_operand(v, names) for v in value]
    return value


def decode_operand(value: Any, known: Mapping[str, Handle], where: str, depth: int = 0) -> Any:
    if isinstance(value, dict):
        handle = known.get(value["rv"]) if set(value) == {"rv"} and isinstance(value["rv"], str) else None
        if handle is None:
            raise TraceError(
                f"{where}: {describe_value(value)} is no handle that an earlier instruction gave"
            )
        return handle
    if isinstance(value, list):
        if depth == MOST_NESTED:
            raise TraceError(f"{where}: lists are nested more than {MOST_NESTED} deep")
        return tuple([decode_operand(v, known, where, depth + 1) for v in value])
    return value


def decode(n: int, row: Any, known: dict[str, Handle]) -> Instruction:
    where = f"instruction {n}"
    if not isinstance(row, list) or len(row) not in (3, 4) or not isinstance(row[0], str):
        raise TraceError(f"{where}: expected [name, operands, results] and a decision if it samples")
    cls = REGISTRY.get(row[0])
    if cls is None:
        raise TraceError(f"{where}: unknown instruction {describe_value(row[0])}")
    needed = set(cls.names) - set(cls.defaults)
    if isinstance(row[1], dict) and needed <= set(row[1]) <= set(cls.names) and isinstance(row[2], list):
        fields = {name: decode_operand(value, known, where) for name, value in row[1].items()}
    else:
        raise TraceError(f"{where}: {row[0]} takes {', '.join(cls.names)}, and a list of results")
    for name, value in fields.items():
        try:
            fields[name] = converters(cls)[name](value)
        except Mismatch as mismatch:
            raise TraceError(f"{where}: {mismatch.error(row[0], name)}") from None
    if issubclass(cls, Distribution) != (len(row) == 4):
        raise TraceError(f"{where}: a decision is missing, or there is one too many")
    outputs: list[Handle] = []
    for name in row[2]:
        found = HANDLE.fullmatch(name) if isinstance(name, str) else None
        if found is None or name in known:
            raise TraceError(f"{where}: {describe_value(name)} is not a new handle")
        known[name] = HANDLES[found[1]](int(found[2]))
        outputs.append(known[name])
    try:
        decision = as_decision(row[3]) if len(row) == 4 else None
    except TypeError as error:
        raise TraceError(f"{where}: {error}") from None
    return Instruction(cls(**fields), tuple(outputs), decision)
