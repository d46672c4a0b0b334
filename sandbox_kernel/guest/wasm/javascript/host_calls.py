"""The host functions of JavaScript: time, text encodings, files, standard input, fetch.

``javascript_boot.js`` calls them by name with strings; bytes are sent as characters 0 to 255. An error is returned as
an answer, with the error code that node would use, so that no exception passes through the engine.
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
import select
import stat
import time
from collections.abc import Callable, Mapping

from ..guest_fetch import MOST_REQUEST_BYTES, NoNetwork, Stopped, ask_host, never
from ..guest_files import Folders, read_at_most
from ..host_line import HostLine, failed

#: The most bytes that one archive may unpack to.
_MOST_UNPACKED = 512 << 20
NETWORKING_DISABLED = "networking disabled: no domain is allowed; add --allow-net example.org"


class JavaScriptHost:
    """Answers the host calls of one engine. The caller may replace the functions for streams and memory."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.read_line: Callable[[], bytes] = read_line
        self.memory_bytes: Callable[[], int] = lambda: 0
        #: The code of ``process.exit``, which then loops until the engine is interrupted; None before.
        self.exit_code: int | None = None
        #: Asks the user of a session; if None, prompts go to standard output and answers come from standard input.
        self.ask_user: Callable[[str], str] | None = None
        #: Whether the program was interrupted; called while a fetch waits.
        self.stopped: Callable[[], bool] = never
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
            return "V" + self._operations[operation](self, *rest)
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

    def _now(self) -> str:
        return repr(self.elapsed_s() * 1000)

    def _exit(self, code: str) -> str:
        self.exit_code = int(float(code or 0)) & 0xFF
        return ""

    def _memory(self) -> str:
        return str(self.memory_bytes())

    def _encode(self, text: str) -> str:
        return text.encode("utf-8", "replace").decode("latin-1")

    def _decode(self, data: str, label: str, fatal: str) -> str:
        names = {"latin1": "cp1252", "iso-8859-1": "cp1252", "ascii": "cp1252", "utf-16le": "utf-16-le"}
        wanted = names.get(label, label)
        if wanted not in ("utf-8", "utf8", "cp1252", "windows-1252", "utf-16-le"):
            raise ValueError(f"the encoding {label} is not supported")
        return data.encode("latin-1").decode(wanted, "strict" if fatal else "replace").removeprefix("\ufeff")

    def _read(self, path: str, kind: str) -> str:
        data = self.folders.read(path)
        return data.decode("utf-8", "replace") if kind == "text" else data.decode("latin-1")

    def _store(self, path: str, append: str, kind: str, data: str) -> str:
        content = data.encode("utf-8", "replace") if kind == "text" else data.encode("latin-1")
        self.folders.write(path, content, append=bool(append))
        return ""

    def _stat(self, path: str) -> str:
        return _facts(self.folders.stat(path))

    def _lstat(self, path: str) -> str:
        return _facts(self.folders.stat(path, follow=False))

    def _list(self, path: str) -> str:
        return json.dumps(self.folders.names(path))

    def _mkdir(self, path: str, parents: str) -> str:
        self.folders.make_folder(path, parents=bool(parents))
        return ""

    def _remove(self, path: str, recursive: str, force: str) -> str:
        try:
            self.folders.remove(path, recursive=bool(recursive))
        except FileNotFoundError:
            if not force:
                raise
        return ""

    def _rmdir(self, path: str) -> str:
        self.folders.remove_folder(path)
        return ""

    def _rename(self, old: str, new: str) -> str:
        self.folders.rename(old, new)
        return ""

    def _line(self, prompt: str) -> str:
        if self.ask_user is not None:
            try:
                return self.ask_user(prompt) + "\n"
            except EOFError:
                return ""
        write_all(1, prompt.encode("utf-8", "replace"))
        return self.read_line().decode("utf-8", "replace")

    def _stdin(self) -> str:
        lines = []
        while line := self.read_line():
            lines.append(line)
        return b"".join(lines).decode("latin-1")

    def _print(self, stream: str, kind: str, data: str) -> str:
        write_all(2 if stream == "2" else 1, data.encode("latin-1" if kind == "bytes" else "utf-8", "replace"))
        return ""

    def _folders(self) -> str:
        return json.dumps(self.folders.places())

    def _gzip(self, data: str, level: str) -> str:
        return gzip.compress(data.encode("latin-1"), int(level), mtime=0).decode("latin-1")

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

    def _chmod(self, path: str, mode: str) -> str:
        self.folders.set_mode(path, int(mode))
        return ""

    def _utimes(self, path: str, milliseconds: str) -> str:
        self.folders.set_time(path, float(milliseconds) / 1000)
        return ""

    def _readlink(self, path: str) -> str:
        return self.folders.link(path)

    def _symlink(self, target: str, path: str) -> str:
        self.folders.make_link(target, path)
        return ""

    def _fetch(self, request: str) -> str:
        """Return the head of the response as JSON, a line break, and the unchanged body."""
        data = request.encode("utf-8", "backslashreplace")
        if len(data) > MOST_REQUEST_BYTES:
            raise ValueError(f"the request is longer than {MOST_REQUEST_BYTES} bytes")
        try:
            head = json.loads(ask_host(data, self.stopped))
        except NoNetwork:
            head = {"error": NETWORKING_DISABLED}
        except Stopped:
            head = {"error": "interrupted"}
        except OSError as error:
            head = {"error": f"the host did not answer: {error}"}
        head.pop("body", None)
        body = base64.b64decode(head.pop("body_b64", ""))
        return json.dumps(head) + "\n" + body.decode("latin-1")

    def _call(self, message: str) -> str:
        """Send a call of a host function; the answer is JSON, also when it is an error."""
        if self.line is None:
            return failed("ConnectionLost", "this session has no host functions").decode()
        return self.line.answer(message.encode("utf-8", "replace")).decode()

    def _btoa(self, text: str) -> str:
        return base64.b64encode(text.encode("latin-1")).decode()

    def _atob(self, text: str) -> str:
        return base64.b64decode(text, validate=False).decode("latin-1")

    _operations: Mapping[str, Callable[..., str]] = {
        "now": _now, "exit": _exit, "memory": _memory, "encode": _encode, "decode": _decode,
        "read": _read, "store": _store, "stat": _stat, "lstat": _lstat, "list": _list, "mkdir": _mkdir,
        "remove": _remove, "rmdir": _rmdir, "rename": _rename, "line": _line, "stdin": _stdin,
        "btoa": _btoa, "atob": _atob, "print": _print, "folders": _folders, "gzip": _gzip, "gunzip": _gunzip,
        "digest": _digest, "chmod": _chmod, "utimes": _utimes, "readlink": _readlink, "symlink": _symlink,
        "fetch": _fetch, "call": _call,
    }  # fmt: skip


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


def write_all(stream: int, data: bytes) -> None:
    """Write all of the data to a stream of this process; blocks until that is done."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(stream, rest) :]
        except BlockingIOError:
            select.select([], [stream], [])
        except BrokenPipeError:
            return


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
