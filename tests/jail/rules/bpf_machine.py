"""Classic BPF in plain Python: says what the kernel would answer, on any system and for any architecture."""

import struct
from collections.abc import Iterator

from sandbox_kernel.jail.rules.seccomp import ASK_LISTENER

LOAD_WORD, AND, JEQ, JGE, JSET, RET = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = "allow", "kill"
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003, "arm": 0x40000028, "riscv64": 0xC00000F3}


def instructions(program: bytes) -> list[tuple[int, int, int, int]]:
    """The (code, jump if true, jump if false, constant) of each ``sock_filter``."""
    return list(struct.iter_unpack("<HBBI", program))


def reachable_ends(program: bytes) -> Iterator[tuple[int, int]]:
    """Every (from, to) edge of the program's flow, falling through included."""
    for at, (code, yes, no, _) in enumerate(instructions(program)):
        if code in (JEQ, JGE, JSET):
            yield at, at + 1 + yes
            yield at, at + 1 + no
        elif code != RET:
            yield at, at + 1


def verdict(program: bytes, number: int, arguments: tuple[int, ...] = (), arch: str = "x86_64") -> str | int:
    """What a call gets: ALLOW, KILL, or the errno it fails with."""
    padded = [value & (2**64 - 1) for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, AUDIT[arch], 0, *padded)
    code, accumulator, at = instructions(program), 0, 0
    while True:
        op, yes, no, k = code[at]
        at += 1
        if op == LOAD_WORD:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif op == AND:
            accumulator &= k
        elif op == RET:
            return _action(k)
        else:
            met = {JEQ: accumulator == k, JGE: accumulator >= k, JSET: bool(accumulator & k)}[op]
            at += yes if met else no


def _action(value: int) -> str | int:
    if value == 0x7FFF0000:
        return ALLOW
    if value == 0x80000000:
        return KILL
    if value == ASK_LISTENER:
        return ASK_LISTENER
    assert value >> 16 == 0x5, f"unexpected action {value:#x}"
    return value & 0xFFFF
