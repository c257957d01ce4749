"""One worker process, as its parent sees it: pipes that never block, and how it ended."""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .frames import Frame, FrameError, Header, pack, unpack
from .outcome import one_line

log = logging.getLogger("metaschedule")
PIPE_BYTES = 1 << 20  # a request and a reply fit, so that neither side waits for the other to read
CHUNK = 1 << 20
LAST_WORDS = 2000  # bytes of standard error that are looked at
GRACE = 5.0  # seconds for a process that closed its pipe to end
SIGNALS = {s.value: s.name for s in signal.Signals}
ROOT = Path(__file__).parents[2]  # of the package, wherever the parent found it


class Worker:
    """`jobs` is what it was asked and has not answered yet, oldest first; `since` when it took up the first
    of those. `ended` is set when it will not answer any more; `end` then says why. `module` is what it runs,
    which calls `worker.serve`."""

    def __init__(self, role: str, setup: Header, fds: Sequence[int], module: str) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._errors = os.memfd_create("metaschedule-stderr")
        self._process: Any = subprocess.Popen(
            # -P: a directory called numpy where the user happens to be is not imported
            [sys.executable, "-P", "-m", module, role, str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0,
            pass_fds=fds, start_new_session=True, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(pipe.fileno(), False)
            try:
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            except OSError:  # over the user's share: slower, not wrong
                pass
        self.jobs: deque[Any] = deque()
        self.since = time.monotonic()
        self.ready = False
        self.ended = False
        self.served = 0
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self.send(setup)

    def send(self, header: Header, payload: bytes = b"") -> None:
        self._outgoing += pack(header, payload)
        self._write()

    def register(self, poll: select.poll) -> None:
        """Let `poll` wake up when there is something to read, or room for what is to be written."""
        poll.register(self._process.stdout, select.POLLIN)
        if self._outgoing:
            poll.register(self._process.stdin, select.POLLOUT)

    def exchange(self) -> list[Frame]:
        """Write what there is room for, read what has come."""
        self._write()
        try:
            while data := os.read(self._process.stdout.fileno(), CHUNK):
                self._incoming += data
            self.ended = True
        except BlockingIOError:
            pass
        frames: list[Frame] = []
        try:
            while frame := unpack(self._incoming):
                frames.append(frame)
                if traced := frame[0].pop("traceback", ""):
                    log.debug("a worker process failed with\n%s", traced)
        except FrameError:  # something else wrote into the pipe
            self._process.kill()
            self.ended = True
        return frames

    def _write(self) -> None:
        try:
            while self._outgoing:
                written = os.write(self._process.stdin.fileno(), self._outgoing[:CHUNK])
                del self._outgoing[:written]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # reading will tell
            self._outgoing.clear()

    @property
    def stopped(self) -> bool:
        """Whether somebody has stopped it (SIGSTOP, a debugger), so that it cannot answer."""
        try:
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        return state in "Tt"

    def end(self, patience: float = 0.0) -> tuple[str, int]:
        """See the process off, by force after `patience` seconds: why it ended, and its exit status."""
        try:
            status = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        size = os.fstat(self._errors).st_size
        words = os.pread(self._errors, LAST_WORDS, max(0, size - LAST_WORDS)).decode(errors="replace")
        os.close(self._errors)
        last = one_line("\n".join(words.splitlines()[-2:]))
        cause = SIGNALS.get(-status, f"the process exited with status {status}")
        return (f"{cause}: {last}" if last else cause), status
