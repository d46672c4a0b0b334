"""The engines of Python sessions in WebAssembly; ``host_line.py`` loads one in a jail and makes a session of it.

``WasmPythonEngine`` is the large CPython with the scientific packages, called once for each cell.
``LightPythonEngine`` is the image of the light one, whose memory is entered once for each cell: the image's record
(``boot_python.py``) says which Python function to call, and where the names of mounts go. As for JavaScript
(``js_session.py``), checkpoints are forks of the worker, and between two cells the guest's memory is the whole
session.
"""

from __future__ import annotations

import io
import json
import os
import signal
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import wasmtime

from ...session.worker import CellEngine, Worker
from ..engine import GuestExit, Switches, describe_torn, make_engine
from ..guest_files import Folders
from ..host_line import HostLine, failed, python_sources
from ..javascript.embedder import write_all
from ..javascript.quickjs import Export
from ..memory import HasMemory, apply_changes, changed_pages, map_memory, memory_base, write_changes, write_memory
from ..plan import Preopen, read_switches
from ..rewrite import REFUSED, TABLE
from ..wasi.all_calls import PlainWasi
from ..wasi.file_calls import LETTER_BOX
from .interrupts import MemoryInterrupts
from .pip_in_jail import install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


_LIBRARY = "/usr/local/lib"
_FIGURES = f"{_LIBRARY}/python315.zip/matplotlib/mpl-data"
_ENV = {"TMPDIR": "/tmp", "HOME": "/box", "PYTHONTZPATH": "", "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/matplotlib"}
_BOOT = """import sys, types
for name, source in {sources!r}.items():
    sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{{name}}>", "exec", dont_inherit=True), sys.modules[name].__dict__)
sys.modules["_sandbox"].begin()
del sys, types, name, source
"""
#: What a letter begins with that is a call of a host function; ``cell_boot.py`` has it too.
_CALL = b"host "
#: Programs that run in the guest before the first cell, by the names of their modules.
_PROGRAMS = {"_site": "wasi_python_site.py", "_sandbox": "cell_boot.py"}


@dataclass(frozen=True)
class LoadedPython:
    """An engine and the compiled guest."""

    engine: wasmtime.Engine
    module: wasmtime.Module


class WasmPythonEngine(CellEngine):
    """CPython as the engine of a session."""

    def __init__(self, loaded: LoadedPython, plan: dict[str, Any], image: int | None) -> None:
        self.store = wasmtime.Store(loaded.engine)
        self.store.set_limits(memory_size=plan["memory_bytes"], instances=1, tables=8, memories=1)
        self.store.set_epoch_deadline(1)
        preopens = [Preopen(**folder) for folder in plan["preopens"]]
        self.library = next(folder.host for folder in preopens if folder.guest == _LIBRARY)
        self.figures = os.path.join(plan["scratch"], "matplotlib")
        os.makedirs(self.figures, exist_ok=True)
        own = os.path.join(plan["scratch"], "own")
        os.makedirs(own, exist_ok=True)
        preopens[2:2] = [
            Preopen(host=self.figures, guest=_FIGURES, writable=False),
            Preopen(host=own, guest="/tmp", writable=True),
        ]
        places = [folder.guest for folder in preopens]
        env = {**_ENV, **plan["env"]}
        self.wasi = PlainWasi(Folders(preopens), [LETTER_BOX, *places], ["python"], env, write_all, self._letter)
        linker = wasmtime.Linker(loaded.engine)
        self.wasi.define(linker)
        i32 = wasmtime.ValType.i32()
        linker.define_func("host", "call", wasmtime.FuncType([i32] * 4, [i32]), lambda *_: -1)
        self.export = Export(self.store, linker.instantiate(self.store, loaded.module))
        self.memory = self.export.memory()
        self.wasi.memory, self.wasi.store = self.memory, self.store
        self._take(plan, preopens)
        if image is not None:
            map_memory(self, image)
            self._unpack()
            self._call("renew")
        else:
            folder = os.path.dirname(os.path.abspath(__file__))
            sources = {}
            for name, program in _PROGRAMS.items():
                with open(os.path.join(folder, program), encoding="utf-8") as file:
                    sources[name] = file.read()
            if self._turn(_BOOT.format(sources=sources)):
                raise wasmtime.WasmtimeError("the session's own program failed")

    def _take(self, plan: dict[str, Any], preopens: list[Preopen]) -> None:
        """Set what every session has."""
        self.folders, self.scratch, self.indexes = Folders(preopens), plan["scratch"], plan["indexes"]
        self.number = 0
        self.told: dict[str, Any] = {}
        self.line: HostLine | None = None

    def offer(self, line: HostLine) -> None:
        """Let cells call host functions; called before ``begin``."""
        self.line = line
        self._call("offer", python_sources(), line.listing)

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``. The guest cannot be interrupted: the host ends the cell and rolls back."""
        self.worker = worker
        signal.signal(signal.SIGINT, lambda *_: None)

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of ``cell_boot.py`` in the guest.

        Whatever leaves the guest in the middle of the call ends the worker: its memory cannot go on. The host rolls
        back to a checkpoint.
        """
        try:
            returned = self._enter(name, *arguments)
        except BaseException as error:
            self._end(error)
        if not returned:
            raise wasmtime.WasmtimeError("the session's own program was interrupted")

    def _enter(self, name: str, *arguments: object) -> bool:
        """Enter the guest; returns False when its function raised, which leaves its memory whole."""
        self._turn(f"__import__('_sandbox').{name}(*{arguments!r})")
        return True

    @staticmethod
    def _end(error: BaseException) -> NoReturn:
        """End the worker: its guest cannot go on. A cell that called ``os._exit`` gets the code that it asked for."""
        if isinstance(error, GuestExit):
            os._exit(error.code & 0xFF)
        write_all(2, describe_torn(error).encode("utf-8", "replace") + b"\n")
        os._exit(134)

    def _turn(self, code: str) -> int:
        data = code.encode("utf-8", "surrogatepass")
        place = self.export.function("host_alloc")(self.store, len(data)) & 0xFFFFFFFF
        self.memory.write(self.store, data, place)
        return int(self.export.function("turn")(self.store, place, len(data)))

    def _letter(self, data: bytes) -> bytes:
        """Answer a message of the boot program. It comes from the guest, so everything in it is checked."""
        if data.startswith(_CALL):
            # A call of a host function goes on as it came: reading it here would take a good part of its time.
            return self._called(data[len(_CALL) :])
        try:
            letter = json.loads(data)
            op = letter.pop("op")
        except (ValueError, KeyError, AttributeError, TypeError):
            return b"{}"
        if op == "input":
            return self._asked(str(letter.get("prompt", "")))
        if op == "matplotlib":
            self._unpack()
        elif op == "ended":
            self._ended()
        elif op == "pip":
            return json.dumps(install(letter, self.folders, self.scratch, self.indexes, self.wasi.stop)).encode()
        elif op == "show":
            shown = {"op": "display", "kind": letter.get("kind"), "data": letter.get("data"), "metadata": {}}
            self.worker.show({**shown, "display_id": None})
        else:
            self._ended()
            self.told = letter
        return b"{}"

    def _ended(self) -> None:
        """The code of the cell has ended, and ours goes on; nothing to do where a cell cannot be interrupted."""

    def _asked(self, prompt: str) -> bytes:
        """Ask the user for a line; without an answer the cell gets an ``EOFError``."""
        try:
            return json.dumps({"value": self.worker.input(prompt, False)}).encode()
        except EOFError:
            return b"{}"

    def _called(self, message: bytes) -> bytes:
        """Call a host function and return its answer."""
        if self.line is None:
            return failed("ConnectionLost", "this session has no host functions")
        return self.line.answer(message)

    def _unpack(self) -> None:
        """Unpack the data files of matplotlib, which it opens by name; done on demand, few sessions need them."""
        if os.listdir(self.figures):
            return
        with zipfile.ZipFile(os.path.join(self.library, "python315.zip")) as library:
            with zipfile.ZipFile(io.BytesIO(library.read("matplotlib/mpl-data.zip"))) as data:
                data.extractall(self.figures)

    def run(self, code: str, number: int | None) -> dict[str, Any]:
        """See ``CellEngine``."""
        self.told = {}
        self.number = number if number is not None else self.number + 1
        before = self._refusals()
        try:
            self._call("run", code, self.number)
        except wasmtime.WasmtimeError as error:
            self._end(error)
        if before is not None and self._refusals() == before:
            # The guest reports every MemoryError as the limit, also one that the program raised itself.
            self.told.pop("limit", None)
        return self.told or {"status": "error", "exit_code": 1}

    def _refusals(self) -> int | None:
        """Return how often the guest's memory was refused to grow; None for a module that does not count it."""
        counter = self.export.find(REFUSED)
        return int(counter.value(self.store)) if isinstance(counter, wasmtime.Global) else None

    def touch(self) -> None:
        """See ``CellEngine``."""
        try:
            self._call("touch")
        except wasmtime.WasmtimeError as error:
            self._end(error)

    def names(self) -> int:
        """See ``CellEngine``."""
        self.told = {}
        self._call("names")
        count = self.told.get("count")
        return count if isinstance(count, int) else 0

    def ask(self, what: str, code: str, position: int) -> dict[str, Any]:
        """See ``CellEngine``; ``image`` writes the session's memory to the file that ``code`` names."""
        self.told = {}
        if what == "image":
            opened = self.wasi.open_files()
            if opened:
                return {"open_files": opened[:5]}
            return {**write_memory(self, code), "elapsed_s": 0.0}
        self._call("ask", what, code, position)
        answer = self.told.get("answer")
        return answer if isinstance(answer, dict) else {}


#: The folders of every run, before the mounts; the last one, which has the program, is the letter box of a session.
_PLACES = 4
_POST = 3 + _PLACES - 1
#: What a guest is told to do that no session uses yet: something that changes nothing.
_FIRST_ORDER = b'{"call": "touch", "arguments": []}'
#: The stack of the main thread is smaller than that of a run's own thread.
_STACK_BYTES = 4 << 20
_MOST_RECORD_BYTES = 8192
#: What a guest sends to be given an order.
_NEXT = b'{"op": "next"}'


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
        self.wasi = PlainWasi(Folders([]), [], ["python"], {}, write_all, lambda data: self.letter(data))
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
        self._take(plan, preopens)
        self.order: dict[str, object] = {}
        #: Whether pages that were not written to are those that another new guest has too.
        self._begun_alike = image is None or plan["changes"]
        self._is_copy = image is not None and plan["changes"]
        if image is not None:
            (apply_changes if plan["changes"] else map_memory)(self, image)
        record = loaded.read_record()
        self._function, self._turn_at = loaded.function(record), record["turn"]
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
        return bool(self._function(self.store, self._turn_at, 0, 0, 0))

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


def load(known: dict[str, Any]) -> LoadedPython | LoadedImage:
    """Load what does not depend on the plan of a session (``host_line.py``). An image has a file of handles."""
    if known["handles"] is not None:
        return LoadedImage(known)
    engine = make_engine(read_switches(known["switches"]))
    return LoadedPython(engine, wasmtime.Module.deserialize_file(engine, known["module"]))


def make(loaded: LoadedPython | LoadedImage, plan: dict[str, Any], image: int | None) -> WasmPythonEngine:
    """Make the engine of one session."""
    if isinstance(loaded, LoadedImage):
        return LightPythonEngine(loaded, plan, image)
    return WasmPythonEngine(loaded, plan, image)
