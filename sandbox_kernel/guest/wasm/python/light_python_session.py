"""The engine of a Python session in the image of the light CPython: the memory is entered once for each cell.

The image's record (``images/boot_python.py``) says which Python function to call, and where the names of mounts go. As
in every WebAssembly session, checkpoints are forks of the worker and the memory between two cells is the whole state.
"""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, replace

import wasmtime

from ...session.worker import Worker
from ..binary.expose import TABLE
from ..engine import make_engine
from ..guest_files import Folders
from ..images.memory_file import map_memory
from ..javascript.host_calls import write_all
from ..javascript.quickjs import Export
from ..plan import Preopen, read_switches
from ..wasi.all_calls import PlainWasi
from .wasm_python_session import WasmPythonEngine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The folders of every run, before the mounts; the last one, which has the program, is the letter box of a session.
_PLACES = 4
#: The stack of the main thread is smaller than that of a run's own thread.
_STACK_BYTES = 4 << 20
_MOST_RECORD_BYTES = 8192


@dataclass(frozen=True)
class LoadedImage:
    """An engine, the compiled image, and where its record is."""

    engine: wasmtime.Engine
    module: wasmtime.Module
    record: int


class LightPythonEngine(WasmPythonEngine):
    """A CPython that has started as the engine of a session."""

    def __init__(self, loaded: LoadedImage, plan: dict[str, Any], image: int | None) -> None:
        self.store = wasmtime.Store(loaded.engine)
        self.store.set_limits(memory_size=plan["memory_bytes"], instances=1, tables=8, memories=1)
        self.store.set_epoch_deadline(1)
        preopens = [Preopen(**folder) for folder in plan["preopens"]]
        places = [folder.guest if folder.guest != "." else preopens[0].guest for folder in preopens]
        self.wasi = PlainWasi(Folders(preopens), places, ["python"], {}, write_all, self._letter)
        self.wasi.make_post(3 + _PLACES - 1)
        linker = wasmtime.Linker(loaded.engine)
        self.wasi.define(linker)
        self.export = Export(self.store, linker.instantiate(self.store, loaded.module))
        self.memory = self.export.memory()
        self.wasi.memory, self.wasi.store = self.memory, self.store
        self.number = 0
        self.told: dict[str, Any] = {}
        self.order: dict[str, object] = {}
        if image is not None:
            map_memory(self, image)
        record = self._record(loaded.record)
        self._turn_at = record["turn"]
        table = self.export.find(TABLE)
        assert isinstance(table, wasmtime.Table)
        function = table.get(self.store, record["index"])
        assert isinstance(function, wasmtime.Func)
        self._function = function
        self._name_mounts(record["spares"], places[_PLACES:])
        if image is None:
            self._call("begin", {"HOME": "/box", **plan["env"]})

    def _record(self, place: int) -> dict[str, Any]:
        """Read the record from the memory, which may be a saved one."""
        size = int.from_bytes(self.memory.read(self.store, place, place + 4), "little")
        if size > _MOST_RECORD_BYTES:
            raise wasmtime.WasmtimeError("the memory of the session has no record")
        found: dict[str, Any] = json.loads(bytes(self.memory.read(self.store, place + 4, place + 4 + size)))
        return found

    def _name_mounts(self, spares: list[list[int]], mounts: list[str]) -> None:
        """Write the names of the mounts to where libc has the names of the image's spare folders."""
        for (_, place), name in zip(spares, mounts, strict=False):
            self.memory.write(self.store, name[1:].encode() + b"\0", place)

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``."""
        self.worker = worker
        signal.signal(signal.SIGINT, lambda *_: None)

    def _call(self, name: str, *arguments: object) -> None:
        self.order = {"call": name, "arguments": list(arguments)}
        self._function(self.store, self._turn_at, 0, 0, 0)

    def _letter(self, data: bytes) -> bytes:
        if data == b'{"op": "next"}\n':
            return json.dumps(self.order).encode()
        return super()._letter(data)

    def _unpack(self) -> None:
        """Do nothing: this Python has no matplotlib, whose files would be unpacked."""


def load(known: dict[str, Any]) -> LoadedImage:
    """Load what does not depend on the plan of a session; called by ``warm/warm_session.py``."""
    engine = make_engine(replace(read_switches(known["switches"]), stack_bytes=_STACK_BYTES))
    with open(known["handles"]) as file:
        record = json.load(file)["record"]
    return LoadedImage(engine, wasmtime.Module.deserialize_file(engine, known["module"]), record)


def make(loaded: LoadedImage, plan: dict[str, Any], image: int | None) -> LightPythonEngine:
    """Make the engine of one session."""
    return LightPythonEngine(loaded, plan, image)
