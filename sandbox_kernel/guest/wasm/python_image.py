"""Makes an image of a CPython that has started, from a published WASI module, and enters it.

The interpreter runs a program (``image_boot.py``) that imports common modules. The small CPython ends in its first exit
handler: the interpreter is whole then, no Python function runs, and the memory stays. The large one, with the
scientific packages, exports a function that runs source text. Its image is the memory alone, which is mapped: compiling
its module takes minutes, and our programs change more often than it. Both are entered again through the function table.

The numbers below are those of the two modules in ``languages/guests.toml``, whose checksums are there. A memory has a
record of what differs between two images, also when it was saved: where our Python functions are, and where the names
of mounts and the arguments of a program go.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import wasmtime

from .binary import TRUSTED, Malformed, inspect
from .engine import GuestExit, make_engine, make_linker, making_store
from .plan import BootPlan
from .quickjs import Export
from .rewrite import TABLE, bake, exposed, prepare, with_stack

#: Index in the function table of the C function that calls any Python function: in the small CPython, in the large one.
_CALLS = (580, 621)
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
#: Makes modules of our programs in a CPython.
_BOOT = f"""import sys, types
for name, source in {{!r}}.items():
    sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{{{{name}}}}>", "exec", dont_inherit=True), sys.modules[name].__dict__)
sys.modules["_sandbox"]._post = {LETTER_BOX}
sys.modules["_boot"]._boot({TEXT_BYTES})
del sys, types, name, source
"""


def define_host(linker: wasmtime.Linker) -> None:
    """Define the host call that the large CPython imports. It always fails: we use the letter box."""
    i32 = wasmtime.ValType.i32()
    linker.define_func("host", "call", wasmtime.FuncType([i32] * 4, [i32]), lambda *_: -1)


class ImageEntry:
    """The record of an image, and calls by it. What a saved memory says of itself may be wrong: writes are bounded."""

    def __init__(self, memory: wasmtime.Memory, store: wasmtime.Store, table: object) -> None:
        self._memory, self._store = memory, store
        size = int.from_bytes(memory.read(store, RECORD, RECORD + 4), "little")
        if size > RECORD_BYTES:
            raise wasmtime.WasmtimeError("the memory of the session has no record")
        self._record: dict[str, Any] = json.loads(bytes(memory.read(store, RECORD + 4, RECORD + 4 + size)))
        assert isinstance(table, wasmtime.Table)
        function = table.get(store, self._record["call"])
        assert isinstance(function, wasmtime.Func)
        self._function = function

    def call(self, name: str) -> bool:
        """Call one of our Python functions, without arguments; returns False when it raised."""
        return bool(self._function(self._store, self._record["entries"][name], 0, 0, 0))

    def name_mounts(self, folders: Sequence[str]) -> None:
        """Write the names of mounts, which come after the image's own folders, to where libc has spare names."""
        mounts = folders[self._record["places"] :]
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


_BOOTED = 77
#: What the boot program writes at the beginning of the buffer for arguments.
_MARK = bytes(at * 37 + 11 & 255 for at in range(64))
#: The stack of the image, behind the memory at the boot. The module's own is too small for recursive C functions.
_STACK_BYTES = 4 << 20
#: The image's memory is a multiple of this, so that two images of one module are as large as each other.
_ROUND_BYTES = 16 << 20
#: Native stack besides the guest's own.
_HOST_STACK_BYTES = 4 << 20


def make_booted(plan: BootPlan) -> bytearray:
    """Return the compiled image; made on a thread whose stack is large enough for the guest's."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and few processes make an image

    threading.stack_size(plan.switches.stack_bytes + _HOST_STACK_BYTES)
    folder = os.path.join(os.path.dirname(plan.out), "boot")
    os.mkdir(folder)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_image, plan, folder).result()


def _image(plan: BootPlan, folder: str) -> bytearray:
    engine = make_engine(plan.switches, parallel=True)
    if plan.compiled:
        return _booted(plan, engine, wasmtime.Module.deserialize_file(engine, plan.source), folder, behind=0)
    with open(plan.source, "rb") as file:
        data = file.read()
    module = exposed(data, inspect(data, TRUSTED))
    content = _booted(plan, engine, wasmtime.Module(engine, module), folder, behind=_STACK_BYTES)
    image = with_stack(bake(module, bytes(content)), len(content))
    return wasmtime.Module(engine, prepare(image, inspect(image, TRUSTED))).serialize()


def _booted(plan: BootPlan, engine: wasmtime.Engine, module: wasmtime.Module, folder: str, *, behind: int) -> bytearray:
    """Return the memory of the interpreter that has started, with its record, and this many bytes behind it."""
    own = {name: host or folder for name, host in plan.folders.items()}
    spares = [f"/{number:03}-spare".ljust(MOST_NAME_BYTES, "~") for number in range(MOST_MOUNTS)]
    guest, sources = os.path.dirname(os.path.dirname(os.path.abspath(__file__))), {}
    for name, path in plan.programs.items():
        with open(os.path.join(guest, path), encoding="utf-8") as text:
            sources[name] = text.read()
    source = _BOOT.format(sources)
    folders = {**dict.fromkeys(PLACES, folder), **own, **dict.fromkeys(spares, folder)}
    store = making_store(engine, plan.switches, ["python", "-c", source], folders)
    linker = make_linker(engine)
    define_host(linker)
    export = Export(store, linker.instantiate(store, module))
    memory, table, code = export.memory(), export.find(TABLE), _BOOTED
    assert isinstance(table, wasmtime.Table)
    try:
        if plan.compiled:
            data = source.encode()
            place = export.function("host_alloc")(store, len(data))
            memory.write(store, data, place)
            code = export.function("turn")(store, place, len(data)) or _BOOTED
        else:
            export.function("_start")(store)
    except GuestExit as end:
        code = end.code
    if code != _BOOTED:
        raise Malformed(f"the boot program ended with {code}, not in its exit handler")
    with open(f"{folder}/boot.json") as text:
        entries: dict[str, int] = json.load(text)
    call = table.get(store, _CALLS[plan.compiled])
    assert isinstance(call, wasmtime.Func)
    if not call(store, entries["settle"], 0, 0, 0) or not os.path.exists(f"{folder}/settled"):
        raise Malformed("a Python function did nothing when it was called in the booted memory")
    content = bytearray(memory.read(store, 0, memory.data_len(store)))
    found = {"entries": entries, "call": _CALLS[plan.compiled], "places": len(PLACES) + len(own)}
    found |= {"spares": [_place(content, name[1:].encode()) for name in spares], "buffer": _place(content, _MARK)}
    record = json.dumps(found).encode()
    if len(record) > RECORD_BYTES - 4:
        raise Malformed("the stack of the boot has no room for the record")
    content[RECORD : RECORD + 4 + len(record)] = len(record).to_bytes(4, "little") + record
    size = -(-(len(content) + behind) // _ROUND_BYTES) * _ROUND_BYTES
    return content.ljust(size, b"\0")


def _place(memory: bytearray, content: bytes) -> int:
    place = memory.find(content)
    if place < 0 or memory.find(content, place + 1) >= 0:
        raise Malformed(f"{content[:20]!r} is not in the memory exactly once")
    return place
