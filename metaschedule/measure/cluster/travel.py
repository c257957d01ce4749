"""What a call of a runner's takes along.

Ray sends small arguments with the call and stores large ones on the node that the driver is attached to. If
that node dies, healthy runners would wait for what only it had: half a minute, until Ray gives it up. So
data goes as many arguments that each are small, all of it or, beyond what a call may carry, none.

    ["workload", 3 MB of code]  -->  sizes [8, 3145728], pieces of 64 KB
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

PIECE = 64 << 10  # bytes; Ray stores arguments of 100 KB and more
MOST = 8 << 20  # bytes of a call; Ray stores what comes after 10 MB


def pack_parts(parts: Sequence[bytes], put: Callable[[bytes], Any]) -> tuple[list[int], list[Any]]:
    """Sizes and arguments: what `unpack_parts` takes. `put` stores what is too much for a call.

    >>> sizes, pieces = pack_parts([b"ab", b"", b"c"], put=len)
    >>> sizes, pieces, unpack_parts(sizes, pieces)
    ([2, 0, 1], [b'abc'], [b'ab', b'', b'c'])
    """
    data = b"".join(parts)
    sizes = [len(part) for part in parts]
    if len(data) > MOST:
        return sizes, [put(data)]
    return sizes, [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def unpack_parts(sizes: Sequence[int], pieces: Sequence[bytes]) -> list[bytes]:
    data = b"".join(pieces)
    parts: list[bytes] = []
    at = 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return parts
