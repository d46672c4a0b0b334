"""Makes an image of a CPython that has started, from a published WASI command module.

The interpreter runs a program (``image_boot.py``) that imports common modules and ends in its first exit handler: the
interpreter is whole then, no Python function runs, and the memory stays. The memory is entered again through the
function table (``python_image.py``).
"""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import wasmtime

from .binary import TRUSTED, Malformed, inspect
from .engine import GuestExit, make_engine, make_linker, making_store
from .plan import BootPlan
from .python_image import (
    CALL,
    LETTER_BOX,
    MOST_MOUNTS,
    MOST_NAME_BYTES,
    PLACES,
    RECORD,
    RECORD_BYTES,
    TEXT_BYTES,
    boot_source,
)
from .rewrite import TABLE, bake, exposed, prepare, with_stack

_BOOTED = 77
#: What the boot program writes at the beginning of the buffer for arguments.
_MARK = bytes(at * 37 + 11 & 255 for at in range(64))
#: The stack of the image, behind the memory at the boot. The module's own is too small for recursive C functions.
_STACK_BYTES = 4 << 20
#: The image's memory is a multiple of this, so that two images of one module have their stacks at the same place.
_ROUND_BYTES = 16 << 20
#: Native stack besides the guest's own.
_HOST_STACK_BYTES = 4 << 20


def make_booted(plan: BootPlan) -> bytearray:
    """Return the compiled image; made on a thread whose stack is large enough for the guest's."""
    threading.stack_size(plan.switches.stack_bytes + _HOST_STACK_BYTES)
    folder = os.path.join(os.path.dirname(plan.out), "boot")
    os.mkdir(folder)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(_image, plan, folder).result()


def _image(plan: BootPlan, folder: str) -> bytearray:
    with open(plan.source, "rb") as file:
        data = file.read()
    engine = make_engine(plan.switches, parallel=True)
    module = exposed(data, inspect(data, TRUSTED))
    spares = [f"/{number:03}-spare".ljust(MOST_NAME_BYTES, "~") for number in range(MOST_MOUNTS)]
    guest = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    programs = {name: os.path.join(guest, path) for name, path in plan.programs.items()}
    source = boot_source(programs, LETTER_BOX, f'sys.modules["_boot"]._boot({TEXT_BYTES})')
    folders = dict.fromkeys((*PLACES, *spares), folder)
    store = making_store(engine, plan.switches, ["python", "-c", source], folders)
    exports = make_linker(engine).instantiate(store, wasmtime.Module(engine, module)).exports(store)
    memory, table, begin = exports["memory"], exports[TABLE], exports["_start"]
    assert isinstance(memory, wasmtime.Memory)
    assert isinstance(table, wasmtime.Table)
    assert isinstance(begin, wasmtime.Func)
    code = 0
    try:
        begin(store)
    except GuestExit as end:
        code = end.code
    if code != _BOOTED:
        raise Malformed(f"the boot program ended with {code}, not in its exit handler")
    with open(f"{folder}/boot.json") as text:
        entries: dict[str, int] = json.load(text)
    call = table.get(store, CALL)
    assert isinstance(call, wasmtime.Func)
    if not call(store, entries["settle"], 0, 0, 0) or not os.path.exists(f"{folder}/settled"):
        raise Malformed("a Python function did nothing when it was called in the booted memory")
    content = bytearray(memory.read(store, 0, memory.data_len(store)))
    found = {"entries": entries, "spares": [_place(content, name[1:].encode()) for name in spares]}
    record = json.dumps({**found, "buffer": _place(content, _MARK)}).encode()
    if len(record) > RECORD_BYTES - 4:
        raise Malformed("the stack of the boot has no room for the record")
    content[RECORD : RECORD + 4 + len(record)] = len(record).to_bytes(4, "little") + record
    size = -(-(len(content) + _STACK_BYTES) // _ROUND_BYTES) * _ROUND_BYTES
    image = with_stack(bake(module, bytes(content).ljust(size, b"\0")), size)
    return wasmtime.Module(engine, prepare(image, inspect(image, TRUSTED))).serialize()


def _place(memory: bytearray, content: bytes) -> int:
    """Return the only place of these bytes in the memory."""
    place = memory.find(content)
    if place < 0 or memory.find(content, place + 1) >= 0:
        raise Malformed(f"{content[:20]!r} is not in the memory exactly once")
    return place
