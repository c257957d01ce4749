"""`RemoteBatch`: candidates on runners that may die under them.

What was on a runner that died goes to another, once, and then one at a time: a candidate that was on two is
taken for the cause and recorded as a crash. What a runner says that was given up is not listened to.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ... import __version__
from ..frames import pack
from ..outcome import MeasureError, Outcome, one_line
from ..workers import Listener
from ..workload import Built, MeasuredWorkload
from .node import outcome_of, pack_entry, read
from .runners import RemoteRunner
from .travel import pack_parts

if TYPE_CHECKING:
    from .workers import RayWorkers

log = logging.getLogger("metaschedule")
POLL = 1.0  # seconds
MOST_DEATHS = 2  # of runners, under a candidate
SMALLEST = 4  # candidates that are worth a runner of their own
SLOWEST = 3  # times the seconds that a candidate may take, without progress: a runner hangs
PREPARING = 180.0  # seconds to run the reference, or for a call to arrive: without progress that can be seen


class RemoteBatch:
    """One call of a `RayRunner`. `home` is a runner that its program was on before."""

    def __init__(
        self,
        workers: RayWorkers,
        runner: RayRunner,
        entries: Sequence[Built | Outcome],
        best: float | None,
        confirm: bool,
    ) -> None:
        self._workers, self._runner, self._best, self._confirm = workers, runner, best, confirm
        self._built = {n: pack_entry(e) for n, e in enumerate(entries) if isinstance(e, Built)}
        self._outcomes = {n: e for n, e in enumerate(entries) if isinstance(e, Outcome)}
        self._count = len(entries)
        self._deaths: Counter[int] = Counter()
        self._error = ""
        self._todo: deque[list[int]] = deque()
        self._flying: dict[Any, tuple[RemoteRunner, list[int]]] = {}
        self._taken: set[RemoteRunner] = set()

    def run(self) -> list[Outcome]:
        try:
            if self._built:
                self._share(list(self._built))
            while self._todo or self._flying:
                self._submit()
                self._collect()
        finally:
            for runner, _ in self._flying.values():  # interrupted: it still works on what nobody wants
                self._workers.discard(runner, "given up")
            self._release(*self._taken)
        if self._error:
            raise MeasureError(self._error)
        return [self._outcomes[n] for n in range(self._count)]

    def _share(self, numbers: list[int]) -> None:
        """Among the runners that are free; leaders stay together, because they are timed by turns."""
        taken = self._acquire(1 if self._confirm else max(1, len(numbers) // SMALLEST), wait=True)
        size = -(-len(numbers) // len(taken))
        for n, runner in enumerate(taken):
            if part := numbers[n * size : (n + 1) * size]:
                self._give(runner, part)
            else:
                self._release(runner)

    def _submit(self) -> None:
        while self._todo and (taken := self._acquire(1, wait=not self._flying)):
            self._give(taken[0], self._todo.popleft())

    def _acquire(self, most: int, wait: bool) -> list[RemoteRunner]:
        mine = self._runner
        taken = self._workers.runners.acquire(
            mine.target, mine.home, most, wait, lambda: self._workers.check(mine)
        )
        self._taken.update(taken)
        return taken

    def _release(self, *runners: RemoteRunner) -> None:
        self._workers.runners.release(runners)
        self._taken.difference_update(runners)

    def _give(self, runner: RemoteRunner, numbers: list[int]) -> None:
        if self._runner.home is None or self._runner.home.died:
            self._runner.home = runner
        reference = self._runner.run_by_call(
            runner, [self._built[n] for n in numbers], self._best, self._confirm
        )
        self._flying[reference] = runner, numbers

    def _collect(self) -> None:
        ray = self._workers.ray
        done, _ = ray.wait(list(self._flying), num_returns=1, timeout=POLL)
        self._workers.check(self._runner)
        for reference in done:
            runner, numbers = self._flying.pop(reference)
            try:
                answer, _ = read(ray.get(reference, timeout=10.0))
            except Exception as error:  # of Ray: the actor itself raises none
                log.debug("%s gives no answer", runner.node.name, exc_info=True)
                self._lose(runner, numbers, error)
                continue
            self._release(runner)
            if "error" in answer:  # the program's; what else is on its way comes to the same
                self._error = answer["error"]
                self._todo.clear()
                continue
            self._runner.constraint = answer["constraint"]
            for n, data in zip(numbers, answer["outcomes"], strict=True):
                self._outcomes.setdefault(n, outcome_of(data))
            self._runner.tell("confirm" if self._confirm else "run", len(self._outcomes), self._count)
        for reference, (runner, numbers) in list(self._flying.items()):
            is_slow = runner.status.get("state") in ("idle", "preparing")
            limit = SLOWEST * self._runner.seconds + PREPARING * is_slow
            if runner.died or time.monotonic() - runner.moved > max(limit, self._workers.patience):
                del self._flying[reference]
                why = runner.died or f"made no progress for {time.monotonic() - runner.moved:.0f} s"
                self._lose(runner, numbers, RuntimeError(why))

    def _lose(self, runner: RemoteRunner, numbers: list[int], error: Exception) -> None:
        """A runner died, or hangs: its candidates go to another, or are given up."""
        self._workers.check_head()
        self._workers.discard(runner, one_line(error))
        self._deaths.update(numbers)
        again = [n for n in numbers if self._deaths[n] < MOST_DEATHS]
        for n in set(numbers) - set(again):
            detail = f"{MOST_DEATHS} nodes died while it was on them, the last: {one_line(error)}"
            self._outcomes.setdefault(n, Outcome("crash", detail=detail[:300]))
        if again:
            self._todo.extend([again] if self._confirm else [[n] for n in again])


class RayRunner:
    """A workload, run by whichever runners of the cluster may share it."""

    def __init__(self, workers: RayWorkers, workload: MeasuredWorkload, key: str) -> None:
        self.target, self.seconds = workload.target, workload.limits.run_seconds
        self.name = workload.program.name
        self.constraint = ""
        self.home: RemoteRunner | None = None
        self.is_closed = False
        self._workers, self._key = workers, key
        self._workload = pack(*workload.pack())
        self._reference = b""
        self._used: set[RemoteRunner] = set()
        self._listener: Listener | None = None

    def establish(self, reference: Built | Outcome) -> None:
        self._reference = pack_entry(reference)

    def run(self, entries: Sequence[Built | Outcome], best: float | None = None) -> list[Outcome]:
        return RemoteBatch(self._workers, self, entries, best, False).run()

    def confirm(self, entries: Sequence[Built | Outcome]) -> list[Outcome]:
        return RemoteBatch(self._workers, self, entries, None, True).run()

    def run_by_call(
        self, runner: RemoteRunner, entries: Sequence[bytes], best: float | None, confirm: bool
    ) -> Any:
        """The future of a call of the actor's."""
        self._used.add(runner)
        parts = [self._workload, self._reference, *entries]
        sizes, pieces = pack_parts(parts, self._workers.ray.put)
        return self._workers.ray.submit(
            runner.actor.run, __version__, self._key, best, confirm, sizes, *pieces
        )

    def listen(self, listener: Listener) -> None:
        self._listener = listener

    def tell(self, what: str, done: int, of: int) -> None:
        if self._listener is not None:
            self._listener(what, done, of, "")

    def close(self) -> None:
        """Whoever waits for its results stops."""
        self.is_closed = True
        self._workers.drop(self._used, self._key)
