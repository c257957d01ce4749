"""`python -m metaschedule.measure.worker build|run PARENT`: the process that candidates may end.

It answers one request after the other, over pipes that it moves away from standard input and output, where
a candidate may write what it likes. It ends when the pipe does, and when its parent does.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable

from . import build
from .frames import Frame, Header, pack, unpack
from .outcome import one_line
from .trial import Trial

PR_SET_PDEATHSIG = 1
MOST_PRINTED = 1 << 20  # bytes of standard error that are kept
MOST_COMPILED = 1 << 28  # and of files that the compiler of a GPU writes
MOST_TRACED = 1 << 16  # characters of a traceback
CHUNK = 1 << 20

Answer = Callable[[Header, bytes], Frame]


class Pipe:
    """Frames in, frames out, blocking."""

    def __init__(self) -> None:
        self._requests, self._replies = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)
        self._incoming = bytearray()

    def receive(self) -> Frame:
        while (frame := unpack(self._incoming)) is None:
            data = os.read(self._requests, CHUNK)
            if not data:
                sys.exit()
            self._incoming += data
        return frame

    def send(self, header: Header, payload: bytes = b"") -> None:
        data = memoryview(pack(header, payload))
        try:
            while data:
                data = data[os.write(self._replies, data) :]
        except BrokenPipeError:
            sys.exit()


def serve(answering: Callable[[Header], Answer], parent: int) -> None:
    """Answer requests of the parent until it has no more. `answering` makes, of the first thing that it says,
    what answers the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit()
    pipe = Pipe()
    setup, _ = pipe.receive()
    answer = answering(setup)
    limit(setup["memory"], MOST_COMPILED if setup.get("gpu") else MOST_PRINTED)
    pipe.send({})
    while True:
        header, payload = pipe.receive()
        begin = time.perf_counter()
        try:
            reply, result = answer(header, payload)
        except MemoryError as error:
            reply, result = {"kind": "out of memory", "detail": one_line(str(error))}, b""
        except Exception as error:
            reply, result = {"kind": "build error", "detail": one_line(error)}, b""
            reply["traceback"] = traceback.format_exc()[-MOST_TRACED:]
        pipe.send(reply | {"seconds": time.perf_counter() - begin}, result)


def limit(memory: int, written: int = MOST_PRINTED) -> None:
    """From here on: so much more memory, no core dumps, no floods of messages."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    for what, value in (
        (resource.RLIMIT_AS, now + memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, written),
    ):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    serve(lambda setup: build.answer if sys.argv[1] == "build" else Trial(setup).answer, int(sys.argv[2]))
