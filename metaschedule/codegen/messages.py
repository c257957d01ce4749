"""What a kernel says of an access or a division that it stopped at, on any machine."""

from __future__ import annotations

from .. import ir

LONGEST = 160  # characters of an expression in a message


def out_of_range(access: ir.Load | ir.Store, axis: int) -> str:
    buffer = access.buffer
    verb = "reading" if isinstance(access, ir.Load) else "writing"
    place = f"{buffer.name}[{', '.join(map(shorten, access.indices))}]"
    extent = buffer.shape[axis]
    return f"out of range for axis {axis} of {buffer.name}, which has extent {extent}: {verb} {place}"


def zero_division(e: ir.Expr) -> str:
    return f"integer division by zero: {shorten(e)}"


def shorten(e: ir.Expr) -> str:
    text = str(e)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
