"""The engine of a JavaScript session in WebAssembly: one QuickJS runs cell after cell.

``host_line.py`` loads it in a waiting jail. Checkpoints are forks of the worker, as in every session. Between two cells
the engine's stack is empty, so its linear memory is the whole session, on any machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time

import wasmtime

from ..session.worker import CellEngine, Worker
from .embedder import Exited, Interrupted, JavaScriptEmbedder
from .engine import describe_torn, make_engine
from .guest_files import Folders
from .host_line import HostLine
from .memory import map_memory, write_memory
from .plan import GuestPlan, SessionPlan
from .quickjs import EVAL_COMPILE, EVAL_MODULE, JavaScriptError, QuickJs
from .wasi import PlainWasi, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


#: How often a sleeping cell checks for an interrupt, in seconds.
_SLICE_S = 0.05
_CHAIN = re.compile(r"((?:[A-Za-z_$][\w$]*\s*\.\s*)*)([A-Za-z_$][\w$]*)?\Z")
#: Error messages of QuickJS's parser for code that ends too early.
_ENDED = re.compile(
    r"end of (input|string|template|comment|regexp)|expecting '[})\]]'|got ''|unexpected token in expression: ''"
)
_WORD_AFTER = re.compile(r"[\w$]*")


class WasmJavaScriptEngine(CellEngine):
    """QuickJS as the engine of a session: loaded before the session is known, and then started with its plan."""

    def __init__(self, plan: GuestPlan) -> None:
        engine = make_engine(plan.switches)
        store = wasmtime.Store(engine)
        wasi, linker = PlainWasi(), wasmtime.Linker(engine)
        wasi.define(linker)
        self.js = QuickJs(store, wasmtime.Module.deserialize_file(engine, plan.module), linker)
        wasi.memory, wasi.store = self.js.memory, store
        self.number = 0
        with open(plan.facts or "", "rb") as file:
            self.guest = JavaScriptEmbedder(self.js, json.load(file), Folders([]))
        self.guest.sleep = self._sleep
        # A first call loads the code that every session runs.
        self.guest.count_names()

    def start(self, plan: SessionPlan, image: int | None) -> None:
        """Begin a session, or go on with one whose memory is in the file ``image``."""
        self.js.store.set_limits(memory_size=plan.memory_bytes, instances=1, tables=8, memories=1)
        self.guest.host.folders = Folders(plan.preopens)
        self.guest.host.set_elapsed(plan.elapsed_s)
        if image is not None:
            map_memory(self.js.memory, self.js.store, image)
        else:
            self.guest.begin(["quickjs", "session"], plan.env)

    def offer(self, line: HostLine) -> None:
        """Let cells call host functions; called before ``begin``."""
        self.guest.offer(line)

    def begin(self, worker: Worker) -> None:
        """See ``CellEngine``. The signal handler only notes an interrupt; the engine checks for it while it runs."""
        self.worker = worker
        self.guest.host.ask_user = lambda prompt: worker.input(prompt, False)
        signal.signal(signal.SIGINT, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        self.guest.stop = True

    def forget_interrupts(self) -> None:
        """See ``CellEngine``."""
        self.guest.stop = False

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.guest.stop and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE_S))

    def run(self, code: str, number: int | None) -> dict[str, Any]:
        """See ``CellEngine``."""
        self.number = number if number is not None else self.number + 1
        before = self.js.export.refusals()
        try:
            self._evaluate(code)
        except Exited as end:
            return {"status": "error" if end.code else "ok", "exit_code": end.code}
        except Interrupted:
            return {"status": "interrupted"}
        except JavaScriptError as error:
            name, message, text = self.guest.facts(error.handle)
            told = {"ename": name, "evalue": message, "traceback": text.splitlines()[:50]}
            limit = {} if self.js.export.refusals() == before else {"limit": "memory"}
            return {"status": "error", "error": told, **limit}
        except Exception as error:
            # The engine stopped in the middle of a call and cannot go on: the host rolls back to a checkpoint.
            write_all(2, describe_torn(error).encode("utf-8", "replace") + b"\n")
            os._exit(134)
        return {"status": "ok", "exit_code": 0}

    def _evaluate(self, code: str) -> None:
        guest, js = self.guest, self.js
        is_module = guest.eval_flags(code) == EVAL_MODULE
        value = guest.value_of(code, f"cell {self.number}", wait_for_timers=False)
        if value is None:
            raise JavaScriptError(js.evaluate("new Error('the cell awaits something that never comes')", "<cell>"))
        if not is_module:
            result = js.get(value, "value")
            if not js.ask("qjs_is_undefined", result):
                shown = {"op": "display", "kind": "result", "data": {"text/plain": guest.inspect(result)}}
                self.worker.show({**shown, "metadata": {}, "display_id": None})
            js.free(result)
        js.free(value)

    def names(self) -> int:
        """See ``CellEngine``."""
        return self.guest.count_names()

    def ask(self, what: str, code: str, position: int) -> dict[str, Any]:
        """See ``CellEngine``; ``image`` writes the session's memory to the descriptor that came with it."""
        self.guest.stop = False
        if what == "image":
            target = self.worker.channel.take_descriptor()
            return {**write_memory(self.js.memory, self.js.store, target), "elapsed_s": self.guest.host.elapsed_s()}
        if what == "is_complete":
            return self._is_complete(code)
        match = _CHAIN.search(code[:position])
        chain, word = (match.group(1) or "", match.group(2) or "") if match is not None else ("", "")
        path = [part.strip() for part in chain.split(".") if part.strip()]
        if what == "inspect":
            after = _WORD_AFTER.match(code[position:])
            whole = [*path, word + (after.group() if after is not None else "")]
            shown = self.guest.look(whole)
            return {"data": {"text/plain": shown}} if shown else {}
        matches = self.guest.completions(path, word)
        return {"matches": matches, "cursor_start": position - len(word), "cursor_end": position, "metadata": {}}

    def _is_complete(self, code: str) -> dict[str, Any]:
        try:
            self.js.free(self.js.evaluate(code, "<cell>", EVAL_COMPILE | self.guest.eval_flags(code)))
        except JavaScriptError as error:
            _, message, _ = self.guest.facts(error.handle)
            ended = _ENDED.search(message)
            return {"status": "incomplete" if ended else "invalid", "indent": "  " if ended else ""}
        return {"status": "complete", "indent": ""}


#: Called by ``host_line.py``.
load = WasmJavaScriptEngine
