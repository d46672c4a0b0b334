"""Classic BPF, as far as a syscall filter needs it: instructions as bytes, and the few patterns that rules use.

A program is a list of 8-byte ``sock_filter`` records (16-bit code, two 8-bit forward jumps, 32-bit constant), little
endian on the supported architectures. Its input is a ``seccomp_data``: number, architecture, six 64-bit arguments.
"""

from __future__ import annotations

import struct

LOAD_WORD = 0x20  # A = the 32-bit word at offset k
AND = 0x54  # A &= k
JUMP_EQUAL = 0x15
JUMP_AT_LEAST = 0x35
JUMP_ANY_BIT = 0x45
RETURN = 0x06

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ASK_LISTENER = 0x7FC00000
_ERRNO = 0x00050000

OFFSET_NUMBER = 0
OFFSET_ARCH = 4

Code = tuple[bytes, ...]


def instruction(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    """Encode one ``sock_filter``. Jumps count from the next instruction; one beyond 255 raises ``struct.error``."""
    return struct.pack("<HBBI", code, jump_true, jump_false, k)


def give(action: int) -> Code:
    """Return code that ends the program with this action."""
    return (instruction(RETURN, action),)


def refuse(errno_value: int) -> Code:
    """Return code that ends the program: the call is not made and fails with this errno."""
    return give(_ERRNO | errno_value)


def load_number() -> Code:
    """Return code for A = the syscall number."""
    return (instruction(LOAD_WORD, OFFSET_NUMBER),)


def load_arch() -> Code:
    """Return code for A = the architecture of the call."""
    return (instruction(LOAD_WORD, OFFSET_ARCH),)


def load_argument(index: int) -> Code:
    """Return code for A = the low half of an argument. The kernel reads int arguments the same way."""
    return (instruction(LOAD_WORD, 16 + 8 * index),)


def load_argument_high(index: int) -> Code:
    """Return code for A = the high half of an argument; for pointers, where both halves count."""
    return (instruction(LOAD_WORD, 20 + 8 * index),)


def mask(bits: int) -> Code:
    """Return code for A &= bits."""
    return (instruction(AND, bits),)


def when_equal(value: int, body: Code) -> Code:
    """Run the body if A is this value. The body must end the program on every path."""
    return (instruction(JUMP_EQUAL, value, 0, len(body)), *body)


def unless_equal(value: int, body: Code) -> Code:
    """Run the body if A is another value."""
    return (instruction(JUMP_EQUAL, value, len(body), 0), *body)


def when_at_least(value: int, body: Code) -> Code:
    """Run the body if A, unsigned, is this value or above."""
    return (instruction(JUMP_AT_LEAST, value, 0, len(body)), *body)


def when_any_bit(bits: int, body: Code) -> Code:
    """Run the body if A has any of these bits."""
    return (instruction(JUMP_ANY_BIT, bits, 0, len(body)), *body)


def unless_one_of(values: tuple[int, ...], body: Code) -> Code:
    """Run the body if A is none of these values; at most 250 values."""
    tests = tuple(
        instruction(JUMP_EQUAL, value, len(values) - 1 - index + len(body), 0) for index, value in enumerate(values)
    )
    return (*tests, *body)
