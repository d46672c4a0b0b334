"""The messages between the host and the gate inside a jail: one file for both directions, validated on arrival.

The gate is ours, but it shares a uid with hostile code, so what it says is checked as if it were hostile: frames are
small, JSON objects, with known fields of known types.
"""

from __future__ import annotations

import json
import marshal
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.walls import Warm

#: The gate never says more than this at once.
MAX_FRAME = 64 << 10
#: Where a step that reports finds the channel.
REPORT_FD = 3
#: A longer report is cut, which makes it unreadable, which is a failed run.
MAX_REPORT = 64 << 10
#: A question to the user is cut to this.
MAX_PROMPT = 10_000


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """A file that is put into the jail before the program starts."""

    root: str
    name: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True)
class Step:
    """One process of a job: a compiler or the program itself. Steps run in order until one fails.

    ``kind`` is ``exec`` (argv is executed), ``python`` (``source`` runs in the warm interpreter as ``argv[0]``),
    ``warm`` (the program that waits since the jail was made gets ``argv`` as its order) or ``session`` (the guest
    program ``argv[0]`` takes over the channel and stays). A step that ``reports`` has the channel too, as descriptor
    ``REPORT_FD``, and what it writes there is ``Outcome.report``. A program that waits can also be the worker of a
    session. It alone gets the open files that come with the order.
    """

    kind: str
    argv: Sequence[str]
    env: Mapping[str, str]
    rlimits: Mapping[str, int]
    cwd: str
    source: bytes | None = None
    seccomp: bytes | None = None
    stdout_to_stderr: bool = False
    no_stdin: bool = False
    compiles: bool = False
    reports: bool = False
    oom_score_adj: int = 500
    #: Files that the host gets when the step succeeded, all or none of them (``Outcome.kept``).
    keeps: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class StepExit:
    """How one step ended: ``code`` is negative for a signal; ``flags`` name limits that only the program met."""

    code: int
    cpu_seconds: float
    max_rss_bytes: int
    flags: tuple[str, ...] = ()


@dataclass
class _Blobs:
    data: list[bytes] = field(default_factory=list)

    def add(self, blob: bytes) -> int:
        self.data.append(blob)
        return len(self.data) - 1


def encode_order(
    steps: Sequence[Step], files: Sequence[JobFile], *, listener: bool, descriptors: int = 0
) -> list[bytes]:
    """An order as the gate reads it: a header that counts the blobs, then the blobs."""
    blobs = _Blobs()
    order = {
        "files": [
            {"root": f.root, "name": f.name, "mode": f.mode, "blob": blobs.add(f.data)} for f in files
        ],
        "steps": [
            {
                "kind": s.kind,
                "argv": list(s.argv),
                "cwd": s.cwd,
                "env": dict(s.env),
                "rlimits": dict(s.rlimits),
                "source": blobs.add(s.source) if s.source is not None else None,
                "filter": blobs.add(s.seccomp) if s.seccomp is not None else None,
                "stdout_to_stderr": s.stdout_to_stderr,
                "no_stdin": s.no_stdin,
                "reports": s.reports,
                "oom_score_adj": s.oom_score_adj,
                "keeps": list(s.keeps),
            }
            for s in steps
        ],
        "listener": listener,
        "descriptors": descriptors,
    }  # fmt: skip
    order["blobs"] = [len(blob) for blob in blobs.data]
    return [frame(order), *blobs.data]


def send_order(
    sock: socket.socket,
    steps: Sequence[Step],
    files: Sequence[JobFile],
    *,
    listener: bool,
    descriptors: Sequence[int] = (),
) -> None:
    """Hand an order to a gate, with open files, which travel behind the header."""
    header, *blobs = encode_order(steps, files, listener=listener, descriptors=len(descriptors))
    sock.sendall(header)
    if descriptors:
        socket.send_fds(sock, [b"\0"], list(descriptors))
    for blob in blobs:
        sock.sendall(blob)


def encode_warm(warm: Warm) -> list[bytes]:
    """Tell the gate to start a program that will wait for its order; sent once the gate is being metered."""
    blobs = [warm.seccomp] if warm.seccomp is not None else []
    order = {
        "op": "warm",
        "argv": list(warm.argv),
        "rlimits": dict(warm.rlimits),
        "filter": 0 if blobs else None,
        "blobs": [len(blob) for blob in blobs],
    }
    return [frame(order), *blobs]


def encode_ahead() -> list[bytes]:
    """Tell the gate to fork the process of the first step now; sent once the gate is being metered."""
    return [frame({"op": "ahead", "blobs": []})]


def frame(message: Mapping[str, object]) -> bytes:
    """One message to the gate: marshalled in the oldest form, which every Python reads without importing anything."""
    data = marshal.dumps(dict(message), 2)
    return struct.pack(">I", len(data)) + data


class Inbox:
    """Messages from the gate, cut out of the stream; raises ``EnforcerFailed`` on nonsense."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Whole messages so far."""
        self._buffer += data
        messages: list[dict[str, object]] = []
        while len(self._buffer) >= 4:
            (size,) = struct.unpack(">I", self._buffer[:4])
            if size > MAX_FRAME:
                raise EnforcerFailed("gate", f"a message of {size} bytes came out of the jail; it was ended")
            if len(self._buffer) < 4 + size:
                break
            messages.append(_decode(bytes(self._buffer[4 : 4 + size])))
            del self._buffer[: 4 + size]
        return messages


def _decode(data: bytes) -> dict[str, object]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise EnforcerFailed("gate", "a malformed message came out of the jail; it was ended")
    return message


def number(message: Mapping[str, object], key: str) -> float:
    """A finite number from a message, not below zero."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise EnforcerFailed("gate", f"a message out of the jail has no usable {key!r}; it was ended")
    return value


def exit_code(message: Mapping[str, object]) -> int:
    """How a process ended: what it said, or the signal that ended it, below zero."""
    value = message.get("code")
    if isinstance(value, bool) or not isinstance(value, int) or not -128 <= value <= 255:
        raise EnforcerFailed("gate", "a message out of the jail has no usable 'code'; it was ended")
    return value


def step_exit(message: Mapping[str, object]) -> StepExit:
    """The end of a step, checked."""
    flags = message.get("flags", [])
    known = ("memory", "open_files", "disk", "processes")
    return StepExit(
        code=exit_code(message),
        cpu_seconds=number(message, "cpu"),
        max_rss_bytes=int(number(message, "maxrss")),
        flags=tuple(name for name in known if name in flags) if isinstance(flags, list) else (),
    )


def broken(message: Mapping[str, object]) -> str:
    """Why a step was not started."""
    value = message.get("message")
    return readable_text(value[:1000]) if isinstance(value, str) else "no reason was given"


def question(said: bytes) -> str | None:
    """The prompt, when a step that reports asks its user for a line instead; it is hostile, so it is cut."""
    line, newline, rest = said.partition(b"\n")
    if not newline or rest or not line.startswith(b'{"ask": '):
        return None
    try:
        prompt = json.loads(line).get("ask")
    except (ValueError, RecursionError, AttributeError):
        return None
    return readable_text(prompt[:MAX_PROMPT]) if isinstance(prompt, str) else None


def readable_text(text: str) -> str:
    """Text out of JSON as every encoder can carry it: a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def answer(value: str | None) -> bytes:
    """What a step that asked is told: a line without its end, or that there is nobody to ask."""
    return json.dumps({"answer": value}).encode() + b"\n"
