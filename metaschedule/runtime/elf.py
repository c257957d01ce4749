"""Enough of ELF to know, before LLVM touches it, that an object is whole and what symbols it needs.

LLVM trusts the objects it links: a truncated one may end the process. Objects of other formats
(Mach-O) pass unexamined.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"\x7fELF"
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
RELOCATABLE = 1
SYMTAB, NOBITS = 2, 8
HIDDEN = 2  # visibility of a symbol


class ObjectError(RuntimeError):
    """Object code that cannot be loaded: truncated, foreign, or in need of what is not here."""


@dataclass(frozen=True)
class Section:
    kind: int
    offset: int
    size: int
    link: int


def is_elf(code: bytes) -> bool:
    return code[:4] == MAGIC


def check_object(code: bytes, arch: str) -> None:
    """Raise ObjectError unless this is a whole relocatable object for `arch`."""
    if not is_elf(code):
        raise ObjectError(f"not an object file: {len(code)} bytes that begin with {code[:8]!r}")
    if len(code) < HEADER.size:
        raise ObjectError(f"truncated object: {len(code)} bytes, shorter than its header")
    if code[4] != 2 or code[5] != 1:
        raise ObjectError("not a 64-bit little-endian object")
    _, kind, machine, *_ = HEADER.unpack_from(code)
    if kind != RELOCATABLE:
        raise ObjectError(f"not a relocatable object (ELF type {kind})")
    if MACHINES.get(machine) != arch:
        raise ObjectError(f"object for {MACHINES.get(machine, f'machine {machine}')}, not for {arch}")
    for _ in sections(code):
        pass


def sections(code: bytes) -> Iterator[Section]:
    """The section headers; each is checked to lie inside the object."""
    header = HEADER.unpack_from(code)
    table, entry_size, count = header[6], header[11], header[12]
    if entry_size != SECTION.size or count == 0:
        raise ObjectError("damaged object: no section table")
    if table + count * entry_size > len(code):
        raise ObjectError(
            f"truncated object: its section table ends at byte {table + count * entry_size}, "
            f"there are {len(code)}"
        )
    for i in range(count):
        _, kind, _, _, offset, size, link, *_ = SECTION.unpack_from(code, table + i * entry_size)
        if kind != NOBITS and offset + size > len(code):
            raise ObjectError(
                f"truncated object: section {i} ends at byte {offset + size}, there are {len(code)}"
            )
        yield Section(kind, offset, size, link)


def symbols(code: bytes) -> tuple[set[str], set[str]]:
    """Names of the global symbols an object defines and of those it needs from elsewhere."""
    table = list(sections(code))
    defined: set[str] = set()
    needed: set[str] = set()
    for section in table:
        if section.kind != SYMTAB:
            continue
        if section.link >= len(table):
            raise ObjectError("damaged object: its symbols have no names")
        names = table[section.link]
        for at in range(section.offset, section.offset + section.size - SYMBOL.size + 1, SYMBOL.size):
            name, info, _, index, _, _ = SYMBOL.unpack_from(code, at)
            start = names.offset + name
            end = code.find(b"\0", start, names.offset + names.size)
            if end < 0:
                raise ObjectError("damaged object: a symbol's name lies outside it")
            if name and info >> 4:  # global or weak
                (defined if index else needed).add(code[start:end].decode(errors="replace"))
    return defined, needed


def hide_symbols(code: bytes, prefix: str) -> bytes:
    """The object with `prefix` before the name of every global symbol that it defines, and those visible only
    inside of the library that it is linked into. Names are added behind the others: nothing else moves."""
    check_object(code, MACHINES.get(HEADER.unpack_from(code)[2], ""))
    table = list(sections(code))
    made = bytearray(code)
    at_table = HEADER.unpack_from(code)[6]
    for section in table:
        if section.kind != SYMTAB:
            continue
        names = table[section.link]
        texts = bytearray(code[names.offset : names.offset + names.size])
        for at in range(section.offset, section.offset + section.size - SYMBOL.size + 1, SYMBOL.size):
            name, info, other, index, value, size = SYMBOL.unpack_from(code, at)
            if name and info >> 4 and index:
                end = texts.index(b"\0", name)
                new = len(texts)
                texts += prefix.encode() + texts[name:end] + b"\0"
                SYMBOL.pack_into(made, at, new, info, other & ~3 | HIDDEN, index, value, size)
        fields = list(SECTION.unpack_from(code, at_table + section.link * SECTION.size))
        fields[4], fields[5] = len(made), len(texts)
        SECTION.pack_into(made, at_table + section.link * SECTION.size, *fields)
        made += texts
    return bytes(made)
