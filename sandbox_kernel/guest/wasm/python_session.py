"""Python sessions in WebAssembly; ``host_line.py`` loads the guest in a jail and makes a session of it.

A guest is the image of a CPython that has started (``python_image.py``), a small one or the one with the scientific
packages. Its memory is entered through the function table: it asks for an order (``turn`` in ``inside/cell_boot.py``),
carries it out, and sends letters.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import wasmtime

from ..session.worker import CellEngine, Worker
from .engine import GuestExit, describe_torn, make_engine
from .guest_files import Folders
from .host_line import CALL, NEXT, HostLine, failed
from .memory import apply_changes, map_memory, write_memory
from .pip_in_jail import install
from .plan import GuestPlan, SessionPlan
from .python_image import LETTER_BOX, ImageEntry, define_host
from .quickjs import Export
from .rewrite import TABLE
from .wasi import PlainWasi, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

#: The stack of the main thread is smaller than that of a run's own thread.
_STACK_BYTES = 4 << 20


class WasmPythonEngine(CellEngine):
    """CPython as the engine of a session: loaded before the session is known, and then started with its plan."""

    def __init__(self, plan: GuestPlan) -> None:
        engine = make_engine(replace(plan.switches, stack_bytes=_STACK_BYTES))
        self.store = wasmtime.Store(engine)
        self.number = 0
        self.line: HostLine | None = None
        #: The last reply of the guest, and what it is given to do next.
        self.reply: dict[str, Any] = {}
        self._order: dict[str, object] = {}
        self.wasi = PlainWasi(["python"], letter_box=LETTER_BOX, letter=self._letter)
        linker = wasmtime.Linker(engine)
        self.wasi.define(linker)
        define_host(linker)
        module = wasmtime.Module.deserialize_file(engine, plan.module)
        self.export = Export(self.store, linker.instantiate(self.store, module))
        self.memory = self.export.memory()
        self.wasi.memory, self.wasi.store = self.memory, self.store
        if plan.memory is not None:
            map_memory(self.memory, self.store, os.open(plan.memory, os.O_RDONLY | os.O_CLOEXEC))
        self._entry = ImageEntry(self.memory, self.store, self.export.find(TABLE))
        # A first call copies the pages of the memory that every cell writes to.
        self._turn("names")

    def start(self, plan: SessionPlan, image: int | None) -> None:
        """Begin a session, or go on with one whose memory is in the file ``image``."""
        self.store.set_limits(memory_size=plan.memory_bytes, instances=1, tables=8, memories=1)
        self.folders, self.scratch, self.indexes = Folders(plan.preopens), plan.scratch, plan.indexes
        os.makedirs(os.path.join(plan.scratch, "own"), exist_ok=True)
        names = self.wasi.give(plan.preopens)
        #: Whether the memory began as the image has it, so that a fork needs only the changes since.
        self._begun_alike = image is None or plan.changes
        if image is not None:
            (apply_changes if plan.changes else map_memory)(self.memory, self.store, image)
        self._entry = ImageEntry(self.memory, self.store, self.export.find(TABLE))
        self._entry.name_mounts(names)
        if image is not None:
            self._call("renew")
        else:
            self._call("begin", {"HOME": "/box", **plan.env})

    def offer(self, line: HostLine) -> None:
        """Let cells call host functions; called before ``begin``."""
        self.line = line
        self._call("offer", line.listing)

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``. The guest cannot be interrupted: the host ends the cell and rolls back."""
        self.worker = worker
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _turn(self, name: str, *arguments: object) -> bool:
        """Call a function of ``cell_boot.py``; returns False when it raised, which leaves the memory whole."""
        self.reply = {}
        self._order = {"call": name, "arguments": list(arguments)}
        return self._entry.call("turn")

    def _call(self, name: str, *arguments: object) -> None:
        """Call a function of ``cell_boot.py``; what leaves the guest in the middle of it ends the worker."""
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
        """Answer a letter of the guest, which may send anything: anything else gets an empty answer."""
        if data.startswith(CALL):
            # A call of a host function goes on as it came: reading it here would take a good part of its time.
            if self.line is None:
                return failed("ConnectionLost", "this session has no host functions")
            return self.line.answer(data[len(CALL) :])
        if data == NEXT:
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
            self.reply = letter
        return b"{}"

    def run(self, code: str, number: int | None) -> dict[str, Any]:
        """See ``CellEngine``."""
        self.number = number if number is not None else self.number + 1
        before = self.export.refusals()
        try:
            self._call("run", code, self.number)
        except wasmtime.WasmtimeError as error:
            self._end(error)
        reply = self.reply
        if before is not None and self.export.refusals() == before:
            # The guest reports every MemoryError as the limit, also one that the program raised itself.
            reply.pop("limit", None)
        return reply or {"status": "error", "exit_code": 1}

    def names(self) -> int:
        """See ``CellEngine``."""
        self._call("names")
        count = self.reply.get("count")
        return count if isinstance(count, int) else 0

    def ask(self, what: str, code: str, position: int) -> dict[str, Any]:
        """See ``CellEngine``; ``image`` writes the session's memory, or its ``changes``, to a descriptor."""
        if what == "image":
            target = self.worker.channel.take_descriptor()
            still_open = self._release()
            if still_open and target is not None:
                os.close(target)
            if still_open:
                return still_open
            changes = code == "changes" and self._begun_alike
            return {**write_memory(self.memory, self.store, target, changes=changes), "elapsed_s": 0.0}
        self._call("ask", what, code, position)
        answer = self.reply.get("answer")
        return answer if isinstance(answer, dict) else {}

    def _release(self) -> dict[str, Any]:
        """Close files that only caches hold; returns those that are still open: a saved memory cannot hold them."""
        if self.wasi.open_files():
            self._call("release")
        opened = self.wasi.open_files()
        return {"open_files": opened[:5]} if opened else {}


#: Called by ``host_line.py``.
load = WasmPythonEngine
