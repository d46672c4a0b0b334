"""The engine of a Python session in the image of the light CPython: the memory is entered once for each cell.

The image's record (``python/boot_python.py``) says which Python function to call, and where the names of mounts go. As
in every WebAssembly session, checkpoints are forks of the worker and the memory between two cells is the whole state.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime._func import enter_wasm

from ...session.worker import Worker
from ..engine import Switches, make_engine
from ..guest_files import Folders
from ..host_line import HostLine, failed
from ..javascript.embedder import write_all
from ..javascript.quickjs import Export
from ..memory import HasMemory, apply_changes, changed_pages, map_memory, memory_base, write_changes
from ..plan import Preopen, read_switches
from ..rewrite import TABLE
from ..wasi.all_calls import PlainWasi
from .interrupts import MemoryInterrupts
from .wasm_python_session import WasmPythonEngine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PreparedCall:
    """A call with fixed arguments. All arguments, and the one result, are numbers of 32 bits."""

    def __init__(self, store: wasmtime.Store, function: wasmtime.Func, arguments: tuple[int, ...]) -> None:
        i32 = wasmtime.ValType.i32()
        kind = function.type(store)
        if kind.params != [i32] * len(arguments) or kind.results != [i32]:
            raise wasmtime.WasmtimeError("the function takes or returns something else")
        self._store, self._function = store, function
        self._given = (ffi.wasmtime_val_t * len(arguments))()
        for number, value in enumerate(arguments):
            self._given[number] = wasmtime.Val._convert_to_raw(store, i32, value)
        self._result = (ffi.wasmtime_val_t * 1)()

    def __call__(self) -> int:
        """Call the function and return its result; raises what ``wasmtime.Func`` raises."""
        given, result = self._given, self._result
        with enter_wasm(self._store) as trap:
            function = ctypes.byref(self._function._func)
            error = ffi.wasmtime_func_call(self._store._context(), function, given, len(given), result, 1, trap)
            if error:
                raise wasmtime.WasmtimeError._from_ptr(error)
        return int(result[0].of.i32)


#: The folders of every run, before the mounts; the last one, which has the program, is the letter box of a session.
_PLACES = 4
_POST = 3 + _PLACES - 1
#: What a guest is told to do that no session uses yet: something that changes nothing.
_FIRST_ORDER = b'{"call": "touch", "arguments": []}'
#: The stack of the main thread is smaller than that of a run's own thread.
_STACK_BYTES = 4 << 20
_MOST_RECORD_BYTES = 8192
#: What a guest sends to be given an order, and the longest order that is written into its buffer.
_NEXT = b'{"op": "next"}'
_MOST_ORDER_BYTES = 16 << 10


class LoadedImage:
    """An instance of the image that no session uses yet; ``letter`` answers its messages."""

    def __init__(self, known: dict[str, Any]) -> None:
        engine = make_engine(replace(_switches(known["switches"]), stack_bytes=_STACK_BYTES))
        with open(known["handles"]) as file:
            self.record: int = json.load(file)["record"]
        module = wasmtime.Module.deserialize_file(engine, known["module"])
        self.letter: Callable[[bytes], bytes] = lambda _data: _FIRST_ORDER
        self.store = wasmtime.Store(engine)
        self.store.set_epoch_deadline(1)
        self._buffer = (0, 0)
        self.wasi = PlainWasi(Folders([]), [], ["python"], {}, write_all, self._answer)
        self.wasi.make_post(_POST)
        linker = wasmtime.Linker(engine)
        self.wasi.define(linker)
        self.export = Export(self.store, linker.instantiate(self.store, module))
        self.memory = self.export.memory()
        self.wasi.memory, self.wasi.store = self.memory, self.store
        if known.get("base") is not None:
            map_memory(self, os.open(known["base"], os.O_RDONLY | os.O_CLOEXEC))
        # A first call copies the pages of the memory that every cell writes to.
        record = self.read_record()
        self.function(record)(self.store, record["turn"], 0, 0, 0)

    def _answer(self, data: bytes) -> bytes:
        """Answer a letter. An order goes into the guest's buffer, which takes less time than to let it be read."""
        answer = self.letter(data)
        if data == _NEXT:
            place, room = self._buffer
            fits = len(answer) <= min(room - 4, _MOST_ORDER_BYTES)
            said = len(answer).to_bytes(4, "little") + answer if fits else bytes(4)
            self.memory.write(self.store, said, place)
        return answer

    def give(self, preopens: Sequence[Preopen]) -> list[str]:
        """Give the guest these folders; returns the names of the mounts among them."""
        places = [folder.guest if folder.guest != "." else preopens[0].guest for folder in preopens]
        self.wasi.give(Folders(preopens), places)
        self.wasi.make_post(_POST)
        return places[_PLACES:]

    def read_record(self) -> dict[str, Any]:
        """Read the record from the memory, which may be a saved one."""
        place = self.record
        size = int.from_bytes(self.memory.read(self.store, place, place + 4), "little")
        if size > _MOST_RECORD_BYTES:
            raise wasmtime.WasmtimeError("the memory of the session has no record")
        found: dict[str, Any] = json.loads(bytes(self.memory.read(self.store, place + 4, place + 4 + size)))
        # The memory may lie: whatever is written to the buffer is checked to be in the memory.
        place, room = found["buffer"]
        self._buffer = int(place), int(room)
        return found

    def function(self, record: dict[str, Any]) -> wasmtime.Func:
        """Return the C function that calls Python functions."""
        table = self.export.find(TABLE)
        assert isinstance(table, wasmtime.Table)
        function = table.get(self.store, record["index"])
        assert isinstance(function, wasmtime.Func)
        return function


class LightPythonEngine(WasmPythonEngine):
    """A CPython that has started as the engine of a session."""

    def __init__(self, loaded: LoadedImage, plan: dict[str, Any], image: int | None) -> None:
        self.store, self.export, self.memory, self.wasi = loaded.store, loaded.export, loaded.memory, loaded.wasi
        self.store.set_limits(memory_size=plan["memory_bytes"], instances=1, tables=8, memories=1)
        preopens = [Preopen(**folder) for folder in plan["preopens"]]
        mounts = loaded.give(preopens)
        loaded.letter = self._letter
        self.folders, self.scratch, self.indexes = Folders(preopens), plan["scratch"], plan["indexes"]
        self.number = 0
        self.told: dict[str, Any] = {}
        self.line: HostLine | None = None
        self.order: dict[str, object] = {}
        #: Whether pages that were not written to are those that another new guest has too.
        self._begun_alike = image is None or plan["changes"]
        self._is_copy = image is not None and plan["changes"]
        if image is not None:
            (apply_changes if plan["changes"] else map_memory)(self, image)
        record = loaded.read_record()
        self._turn_call = PreparedCall(self.store, loaded.function(record), (record["turn"], 0, 0, 0))
        name_mounts(self, record["spares"], mounts)
        base, size = memory_base(self), self.memory.data_len(self.store)
        self._interrupts = MemoryInterrupts(base, size, record["interrupt"])
        self._asking = False
        self.wasi.stop = lambda: self._interrupts.came
        if image is None:
            self._call("begin", {"HOME": "/box", **plan["env"]})
        else:
            self._call("renew")

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``."""
        self.worker = worker
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        """Handle an interrupt in the worker's own code: it ends a question to the user, the guest gets it otherwise."""
        if self._asking:
            raise KeyboardInterrupt

    def run(self, code: str, number: int | None) -> dict[str, Any]:
        """See ``CellEngine``."""
        with self._interrupts:
            return super().run(code, number)

    def touch(self) -> None:
        """See ``CellEngine``; starts also the thread that will wait for interrupts of the next cell."""
        super().touch()
        self._interrupts.listen()

    def end_threads(self) -> None:
        """See ``CellEngine``."""
        self._interrupts.stop_listening()

    def _asked(self, prompt: str) -> bytes:
        return self._waited(lambda: super(LightPythonEngine, self)._asked(prompt), b"{}")

    def _called(self, message: bytes) -> bytes:
        return self._waited(lambda: super(LightPythonEngine, self)._called(message), failed("KeyboardInterrupt", ""))

    def _waited(self, wait: Callable[[], bytes], interrupted: bytes) -> bytes:
        """Wait for the host, outside of the guest; returns ``interrupted`` after an interrupt."""
        try:
            self._interrupts.expect()
            self._asking = not self._interrupts.came
            return wait() if self._asking else interrupted
        except KeyboardInterrupt:
            # The guest raises its own as soon as it goes on.
            self._interrupts.await_came()
            return interrupted
        finally:
            self._asking = False

    def names_at_first(self) -> int:
        """See ``CellEngine``: a copy does not wait to be counted."""
        return 0 if self._is_copy else self.names()

    def _ended(self) -> None:
        self._interrupts.disarm()

    def _enter(self, name: str, *arguments: object) -> bool:
        self.order = {"call": name, "arguments": list(arguments)}
        return bool(self._turn_call())

    def _letter(self, data: bytes) -> bytes:
        if data == _NEXT:
            if self.order["call"] == "run":
                self._interrupts.arm()
            return json.dumps(self.order).encode()
        return super()._letter(data)

    def ask(self, what: str, code: str, position: int) -> dict[str, Any]:
        """See ``CellEngine``; ``changes`` writes the changed pages of the memory to the descriptor that came with it.

        Where these are not known the answer is empty, and the host asks for all of the memory.
        """
        if what in ("changes", "image") and self.wasi.open_files():
            self._call("release")
        if what != "changes":
            return super().ask(what, code, position)
        target = self.worker.channel.take_descriptor()
        pages = changed_pages(self) if self._begun_alike and target is not None else None
        try:
            if target is None or pages is None or self.wasi.open_files():
                return {}
            return {**write_changes(self, target, pages), "elapsed_s": 0.0}
        finally:
            if target is not None:
                os.close(target)

    def _unpack(self) -> None:
        """Do nothing: this Python has no matplotlib, whose files would be unpacked."""


def _switches(given: Switches | dict[str, Any]) -> Switches:
    return given if isinstance(given, Switches) else read_switches(given)


def name_mounts(guest: HasMemory, spares: list[list[int]], mounts: list[str]) -> None:
    """Write the names of the mounts to where libc has the names of the image's spare folders."""
    for (_, place), name in zip(spares, mounts, strict=False):
        guest.memory.write(guest.store, name[1:].encode() + b"\0", place)


def load(known: dict[str, Any]) -> LoadedImage:
    """Load what does not depend on the plan of a session; called by ``waiting.py``."""
    return LoadedImage(known)


def make(loaded: LoadedImage, plan: dict[str, Any], image: int | None) -> LightPythonEngine:
    """Make the engine of one session."""
    return LightPythonEngine(loaded, plan, image)
