"""Messages between processes: a JSON header and raw bytes, each with its length in front.

Nothing received is ever executed, and what is not a whole frame of ours is an error, never a guess.
"""

from __future__ import annotations

import json
import struct
from typing import Any

HEAD = struct.Struct("<4sIQ")  # magic, length of the header, length of the payload
MAGIC = b"\0msf"
LONGEST = 1 << 32  # a longer one is no frame but garbage

Header = dict[str, Any]
Frame = tuple[Header, bytes]


class FrameError(ValueError):
    """Bytes that are not a frame."""


def pack(header: Header, payload: bytes = b"") -> bytes:
    """The bytes of one frame.

    >>> buffer = bytearray(pack({"job": 1}, b"code") + b"rest")
    >>> unpack(buffer), bytes(buffer)
    (({'job': 1}, b'code'), b'rest')
    """
    text = json.dumps(header).encode()
    return HEAD.pack(MAGIC, len(text), len(payload)) + text + payload


def unpack(buffer: bytearray) -> Frame | None:
    """The first frame of `buffer`, which is taken out of it; None while it is not complete."""
    if not MAGIC.startswith(buffer[: len(MAGIC)]):
        raise FrameError(f"not a frame: {bytes(buffer[:16])!r}")
    if len(buffer) < HEAD.size:
        return None
    _, header_size, payload_size = HEAD.unpack_from(buffer)
    start, end = HEAD.size + header_size, HEAD.size + header_size + payload_size
    if end > LONGEST:
        raise FrameError(f"a frame of {end} bytes")
    if len(buffer) < end:
        return None
    try:
        header = json.loads(buffer[HEAD.size : start])
    except ValueError as error:
        raise FrameError(f"a frame whose header is not JSON: {error}") from None
    payload = bytes(buffer[start:end])
    del buffer[:end]
    return header, payload
