"""How the image of a CPython that has started is entered; ``boot_python.py`` makes it.

The numbers below are those of the one module in ``languages/guests.toml``, whose checksum is there. A memory has a
record of what differs between two images, also when it was saved: where our Python functions are, and where the names
of mounts and the arguments of a program go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import wasmtime

#: The place in the function table of the C function that calls Python functions; every one of them holds it.
CALL = 580
#: Where the record is, and the room for it: at the end of the stack of the boot, which nothing uses any more.
RECORD, RECORD_BYTES = 516_096, 8192
#: The folders of every run, by their descriptors. The last one has the program, and sessions have it for letters only.
PLACES = ("/box", ".", "/", "/cell")
#: The descriptor that is the letter box: the folder of the program, which can be neither read nor written otherwise.
#: ``backends/functions/inside.py`` has it too.
LETTER_BOX = 3 + len(PLACES) - 1
#: Room for mounts, and for the bytes of a mount's name; ``backends/wasm/wasm_job.py`` has them too.
MOST_MOUNTS, MOST_NAME_BYTES = 24, 255
#: The exit code that stands for "1, because of a MemoryError": a list that no memory could hold is never asked for.
#: ``inside/image_boot.py`` has it too.
OUT_OF_MEMORY = 0x1000001
#: Room for the arguments and the environment of a program.
TEXT_BYTES = 2 << 20
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

    def __init__(self, memory: wasmtime.Memory, store: wasmtime.Store, table: object) -> None:
        self._memory, self._store = memory, store
        size = int.from_bytes(memory.read(store, RECORD, RECORD + 4), "little")
        if size > RECORD_BYTES:
            raise wasmtime.WasmtimeError("the memory of the session has no record")
        self._record: dict[str, Any] = json.loads(bytes(memory.read(store, RECORD + 4, RECORD + 4 + size)))
        assert isinstance(table, wasmtime.Table)
        function = table.get(store, CALL)
        assert isinstance(function, wasmtime.Func)
        self._function = function

    def call(self, name: str) -> bool:
        """Call one of our Python functions, without arguments; returns False when it raised."""
        return bool(self._function(self._store, self._record["entries"][name], 0, 0, 0))

    def name_mounts(self, mounts: Sequence[str]) -> None:
        """Write the names of mounts to where libc has the names of the image's spare folders."""
        if len(mounts) > len(self._record["spares"]):
            raise wasmtime.WasmtimeError(f"the image has no room for {len(mounts)} mounts")
        for place, name in zip(self._record["spares"], mounts, strict=False):
            self._memory.write(self._store, name[1:].encode() + b"\0", place)

    def run_program(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Run the file that the second argument names; ends with ``GuestExit``."""
        words = [str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
        data = "\0".join(words).encode("utf-8", "surrogateescape")
        if len(data) + 4 > TEXT_BYTES:
            raise wasmtime.WasmtimeError(f"arguments and environment take more than {TEXT_BYTES} bytes")
        self._memory.write(self._store, len(data).to_bytes(4, "little") + data, self._record["buffer"])
        self.call("program")
