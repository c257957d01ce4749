"""Frames survive being cut anywhere, and nothing else passes for one."""

from __future__ import annotations

import pytest

from metaschedule.measure.frames import HEAD, MAGIC, FrameError, pack, unpack

FRAMES = [({"kind": "ok", "times": [0.5]}, b""), ({}, bytes(range(256))), ({"detail": "é"}, b"\0" * 1000)]


@pytest.mark.parametrize("piece", [1, 7, 300, 10_000])
def test_in_pieces(piece: int) -> None:
    stream = b"".join(pack(*frame) for frame in FRAMES)
    buffer, found = bytearray(), []
    for at in range(0, len(stream), piece):
        buffer += stream[at : at + piece]
        while frame := unpack(buffer):
            found.append(frame)
    assert found == FRAMES
    assert not buffer


def test_truncated_is_not_complete() -> None:
    whole = pack(*FRAMES[1])
    assert all(unpack(bytearray(whole[:n])) is None for n in range(len(whole)))


@pytest.mark.parametrize(
    "garbage",
    [b"garbage", b"\0m?", HEAD.pack(MAGIC, 4, 1 << 40), HEAD.pack(MAGIC, 3, 0) + b"{,}"],
)
def test_garbage(garbage: bytes) -> None:
    with pytest.raises(FrameError):
        unpack(bytearray(garbage))
