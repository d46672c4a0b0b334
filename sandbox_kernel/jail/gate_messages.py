"""The messages between the host and the gate inside a jail, in both directions, validated on arrival.

The gate is our program, but it has the same uid as hostile code. Its messages are therefore checked as if they were
hostile: small frames, JSON objects, known fields of known types; by hand, because to import msgspec takes longer than
a run.
"""

from __future__ import annotations

import fcntl
import json
import marshal
import os
import re
import socket
import stat
import struct
from collections.abc import Mapping, Sequence

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.walls import Warm
from sandbox_kernel.util import wire
from sandbox_kernel.util.linux_calls import F_GET_SEALS, UNCHANGEABLE, closed_after
from sandbox_kernel.util.values import dataclass

#: The largest message that the gate may send.
MAX_FRAME = 64 << 10
#: The descriptor of the channel in a step that reports.
REPORT_FD = 3
#: The largest report. A longer one is cut, so it cannot be parsed and the run fails.
MAX_REPORT = 64 << 10
#: The longest input prompt; the rest is cut.
MAX_PROMPT = 10_000
#: The most host names that are taken from a program, and how each looks.
MAX_NAMES = 5
_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}(?::[0-9]{1,5})?\Z")


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """A file that is written into the jail before the program starts."""

    root: str
    name: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True)
class Step:
    """One process of a job: a compiler or the program itself. Steps run in order until one fails.

    ``kind`` is one of:

    - ``exec``: ``argv`` is executed.
    - ``python``: ``source`` runs in the warm interpreter as ``argv[0]``.
    - ``warm``: the program that was started with the jail gets ``argv`` as its order. It can be a session's worker too.
      It alone receives the open files that come with the order.
    - ``session``: the guest program ``argv[0]`` takes over the channel and stays.

    A step that ``reports`` gets the channel as descriptor ``REPORT_FD``. What it writes there becomes
    ``JobOutcome.report``.
    """

    kind: str
    argv: Sequence[str]
    env: Mapping[str, str]
    rlimits: Mapping[str, int]
    cwd: str
    source: bytes | None = None
    seccomp: bytes | None = None
    no_stdin: bool = False
    compiles: bool = False
    reports: bool = False
    #: Files that the host receives when the step succeeded, all or none of them (``JobOutcome.kept``).
    keeps: Sequence[str] = ()
    #: Name, signature and documentation of the host functions that the step may call; None gives it no call socket.
    functions: Sequence[Sequence[str]] | None = None
    #: Whether ``seccomp`` leaves forks to the host, which gets a descriptor to decide them with the first byte of the
    #: channel.
    asks_to_fork: bool = False


@dataclass(frozen=True, kw_only=True)
class StepExit:
    """How one step ended. ``code`` is negative for a signal. ``flags`` are limits that only our code inside sees.

    ``tried`` are host names that the program looked up in vain; a hint, because the program can write them itself.
    ``alone``: no other process was left in the jail.
    """

    code: int
    cpu_seconds: float
    max_rss_bytes: int
    flags: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    alone: bool = False


def send_order(
    sock: socket.socket,
    steps: Sequence[Step],
    files: Sequence[JobFile],
    *,
    listener: bool,
    descriptors: Sequence[int] = (),
    call_socket: int | None = None,
) -> None:
    """Send an order to a gate: a header with the sizes of the blobs, open files, then the blobs.

    ``call_socket`` goes with the open files, as the last; every step that has ``functions`` gets it.
    """
    handed = [*descriptors] if call_socket is None else [*descriptors, call_socket]
    order: dict[str, object] = {"listener": listener, "descriptors": len(handed), "calls": call_socket is not None}
    blobs: list[bytes] = []
    sent_files, sent_steps = [], []
    for file in files:
        sent_files.append({"root": file.root, "name": file.name, "mode": file.mode, "blob": len(blobs)})
        blobs.append(file.data)
    for step in steps:
        plain: dict[str, object] = vars(step) | {"argv": list(step.argv), "keeps": list(step.keeps)}
        plain |= {"env": dict(step.env), "rlimits": dict(step.rlimits)}
        if step.functions is not None:
            plain["functions"] = [list(each) for each in step.functions]
        for name, blob in (("source", step.source), ("seccomp", step.seccomp)):
            if blob is not None:
                plain[name] = len(blobs)
                blobs.append(blob)
        sent_steps.append(plain)
    sock.sendall(frame({**order, "files": sent_files, "steps": sent_steps, "blobs": list(map(len, blobs))}))
    if handed:
        socket.send_fds(sock, [b"\0"], handed)
    for blob in blobs:
        sock.sendall(blob)


def warm_order(warm: Warm) -> bytes:
    """Return the request to start a program that waits for its order. Send it after the meter is attached."""
    order = {"op": "warm", "argv": list(warm.argv), "rlimits": dict(warm.rlimits), "seccomp": None, "blobs": []}
    if warm.seccomp is None:
        return frame(order)
    return frame({**order, "seccomp": 0, "blobs": [len(warm.seccomp)]}) + warm.seccomp


#: The request to fork the process of the first step now. Send it after the meter is attached.
AHEAD: Mapping[str, object] = {"op": "ahead", "blobs": []}


def frame(message: Mapping[str, object]) -> bytes:
    """Encode one message to the gate, in the oldest marshal format, which every Python reads without an import."""
    return wire.frame(marshal.dumps(dict(message), 2))


class Inbox:
    """Splits the stream from the gate into messages. Raises ``EnforcerFailed`` for malformed ones."""

    def __init__(self) -> None:
        self._frames = wire.Frames(MAX_FRAME)

    def feed(self, data: bytes) -> list[dict[str, object]]:
        """Add data and return the messages that are complete."""
        found = []
        try:
            for each in self._frames.feed(data):
                message = wire.parse_json(each)
                if not isinstance(message, dict) or not isinstance(message.get("op"), str):
                    raise ValueError("not a message")
                found.append(message)
        except (ValueError, RecursionError) as error:
            raise EnforcerFailed("gate", f"a malformed message came out of the jail ({error}); it was ended") from None
        return found


def number(message: Mapping[str, object], key: str) -> float:
    """Return a field as a finite number that is not negative. Raises ``EnforcerFailed`` for anything else."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise EnforcerFailed("gate", f"a message out of the jail has no usable {key!r}; it was ended")
    return value


def step_exit(message: Mapping[str, object]) -> StepExit:
    """Return the end of a step. Raises ``EnforcerFailed`` when the message is malformed."""
    code, flags = message.get("code"), message.get("flags", [])
    if isinstance(code, bool) or not isinstance(code, int) or not -128 <= code <= 255:
        raise EnforcerFailed("gate", "a message out of the jail has no usable 'code'; it was ended")
    known = ("memory", "open_files", "disk", "processes")
    return StepExit(
        code=code,
        cpu_seconds=number(message, "cpu"),
        max_rss_bytes=int(number(message, "maxrss")),
        flags=tuple(name for name in known if name in flags) if isinstance(flags, list) else (),
        tried=host_names(message.get("tried", [])),
        alone=message.get("alone") is True,
    )


def host_names(value: object) -> tuple[str, ...]:
    """Return the first host names of a list that came out of a jail, some with a port; leaves out what is not one."""
    found = value[:MAX_NAMES] if isinstance(value, list | tuple) else ()
    return tuple(name for name in found if isinstance(name, str) and _HOST_NAME.match(name))


def broken(message: Mapping[str, object]) -> str:
    """Return the reason why a step was not started."""
    value = message.get("message")
    return wire.encodable(value[:1000]) if isinstance(value, str) else "no reason was given"


def question(said: bytes) -> str | None:
    """Return the prompt if a step that reports asks for input, else None. The prompt is hostile text and is cut."""
    line, newline, rest = said.partition(b"\n")
    if not newline or rest or not line.startswith(b'{"ask": '):
        return None
    try:
        prompt = wire.parse_json(line).get("ask")
    except (ValueError, RecursionError, AttributeError):
        return None
    return wire.encodable(prompt[:MAX_PROMPT]) if isinstance(prompt, str) else None


def answer(value: str | None) -> bytes:
    """Encode the answer to an input prompt: a line without its newline, or None when there is no user to ask."""
    return json.dumps({"answer": value}).encode() + b"\n"


# Receives open files from the gate. Expected files are kept, all others are closed.

#: How many files a step may hand over, and how large each may be.
MAX_KEPT, MAX_KEPT_BYTES = 4, 32 << 20


def receive_with_files(sock: socket.socket, size: int, files: int) -> tuple[bytes, list[int]]:
    """Receive a message and at most ``files`` descriptors from the gate. They are closed in children of the host."""
    # ``socket.recv_fds`` does not pass its flags on.
    data, extra, _, _ = sock.recvmsg(size, socket.CMSG_LEN(files * 4), socket.MSG_CMSG_CLOEXEC)
    handed = [raw for level, kind, raw in extra if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
    return data, [fd for raw in handed for (fd,) in struct.iter_unpack("i", raw[: len(raw) - len(raw) % 4])]


def receive_listener(sock: socket.socket) -> socket.socket:
    """Receive the listening socket of the jail's network from the gate. Raises ``EnforcerFailed`` for anything else."""
    _, descriptors = receive_with_files(sock, 1, 4)
    if len(descriptors) == 1 and stat.S_ISSOCK(os.fstat(descriptors[0]).st_mode):
        listener = socket.socket(fileno=descriptors.pop())
        if listener.family == socket.AF_INET and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return listener
        listener.close()
    for fd in descriptors:
        os.close(fd)
    raise EnforcerFailed("gate", "the jail handed over no listening socket; the network cannot be allowed")


def read_kept(descriptors: Sequence[int], most_bytes: int) -> tuple[bytes, ...]:
    """Return the contents of handed-over files, or none if one is not sealed and could be changed. Closes them."""
    contents = []
    for fd in descriptors:
        with closed_after(fd):
            if _is_sealed(fd) and os.fstat(fd).st_size <= most_bytes:
                os.lseek(fd, 0, os.SEEK_SET)
                with open(fd, "rb", closefd=False) as file:
                    contents.append(file.read(most_bytes))
    return tuple(contents) if len(contents) == len(descriptors) else ()


def _is_sealed(fd: int) -> bool:
    """Whether the file can never be changed again. Only memory files can be sealed."""
    try:
        return fcntl.fcntl(fd, F_GET_SEALS) & UNCHANGEABLE == UNCHANGEABLE
    except OSError:
        return False
