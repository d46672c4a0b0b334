"""How the image of a CPython that has started is entered; ``boot_python.py`` makes it.

The memory of an image has a record of itself, also when it was saved: which C function calls Python functions, where
our Python functions are, and where the names of mounts and the arguments of a program go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import wasmtime

from .memory import HasMemory

#: The folders of every run, before the mounts. The last one has the program, which sessions do not have.
PLACES = 4
#: Room for the record.
RECORD_BYTES = 8192
#: Makes modules of our programs in a CPython; ``{start}`` is what to do then.
_BOOT = """import sys, types
for name, source in {sources!r}.items():
    sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{{name}}>", "exec", dont_inherit=True), sys.modules[name].__dict__)
sys.modules["_sandbox"]._post = {post}
{start}
del sys, types, name, source
"""


def boot_source(programs: Mapping[str, str], post: int, start: str) -> str:
    """Return the program that makes modules of these files, and then starts them; ``post`` is their letter box."""
    sources = {}
    for name, path in programs.items():
        with open(path, encoding="utf-8") as file:
            sources[name] = file.read()
    return _BOOT.format(sources=sources, post=post, start=start)


class ImageEntry:
    """The record of an image, and calls by it. What a saved memory says of itself may be wrong: writes are bounded."""

    def __init__(self, guest: HasMemory, table: object, facts: str) -> None:
        self._guest = guest
        with open(facts) as file:
            place: int = json.load(file)["record"]
        size = int.from_bytes(guest.memory.read(guest.store, place, place + 4), "little")
        if size > RECORD_BYTES:
            raise wasmtime.WasmtimeError("the memory of the session has no record")
        self.record: dict[str, Any] = json.loads(bytes(guest.memory.read(guest.store, place + 4, place + 4 + size)))
        assert isinstance(table, wasmtime.Table)
        function = table.get(guest.store, self.record["index"])
        assert isinstance(function, wasmtime.Func)
        self._function = function

    def call(self, name: str) -> bool:
        """Call one of our Python functions, without arguments; returns False when it raised."""
        return bool(self._function(self._guest.store, self.record["entries"][name], 0, 0, 0))

    def name_mounts(self, mounts: Sequence[str]) -> None:
        """Write the names of mounts to where libc has the names of the image's spare folders."""
        for place, name in zip(self.record["spares"], mounts, strict=False):
            self._guest.memory.write(self._guest.store, name[1:].encode() + b"\0", place)

    def run_program(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Run the file that the second argument names; ends with ``GuestExit``."""
        data = json.dumps({"argv": list(argv), "env": dict(env)}).encode()
        if len(data) + 4 > self.record["buffer_bytes"]:
            raise wasmtime.WasmtimeError("the arguments and the environment are too long for an image")
        self._guest.memory.write(self._guest.store, len(data).to_bytes(4, "little") + data, self.record["buffer"])
        self.call("program")
