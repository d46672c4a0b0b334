"""The engine of a Python session in WebAssembly: CPython with the scientific packages, called once for each cell.

``waiting.py`` loads it in a waiting jail and makes it the engine of a session. As for JavaScript
(``js_session.py``), checkpoints are forks of the worker, and between two cells the guest's memory is the whole session.
"""

from __future__ import annotations

import io
import json
import os
import signal
import zipfile
from dataclasses import dataclass

import wasmtime

from ...session.worker import CellEngine, Worker
from ..engine import GuestExit, describe_torn, make_engine
from ..guest_files import Folders
from ..host_line import HostLine, failed, python_sources
from ..javascript.embedder import write_all
from ..javascript.quickjs import Export
from ..memory import map_memory, write_memory
from ..plan import Preopen, read_switches
from ..rewrite import REFUSED
from ..wasi.all_calls import PlainWasi
from ..wasi.file_calls import LETTER_BOX
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
        self.folders, self.scratch, self.indexes = Folders(preopens), plan["scratch"], plan["indexes"]
        self.number = 0
        self.told: dict[str, Any] = {}
        self.line: HostLine | None = None
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


def load(known: dict[str, Any]) -> LoadedPython:
    """Load what does not depend on the plan of a session; called by ``waiting.py``."""
    engine = make_engine(read_switches(known["switches"]))
    return LoadedPython(engine, wasmtime.Module.deserialize_file(engine, known["module"]))


def make(loaded: LoadedPython, plan: dict[str, Any], image: int | None) -> WasmPythonEngine:
    """Make the engine of one session."""
    return WasmPythonEngine(loaded, plan, image)
