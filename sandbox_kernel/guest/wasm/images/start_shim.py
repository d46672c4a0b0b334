"""The ``_start`` of a Python image, as instructions: takes over what is new in a run, then calls the Python function.

New in a run are the arguments, the environment, and the names of mounted folders. libc read the names of folders when
it started, at the boot, where spare folders with long names stood in for mounts. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..binary import format as binary
from ..binary.format import Malformed, Reader, signed, unsigned
from ..binary.inspect_module import ModuleFacts

_I32 = 0x7F
_LOAD, _STORE_BYTE, _DROP, _ADD, _SUB, _GREATER, _IS_ZERO = (
    b"\x28\x02\0", b"\x3a\0\0", b"\x1a", b"\x6a", b"\x6b", b"\x4b", b"\x45",
)  # fmt: skip
_IF, _END, _UNREACHABLE, _COPY = b"\x04\x40", b"\x0b", b"\0", b"\xfc\x0a\0\0"


@dataclass(frozen=True, kw_only=True)
class StartShim:
    """The addresses in an image that its ``_start`` uses."""

    #: The Python function to call, and the table index of the C function that calls it.
    program: int
    index: int
    #: Where arguments and environment go: four sizes, then the texts; the pointers to them at the end.
    buffer: int
    buffer_bytes: int
    #: The descriptor of each spare folder, and where libc has its name, without its first slash.
    spares: tuple[tuple[int, int], ...]
    spare_bytes: int


def shim_code(shim: StartShim, module: bytes, facts: ModuleFacts) -> bytes:
    """Return the instructions of ``_start``; it traps when arguments or a name are too long for their places."""
    names = [item.name for item in facts.imports if item.kind == "func"]

    def call(name: str) -> bytes:
        if name not in names:
            raise Malformed(f"the module does not import {name}")
        return b"\x10" + unsigned(names.index(name))

    quarter = shim.buffer_bytes // 4
    texts, pointers, scratch = shim.buffer + 16, shim.buffer + 3 * quarter, shim.buffer + shim.buffer_bytes - 512
    code = constant(shim.buffer) + constant(shim.buffer + 4) + call("args_sizes_get") + _DROP
    code += constant(shim.buffer + 8) + constant(shim.buffer + 12) + call("environ_sizes_get") + _DROP
    for field in range(4):  # number of arguments, their bytes, number of variables, their bytes
        most = quarter - 64 if field % 2 else (quarter - 1024) // 4
        code += _load(shim.buffer + 4 * field) + constant(most) + _GREATER + _IF + _UNREACHABLE + _END
    code += constant(pointers) + constant(texts) + call("args_get") + _DROP
    code += constant(pointers) + constant(texts) + _load(shim.buffer + 4) + _ADD + call("environ_get") + _DROP
    for descriptor, place in shim.spares:
        size = _load(scratch + 4)
        code += constant(descriptor) + constant(scratch) + call("fd_prestat_get") + _IS_ZERO + _IF
        code += size + constant(shim.spare_bytes) + _GREATER + _IF + _UNREACHABLE + _END
        code += constant(descriptor) + constant(scratch + 8) + size + call("fd_prestat_dir_name") + _DROP
        code += constant(place) + constant(scratch + 9) + size + constant(1) + _SUB + _COPY
        code += constant(place - 1) + size + _ADD + constant(0) + _STORE_BYTE + _END
    code += constant(shim.program) + constant(0) * 3 + constant(shim.index)
    return code + b"\x11" + unsigned(_call_type(module)) + b"\0" + _DROP


def constant(value: int) -> bytes:
    """Return ``i32.const`` of an unsigned number."""
    return b"\x41" + signed(value - (1 << 32) if value >= 1 << 31 else value)


def _load(address: int) -> bytes:
    return constant(address) + _LOAD


def _call_type(module: bytes) -> int:
    """Return the number of the type with four i32 parameters and one i32 result."""
    section = next(section for section in binary.sections(module) if section.id == binary.TYPE)
    reader = Reader(module, section.start, section.end)
    for number in range(reader.unsigned()):
        if reader.byte() != 0x60:
            raise Malformed("the module has types that are not functions")
        parameters = reader.take(reader.unsigned())
        results = reader.take(reader.unsigned())
        if parameters == bytes([_I32] * 4) and results == bytes([_I32]):
            return number
    raise Malformed("the module has no function with four parameters")
