"""Python sessions in WebAssembly; ``host_line.py`` loads the guest in a jail and makes a session of it.

There are two guests. The small CPython is an image of one that has started (``python_image.py``): its memory is entered
through the function table. The large one, with the scientific packages, exports a function that runs source text. Both
then ask for an order (``turn`` in ``inside/cell_boot.py``), carry it out, and send letters.
"""

from __future__ import annotations

import io
import json
import os
import signal
import zipfile
from dataclasses import replace

import wasmtime

from ..session.worker import CellEngine, Worker
from .engine import GuestExit, describe_torn, make_engine
from .guest_files import Folders
from .host_line import HostLine, failed, python_sources
from .memory import map_memory, write_memory
from .pip_in_jail import install
from .plan import GuestPlan, Preopen, SessionPlan
from .python_image import LETTER_BOX, PLACES, ImageEntry, boot_source
from .quickjs import Export
from .rewrite import TABLE
from .wasi import PlainWasi, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


_INSIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside")
_LIBRARY = "/usr/local/lib"
_FIGURES = f"{_LIBRARY}/python315.zip/matplotlib/mpl-data"
_ENV = {"TMPDIR": "/tmp", "HOME": "/box", "PYTHONTZPATH": "", "MPLBACKEND": "Agg", "MPLCONFIGDIR": "/tmp/matplotlib"}
#: The letter box of the large Python, which takes any number. The CPython of an image knows its descriptors.
_LARGE_BOX = 1000
_PROGRAMS = {"_site": f"{_INSIDE}/wasi_python_site.py", "_sandbox": f"{_INSIDE}/cell_boot.py"}
_TURN = "__import__('_sandbox').turn()"
#: What a letter begins with that is a call of a host function; ``cell_boot.py`` has it too.
_CALL = b"host "
#: What a guest sends to be given an order.
_NEXT = b'{"op": "next"}'
#: The stack of the main thread is smaller than that of a run's own thread.
_STACK_BYTES = 4 << 20


class WasmPythonEngine(CellEngine):
    """CPython as the engine of a session: loaded before the session is known, and then started with its plan."""

    def __init__(self, plan: GuestPlan) -> None:
        self.is_image = plan.booted
        engine = make_engine(replace(plan.switches, stack_bytes=_STACK_BYTES) if self.is_image else plan.switches)
        self.store = wasmtime.Store(engine)
        self.store.set_epoch_deadline(1)
        self.number = 0
        self.line: HostLine | None = None
        #: The last letter of the guest, and what it is given to do next.
        self.told: dict[str, Any] = {}
        self._order: dict[str, object] = {}
        box = LETTER_BOX if self.is_image else _LARGE_BOX
        self.wasi = PlainWasi(["python"], letter_box=box, letter=self._letter)
        linker = wasmtime.Linker(engine)
        self.wasi.define(linker)
        i32 = wasmtime.ValType.i32()
        linker.define_func("host", "call", wasmtime.FuncType([i32] * 4, [i32]), lambda *_: -1)
        module = wasmtime.Module.deserialize_file(engine, plan.module)
        self.export = Export(self.store, linker.instantiate(self.store, module))
        self.memory = self.export.memory()
        self.wasi.memory, self.wasi.store = self.memory, self.store
        if self.is_image:
            self._entry = ImageEntry(self.memory, self.store, self.export.find(TABLE))
            # A first call copies the pages of the memory that every cell writes to.
            self._turn("names")

    def start(self, plan: SessionPlan, image: int | None) -> None:
        """Begin a session, or go on with one whose memory is in the file ``image``."""
        self.store.set_limits(memory_size=plan.memory_bytes, instances=1, tables=8, memories=1)
        self.folders, self.scratch, self.indexes = Folders(plan.preopens), plan.scratch, plan.indexes
        names = self.wasi.give(plan.preopens if self.is_image else self._large_folders(plan))
        if image is not None:
            map_memory(self.memory, self.store, image)
        if self.is_image:
            self._entry = ImageEntry(self.memory, self.store, self.export.find(TABLE))
            self._entry.name_mounts(names[len(PLACES) :])
        if image is not None:
            self._call("renew")
        elif self.is_image:
            self._call("begin", {"HOME": "/box", **plan.env})
        elif self._run(boot_source(_PROGRAMS, _LARGE_BOX, 'sys.modules["_sandbox"].begin()')):
            raise wasmtime.WasmtimeError("the session's own program failed")

    def _large_folders(self, plan: SessionPlan) -> list[Preopen]:
        library = next(folder.host for folder in plan.preopens if folder.guest == _LIBRARY)
        unpacked, own = (os.path.join(plan.scratch, name) for name in ("matplotlib", "own"))
        os.makedirs(own, exist_ok=True)
        # The data files of matplotlib, which opens them by name.
        with zipfile.ZipFile(os.path.join(library, "python315.zip")) as archive:
            with zipfile.ZipFile(io.BytesIO(archive.read("matplotlib/mpl-data.zip"))) as data:
                data.extractall(unpacked)
        self.wasi.set_env({**_ENV, **plan.env})
        figures = Preopen(host=unpacked, guest=_FIGURES, writable=False)
        temporary = Preopen(host=own, guest="/tmp", writable=True)
        return [*plan.preopens[:2], figures, temporary, *plan.preopens[2:]]

    def offer(self, line: HostLine) -> None:
        """Let cells call host functions; called before ``begin``."""
        self.line = line
        self._call("offer", python_sources(), line.listing)

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``. The guest cannot be interrupted: the host ends the cell and rolls back."""
        self.worker = worker
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _turn(self, name: str, *arguments: object) -> bool:
        """Call a function of ``cell_boot.py``; returns False when it raised, which leaves the memory whole."""
        self.told = {}
        self._order = {"call": name, "arguments": list(arguments)}
        return self._entry.call("turn") if self.is_image else not self._run(_TURN)

    def _run(self, code: str) -> int:
        """Run source text in the large Python; returns 0 unless it raised."""
        data = code.encode("utf-8", "surrogatepass")
        place = self.export.function("host_alloc")(self.store, len(data)) & 0xFFFFFFFF
        self.memory.write(self.store, data, place)
        return int(self.export.function("turn")(self.store, place, len(data)))

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of ``cell_boot.py``.

        Whatever leaves the guest in the middle of the call ends the worker: its memory cannot go on. The host rolls
        back to a checkpoint.
        """
        try:
            returned = self._turn(name, *arguments)
        except BaseException as error:
            self._end(error)
        if not returned:
            raise wasmtime.WasmtimeError("the session's own program failed")

    @staticmethod
    def _end(error: BaseException) -> NoReturn:
        """End the worker: its guest cannot go on. A cell that called ``os._exit`` gets the code that it asked for."""
        if isinstance(error, GuestExit):
            os._exit(error.code & 0xFF)
        write_all(2, describe_torn(error).encode("utf-8", "replace") + b"\n")
        os._exit(134)

    def _letter(self, data: bytes) -> bytes:
        """Answer a letter of the guest, which may send anything: what is none is an empty one."""
        if data.startswith(_CALL):
            # A call of a host function goes on as it came: reading it here would take a good part of its time.
            if self.line is None:
                return failed("ConnectionLost", "this session has no host functions")
            return self.line.answer(data[len(_CALL) :])
        if data == _NEXT:
            return json.dumps(self._order).encode()
        try:
            letter = json.loads(data)
            op = letter.pop("op", None)
        except (ValueError, RecursionError, AttributeError, TypeError):
            return b"{}"
        if op == "input":
            try:
                return json.dumps({"value": self.worker.input(str(letter.get("prompt", "")), False)}).encode()
            except EOFError:
                return b"{}"
        if op == "pip":
            return json.dumps(install(letter, self.folders, self.scratch, self.indexes)).encode()
        if op == "show":
            shown = {"op": "display", "kind": letter.get("kind"), "data": letter.get("data")}
            self.worker.show({**shown, "metadata": {}, "display_id": None})
        elif op is not None:
            self.told = letter
        return b"{}"

    def run(self, code: str, number: int | None) -> dict[str, Any]:
        """See ``CellEngine``."""
        self.number = number if number is not None else self.number + 1
        before = self.export.refusals()
        try:
            self._call("run", code, self.number)
        except wasmtime.WasmtimeError as error:
            self._end(error)
        told = self.told
        if before is not None and self.export.refusals() == before:
            # The guest reports every MemoryError as the limit, also one that the program raised itself.
            told.pop("limit", None)
        return told or {"status": "error", "exit_code": 1}

    def names(self) -> int:
        """See ``CellEngine``."""
        self._call("names")
        count = self.told.get("count")
        return count if isinstance(count, int) else 0

    def ask(self, what: str, code: str, position: int) -> dict[str, Any]:
        """See ``CellEngine``; ``image`` writes the session's memory to the descriptor that came with it."""
        if what == "image":
            target = self.worker.channel.take_descriptor()
            still_open = self._release()
            if still_open and target is not None:
                os.close(target)
            return still_open or {**write_memory(self.memory, self.store, target), "elapsed_s": 0.0}
        self._call("ask", what, code, position)
        answer = self.told.get("answer")
        return answer if isinstance(answer, dict) else {}

    def _release(self) -> dict[str, Any]:
        """Close files that only caches hold; returns those that are still open, which no memory has."""
        if self.is_image and self.wasi.open_files():
            self._call("release")
        opened = self.wasi.open_files()
        return {"open_files": opened[:5]} if opened else {}


#: Called by ``host_line.py``.
load = WasmPythonEngine
