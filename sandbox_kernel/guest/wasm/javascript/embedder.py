"""Drives JavaScript in QuickJS: runs programs and their event loop.

Used for single programs (``run.py``) and for sessions (``js_session.py``), where one engine runs cell after cell.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence

from ..guest_files import Folders
from ..host_line import HostLine, javascript_source
from .host_calls import JavaScriptHost, write_all
from .quickjs import EVAL_ASYNC, EVAL_MODULE, FULFILLED, PENDING, REJECTED, JavaScriptError, QuickJs

#: Functions that ``javascript_boot.js`` returns and this module calls; their handles are saved with an image.
DRIVER = (
    "tick", "inspect", "describe", "facts", "begin", "exitCode", "timers", "dropTimers", "members", "look",
    "countNames", "moduleNames", "offer",
)  # fmt: skip
#: The exit code of node when a program ends while it still awaits something.
UNSETTLED = 13

_MODULE_SYNTAX = re.compile(r"^\s*(import\b\s*[\w{*\"']|export\b\s*[\w{*])", re.MULTILINE)


class Interrupted(Exception):
    """Raised when code was interrupted; the engine can go on."""


class Untranslated(Exception):
    """Raised when a program could not be translated; the translator's message is on stderr."""


class Exited(Exception):
    """Raised when the program called ``process.exit``; the engine can go on."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class JavaScriptEmbedder:
    """A booted engine and its host functions."""

    def __init__(self, js: QuickJs, driver: Mapping[str, int], folders: Folders) -> None:
        self.js = js
        self.driver = dict(driver)
        self.host = JavaScriptHost(folders)
        self.host.memory_bytes = lambda: js.memory.data_len(js.store)
        self.write: Callable[[int, bytes], None] = write_all
        self.sleep: Callable[[float], None] = time.sleep
        #: Set by another thread to interrupt the running code.
        self.stop = False
        self.host.stopped = lambda: self.stop
        js.host = self.host.answer
        js.interrupted = lambda: self.stop or self.host.exit_code is not None
        js.load_module = self._module

    def begin(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Set the program's arguments and environment."""
        self._free(self._driver("begin", json.dumps(list(argv)), json.dumps(dict(env))))

    def offer(self, line: HostLine) -> None:
        """Let the program call host functions: makes the object ``host``."""
        self.host.line = line
        line.stop_by(lambda: self.host.stopped())
        self._free(self._driver("offer", javascript_source()))

    def run(self, source: str, name: str) -> int:
        """Run a program to its end, timers included; returns its exit code."""
        try:
            value = self.value_of(source, name, wait_for_timers=True)
        except Exited as end:
            return end.code
        except JavaScriptError as error:
            self.complain(error)
            return 1
        if value is None:
            self.write(2, b"the program ended while something was still awaited\n")
            return UNSETTLED
        self._free(value)
        return int(float(self.js.text(self._driver("exitCode"))))

    def run_translated(self, source: str, name: str, translator: str | None, host_types: str = "") -> int:
        """Translate a program with a function of the image, if one is given, and run it; returns its exit code.

        ``host_types`` declares the host functions for a translator that checks types; empty for any functions.
        """
        if translator is None:
            return self.run(source, name)
        answer = json.loads(self._text(self._driver(translator, source, name, host_types)))
        if answer.get("error"):
            self.write(2, (answer["error"] + "\n").encode("utf-8", "replace"))
            raise Untranslated
        return self.run(answer["source"], name)

    def value_of(self, source: str, name: str, *, wait_for_timers: bool) -> int | None:
        """Evaluate code to its end; returns the handle of its value, None when it awaits something that never comes.

        Code with import or export is a module. Raises ``JavaScriptError``, ``Exited`` or ``Interrupted``.
        """
        try:
            return self.settle(self.js.evaluate(source, name, self.eval_flags(source)), wait_for_timers=wait_for_timers)
        except JavaScriptError as error:
            code, self.host.exit_code = self.host.exit_code, None
            if code is None and not self.stop:
                raise
            self._free(error.handle)
            raise (Interrupted() if code is None else Exited(code)) from None

    @staticmethod
    def is_module(source: str) -> bool:
        """Whether code imports or exports, and so is a module."""
        return _MODULE_SYNTAX.search(source) is not None

    def eval_flags(self, source: str) -> int:
        """Return the engine's evaluation flags for this code."""
        return EVAL_MODULE if self.is_module(source) else EVAL_ASYNC

    def settle(self, promise: int, *, wait_for_timers: bool) -> int | None:
        """Run the event loop until a promise is settled; returns the handle of its result, None if it never will be.

        A program also waits for its timers, as in node. A cell of a session does not: its timers run with the next
        cell.
        """
        js = self.js
        own = js.identity(promise)
        while True:
            js.run_jobs()
            self._look_for_rejections(own)
            state = js.promise_state(promise)
            if state == REJECTED:
                raise JavaScriptError(js.promise_result(promise))
            if state == FULFILLED and not (wait_for_timers and self._number("timers")):
                return js.promise_result(promise)
            wait = self._number("tick")
            if wait < 0:
                return None if state == PENDING else js.promise_result(promise)
            if wait > 0:
                self.sleep(wait / 1000)
                if self.stop:
                    raise Interrupted

    def complain(self, error: JavaScriptError) -> None:
        """Print a thrown value to stderr, as node does."""
        self.write(2, (self.describe(error.handle) + "\n").encode("utf-8", "replace"))

    def describe(self, handle: int) -> str:
        """Return a thrown value with its stack, or only the value when memory is short."""
        try:
            return self._text(self.js.call(self.driver["describe"], handle))
        except JavaScriptError:
            return self.js.text(handle) or "the program threw, and there is no memory left to show what"

    def inspect(self, handle: int) -> str:
        """Return a value as the console shows it."""
        return self._text(self.js.call(self.driver["inspect"], handle))

    def facts(self, handle: int) -> tuple[str, str, str]:
        """Return name, message and text of a thrown value."""
        try:
            name, message, text = json.loads(self._text(self.js.call(self.driver["facts"], handle)))
        except (JavaScriptError, ValueError):
            return "InternalError", "there is no memory left to show the error", "InternalError"
        return str(name), str(message), str(text)

    def members(self, path: Sequence[str], prefix: str) -> list[str]:
        """Return the names that can follow a chain of names, for completion."""
        found = json.loads(self._text(self._driver("members", json.dumps(list(path)), prefix)))
        return [str(name) for name in found]

    def look(self, path: Sequence[str]) -> str:
        """Return a description of the value at the end of a chain of names; empty when there is none."""
        return self._text(self._driver("look", json.dumps(list(path))))

    def count_names(self) -> int:
        """Return how many globals the user has made (without ``let`` and ``const``, which the global object lacks)."""
        return max(0, int(self._number("countNames")))

    def _look_for_rejections(self, own: int) -> None:
        for identity in list(self.js.rejected):
            reason = self.js.rejected.pop(identity)
            if identity != own:
                raise JavaScriptError(reason)
            self._free(reason)

    def _driver(self, name: str, *arguments: str) -> int:
        handles = [self.js.string(text) for text in arguments]
        try:
            return self.js.call(self.driver[name], *handles)
        finally:
            for handle in handles:
                self._free(handle)

    def _number(self, name: str) -> float:
        return float(self._text(self._driver(name)))

    def _text(self, handle: int) -> str:
        text = self.js.text(handle)
        self._free(handle)
        return text

    def _free(self, handle: int) -> None:
        self.js.free(handle)

    def _module(self, name: str) -> str:
        """Return the source of an imported module: a file, or a built-in module."""
        plain = name.removeprefix("node:")
        if plain.startswith(("/", "file://")):
            return self.host.folders.read(plain.removeprefix("file://")).decode("utf-8", "replace")
        names = json.loads(self._text(self._driver("moduleNames", plain)))
        if not names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        exported = ", ".join(name for name in names if name != "default")
        return f"const m = require({json.dumps(plain)}); export default m; export const {{ {exported} }} = m;"
