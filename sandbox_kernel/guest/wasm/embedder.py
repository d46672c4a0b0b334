"""Drives JavaScript in QuickJS: runs programs and their event loop, and has their host functions.

``javascript_boot.js`` calls the host functions (time, text encodings, files, standard input, fetch) by name with
strings; bytes are sent as characters 0 to 255. An error is returned as an answer, with the error code that node would
use, so that no exception passes through the engine.
"""

from __future__ import annotations

import base64
import binascii
import errno
import gzip
import hashlib
import io
import json
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence

from .guest_fetch import MOST_REQUEST_BYTES, FetchFailed, NoNetwork, fetch, read_request
from .guest_files import Folders, read_at_most
from .host_line import HostLine, failed, javascript_source
from .quickjs import EVAL_ASYNC, EVAL_MODULE, FULFILLED, PENDING, REJECTED, JavaScriptError, QuickJs
from .wasi import write_all

#: The exit code of node when a program ends while it still awaits something.
UNSETTLED = 13

_MODULE_SYNTAX = re.compile(r"^\s*(import\b\s*[\w{*\"']|export\b\s*[\w{*])", re.MULTILINE)


class Interrupted(Exception):
    """Raised when code was interrupted; the engine can go on."""


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
        self.sleep: Callable[[float], None] = time.sleep
        #: Set by another thread to interrupt the running code.
        self.stop = False
        self.host.stopped = lambda: self.stop
        js.host = self.host.answer
        js.interrupted = lambda: self.stop or self.host.exit_code is not None
        js.load_module = self._module

    def begin(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Set the program's arguments and environment."""
        self.js.free(self._driver("begin", json.dumps(list(argv)), json.dumps(dict(env))))

    def offer(self, line: HostLine) -> None:
        """Let the program call host functions: makes the object ``host``."""
        self.host.line = line
        line.caller.stopped = lambda: self.host.stopped()
        self.js.free(self._driver("offer", javascript_source()))

    def run(self, source: str, name: str) -> int:
        """Run a program to its end, timers included; returns its exit code."""
        try:
            value = self.value_of(source, name, wait_for_timers=True)
        except Exited as end:
            return end.code
        except JavaScriptError as error:
            write_all(2, (self.describe(error.handle) + "\n").encode("utf-8", "replace"))
            return 1
        if value is None:
            write_all(2, b"the program ended while something was still awaited\n")
            return UNSETTLED
        self.js.free(value)
        return int(float(self.js.text(self._driver("exitCode"))))

    def translated(self, translator: str, source: str, name: str) -> str | None:
        """Return a program as JavaScript, by a function of the image; None if it has errors, which are on stderr."""
        answer = json.loads(self._text(self._driver(translator, source, name)))
        if answer.get("error"):
            write_all(2, (answer["error"] + "\n").encode("utf-8", "replace"))
            return None
        return str(answer["source"])

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
            self.js.free(error.handle)
            raise (Interrupted() if code is None else Exited(code)) from None

    @staticmethod
    def eval_flags(source: str) -> int:
        """Return the engine's evaluation flags for this code: what imports or exports is a module."""
        return EVAL_MODULE if _MODULE_SYNTAX.search(source) is not None else EVAL_ASYNC

    def settle(self, promise: int, *, wait_for_timers: bool) -> int | None:
        """Run the event loop until a promise is settled; returns its result's handle. A cell waits for no timers."""
        js = self.js
        own = js.ask("qjs_get_value_ptr", promise)
        while True:
            js.run_jobs()
            for identity in list(js.rejected):
                reason = js.rejected.pop(identity)
                if identity != own:
                    raise JavaScriptError(reason)
                self.js.free(reason)
            state = js.ask("qjs_promise_state", promise)
            if state == REJECTED:
                raise JavaScriptError(js.ask("qjs_promise_result", promise))
            if state == FULFILLED and not (wait_for_timers and self._number("timers")):
                return js.ask("qjs_promise_result", promise)
            wait = self._number("tick")
            if wait < 0:
                return None if state == PENDING else js.ask("qjs_promise_result", promise)
            if wait > 0:
                self.sleep(wait / 1000)
                if self.stop:
                    raise Interrupted

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

    def completions(self, path: Sequence[str], prefix: str) -> list[str]:
        """Return the names that can follow a chain of names, for completion."""
        found = json.loads(self._text(self._driver("completions", json.dumps(list(path)), prefix)))
        return [str(name) for name in found]

    def look(self, path: Sequence[str]) -> str:
        """Return a description of the value at the end of a chain of names; empty when there is none."""
        return self._text(self._driver("look", json.dumps(list(path))))

    def count_names(self) -> int:
        """Return how many globals the user has made (without ``let`` and ``const``, which the global object lacks)."""
        return max(0, int(self._number("countNames")))

    def _driver(self, name: str, *arguments: str) -> int:
        handles = [self.js.string(text) for text in arguments]
        try:
            return self.js.call(self.driver[name], *handles)
        finally:
            for handle in handles:
                self.js.free(handle)

    def _number(self, name: str) -> float:
        return float(self._text(self._driver(name)))

    def _text(self, handle: int) -> str:
        text = self.js.text(handle)
        self.js.free(handle)
        return text

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


#: The most bytes that one archive may unpack to.
_MOST_UNPACKED = 512 << 20
NETWORKING_DISABLED = "networking disabled: no domain is allowed; add --allow-net example.org"


class JavaScriptHost:
    """Answers the host calls of one engine. The caller may replace the functions for streams and memory."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.memory_bytes: Callable[[], int] = lambda: 0
        #: The code of ``process.exit``, which then loops until the engine is interrupted; None before.
        self.exit_code: int | None = None
        #: Asks the user of a session; if None, prompts go to standard output and answers come from standard input.
        self.ask_user: Callable[[str], str] | None = None
        #: Whether the program was interrupted; called while a fetch waits. A single run is stopped with its process.
        self.stopped: Callable[[], bool] = bool
        #: The way to host functions; None without any.
        self.line: HostLine | None = None
        self._started = time.monotonic()

    def elapsed_s(self) -> float:
        """Return the guest's own clock, in seconds."""
        return time.monotonic() - self._started

    def set_elapsed(self, seconds: float) -> None:
        """Set the guest's clock to where it was, because timers are set by it."""
        self._started = time.monotonic() - seconds

    def answer(self, request: list[str]) -> str:
        """Answer one call of ``javascript_boot.js``: "V" and a value, or "E" and an error."""
        operation, *rest = request
        try:
            return "V" + (self._operations[operation](self, *rest) or "")
        except OSError as error:
            number = error.errno or errno.EIO
            fields = {"code": errno.errorcode.get(number, "EIO"), "message": os.strerror(number).lower()}
            if error.filename is not None:
                fields["path"] = str(error.filename)
        except MemoryError:
            fields = {"code": "ENOMEM", "message": os.strerror(errno.ENOMEM).lower()}
        except (UnicodeError, binascii.Error, ValueError) as error:
            fields = {"code": "ERR_INVALID_ARG_VALUE", "message": str(error)}
        except (KeyError, TypeError):
            fields = {"code": "ENOSYS", "message": f"no operation {operation} with {len(rest)} arguments"}
        return "E" + json.dumps(fields)

    def _exit(self, code: str) -> None:
        self.exit_code = int(float(code or 0)) & 0xFF

    def _decode(self, data: str, label: str, fatal: str) -> str:
        names = {"latin1": "cp1252", "iso-8859-1": "cp1252", "ascii": "cp1252", "utf-16le": "utf-16-le"}
        wanted = names.get(label, label)
        if wanted not in ("utf-8", "utf8", "cp1252", "windows-1252", "utf-16-le"):
            raise ValueError(f"the encoding {label} is not supported")
        return data.encode("latin-1").decode(wanted, "strict" if fatal else "replace").removeprefix("\ufeff")

    def _read(self, path: str, kind: str) -> str:
        data = self.folders.read(path)
        return data.decode("utf-8", "replace") if kind == "text" else data.decode("latin-1")

    def _store(self, path: str, append: str, kind: str, data: str) -> None:
        content = data.encode("utf-8", "replace") if kind == "text" else data.encode("latin-1")
        self.folders.write(path, content, append=bool(append))

    def _remove(self, path: str, recursive: str, force: str) -> None:
        try:
            self.folders.remove(path, recursive=bool(recursive))
        except FileNotFoundError:
            if not force:
                raise

    def _line(self, prompt: str) -> str:
        if self.ask_user is not None:
            try:
                return self.ask_user(prompt) + "\n"
            except EOFError:
                return ""
        write_all(1, prompt.encode("utf-8", "replace"))
        return read_line().decode("utf-8", "replace")

    def _print(self, stream: str, kind: str, data: str) -> None:
        write_all(2 if stream == "2" else 1, data.encode("latin-1" if kind == "bytes" else "utf-8", "replace"))

    def _gunzip(self, data: str, _level: str) -> str:
        # Read with a bound: a small archive may unpack to any size.
        with gzip.GzipFile(fileobj=io.BytesIO(data.encode("latin-1"))) as file:
            content = read_at_most(file, _MOST_UNPACKED + 1)
        if len(content) > _MOST_UNPACKED:
            raise ValueError(f"the archive holds more than {_MOST_UNPACKED} bytes")
        return content.decode("latin-1")

    def _digest(self, name: str, data: str) -> str:
        if name not in ("sha1", "sha256", "sha384", "sha512"):
            raise ValueError(f"there is no digest {name}")
        return hashlib.new(name, data.encode("latin-1")).digest().decode("latin-1")

    def _fetch(self, request: str) -> str:
        """Return the head of the response as JSON, a line break, and the unchanged body."""
        data = request.encode("utf-8", "backslashreplace")
        if len(data) > MOST_REQUEST_BYTES:
            raise ValueError(f"the request is longer than {MOST_REQUEST_BYTES} bytes")
        try:
            answer = fetch(read_request(data), self.stopped)
        except NoNetwork:
            return json.dumps({"error": NETWORKING_DISABLED}) + "\n"
        except FetchFailed as error:
            return json.dumps({"error": str(error)}) + "\n"
        head = {"status": answer.status, "headers": answer.headers}
        return json.dumps(head) + "\n" + answer.body.decode("latin-1")

    def _call(self, message: str) -> str:
        """Send a call of a host function; the answer is JSON, also when it is an error."""
        if self.line is None:
            return failed("ConnectionLost", "this session has no host functions").decode()
        return self.line.answer(message.encode("utf-8", "replace")).decode()

    _operations: Mapping[str, Callable[..., str | None]] = {
        "now": lambda self: repr(self.elapsed_s() * 1000),
        "exit": _exit,
        "memory": lambda self: str(self.memory_bytes()),
        "encode": lambda _self, text: text.encode("utf-8", "replace").decode("latin-1"),
        "decode": _decode,
        "btoa": lambda _self, text: base64.b64encode(text.encode("latin-1")).decode(),
        "atob": lambda _self, text: base64.b64decode(text, validate=False).decode("latin-1"),
        "digest": _digest,
        "gzip": lambda _self, data, level: gzip.compress(data.encode("latin-1"), int(level), mtime=0).decode("latin-1"),
        "gunzip": _gunzip,
        "read": _read,
        "store": _store,
        "stat": lambda self, path: _facts(self.folders.stat(path)),
        "lstat": lambda self, path: _facts(self.folders.stat(path, follow=False)),
        "list": lambda self, path: json.dumps(self.folders.names(path)),
        "mkdir": lambda self, path, parents: self.folders.make_folder(path, parents=bool(parents)),
        "remove": _remove,
        "rmdir": lambda self, path: self.folders.remove_folder(path),
        "rename": lambda self, old, new: self.folders.rename(old, new),
        "chmod": lambda self, path, mode: self.folders.set_mode(path, int(mode)),
        "utimes": lambda self, path, milliseconds: self.folders.set_time(path, float(milliseconds) / 1000),
        "readlink": lambda self, path: self.folders.link(path),
        "symlink": lambda self, target, path: self.folders.make_link(target, path),
        "folders": lambda self: json.dumps(self.folders.places()),
        "line": _line,
        "stdin": lambda _self: b"".join(iter(read_line, b"")).decode("latin-1"),
        "print": _print,
        "fetch": _fetch,
        "call": _call,
    }


def _facts(status: os.stat_result) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return json.dumps(
        {
            "kind": kinds.get(stat.S_IFMT(status.st_mode), "other"),
            "size": status.st_size,
            "mode": status.st_mode,
            "mtimeMs": status.st_mtime * 1000,
            "dev": status.st_dev,
            "ino": status.st_ino,
        }
    )


_pending = b""


def read_line() -> bytes:
    """Return one line of standard input with its line break, or b"" at the end of input."""
    global _pending
    while b"\n" not in _pending:
        data = os.read(0, 1 << 16)
        if not data:
            line, _pending = _pending, b""
            return line
        _pending += data
    line, _, _pending = _pending.partition(b"\n")
    return line + b"\n"
