"""The messages between host and gate: orders say what was asked, and nonsense that comes back ends the jail."""

import contextlib
import fcntl
import json
import marshal
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import EnforcerFailed, SessionError
from sandbox_kernel.guest.gate.wire import receive_order
from sandbox_kernel.jail.gate_messages import (
    MAX_FRAME,
    MAX_PROMPT,
    Inbox,
    JobFile,
    Step,
    answer,
    broken,
    frame,
    host_names,
    question,
    read_kept,
    receive_listener,
    send_order,
    step_exit,
    warm_order,
)
from sandbox_kernel.jail.run_job import GateReplies
from sandbox_kernel.jail.walls import Warm
from sandbox_kernel.session.worker.gate_client import GateClient

quick = settings(deadline=None, max_examples=80)
EXIT = {"op": "exit", "code": -9, "cpu": 1.5, "maxrss": 4096, "flags": ["memory"]}


def packed(message: object) -> bytes:
    """As the gate packs it."""
    data = json.dumps(message).encode()
    return struct.pack(">I", len(data)) + data


def unpacked(data: bytes) -> dict[str, object]:
    (size,) = struct.unpack(">I", data[:4])
    assert len(data) == 4 + size
    found = marshal.loads(data[4:])
    assert isinstance(found, dict)
    return found


def test_an_order_counts_its_blobs_and_carries_them_apart() -> None:
    step = Step(
        kind="python", argv=["cell.py"], env={"A": "1"}, rlimits={"CPU": 2}, cwd="/box", source=b"x", seccomp=b"f"
    )
    file = JobFile(root="/cell", name="cell.py", data=b"xyz", mode=0o600)
    host, gate = socket.socketpair()
    with host, gate:
        send_order(host, [step], [file], listener=True)
        order, blobs = receive_order(gate)
    assert blobs == [b"xyz", b"x", b"f"]
    assert order["blobs"] == [3, 1, 1]
    assert order["files"] == [{"root": "/cell", "name": "cell.py", "mode": 0o600, "blob": 0}]
    (asked,) = order["steps"]
    assert (asked["kind"], asked["argv"], asked["env"]) == ("python", ["cell.py"], {"A": "1"})
    assert (asked["source"], asked["seccomp"], order["listener"]) == (1, 2, True)


def test_open_files_travel_behind_the_header_and_arrive_as_themselves(tmp_path: Path) -> None:
    host, gate = socket.socketpair()
    step = Step(kind="warm", argv=["x"], env={}, rlimits={}, cwd="/", source=b"blob")
    with host, gate, open(tmp_path / "given", "w+b") as file:
        file.write(b"mine")
        file.flush()
        send_order(host, [step], [], listener=False, descriptors=[file.fileno()])
        order, blobs = receive_order(gate)
        (number,) = order["descriptors"]
        assert (os.pread(number, 10, 0), blobs) == (b"mine", [b"blob"])
        assert not os.get_inheritable(number)
        os.close(number)


def test_an_order_that_announces_open_files_and_brings_none_is_not_taken() -> None:
    host, gate = socket.socketpair()
    with host, gate:
        host.sendall(frame({"descriptors": 1, "blobs": []}) + b"\0")
        with pytest.raises(EOFError):
            receive_order(gate)


def test_a_waiting_program_is_told_its_limits_and_its_filter() -> None:
    host, gate = socket.socketpair()
    with host, gate:
        host.sendall(warm_order(Warm(("/bin/node", "x.js"), (("CPU", 3),), b"filter")))
        order, blobs = receive_order(gate)
    assert (order["op"], order["argv"], order["rlimits"]) == ("warm", ["/bin/node", "x.js"], {"CPU": 3})
    assert (order["seccomp"], blobs) == (0, [b"filter"])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", MAX_FRAME + 1),
        packed([]),
        packed("op"),
        packed({}),
        packed({"op": 5}),
        packed(None),
        struct.pack(">I", 3) + b"{,}",
        struct.pack(">I", 60000) + b"[" * 60000,
    ],
    ids=["long", "list", "text", "no op", "odd op", "null", "no json", "nested"],
)
def test_nonsense_is_an_error_and_not_a_crash(data: bytes) -> None:
    with pytest.raises(EnforcerFailed, match="out of the jail"):
        Inbox().feed(data)


@quick
@given(st.binary(max_size=200))
def test_whatever_comes_is_messages_or_an_error(data: bytes) -> None:
    with contextlib.suppress(EnforcerFailed):
        for message in Inbox().feed(data):
            assert isinstance(message["op"], str)


def test_the_end_of_a_step_is_read_with_known_flags_only() -> None:
    end = step_exit({**EXIT, "flags": ["memory", "root", 5, "disk"]})
    assert (end.code, end.cpu_seconds, end.max_rss_bytes, end.flags) == (-9, 1.5, 4096, ("memory", "disk"))
    assert step_exit({**EXIT, "flags": "memory"}).flags == ()


_NO_NUMBERS = [None, "1", True, [], {}, float("nan"), float("inf"), 10**19, -(10**19)]
#: What no process can end with.
_NO_ENDS = [("code", 256), ("code", -129), ("code", 1.5), ("cpu", -1), ("maxrss", -1)]


@pytest.mark.parametrize(
    ("key", "value"), [*((key, value) for key in ("code", "cpu", "maxrss") for value in _NO_NUMBERS), *_NO_ENDS]
)
def test_a_number_that_is_none_or_that_no_process_can_end_with_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(EnforcerFailed, match=key):
        step_exit({**EXIT, key: value})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@quick
@given(message=st.dictionaries(st.sampled_from(["code", "cpu", "maxrss", "flags"]), json_values))
def test_a_hostile_end_of_a_step_is_a_value_or_an_error(message: dict[str, object]) -> None:
    try:
        end = step_exit({"op": "exit", **message})
    except EnforcerFailed:
        return
    assert isinstance(end.code, int) and isinstance(end.max_rss_bytes, int)
    assert set(end.flags) <= {"memory", "open_files", "disk", "processes"}


@pytest.mark.parametrize(
    ("message", "said"), [("why", "why"), ("x" * 5000, "x" * 1000), (5, "no reason was given"), ("\ud800", "?")]
)
def test_why_a_wall_did_not_stand_is_a_bounded_text_that_can_be_encoded(message: object, said: str) -> None:
    assert broken({"op": "broken", "message": message}) == said


def test_a_frame_is_read_by_every_python() -> None:
    assert unpacked(frame({"op": "stop", "blobs": []})) == {"op": "stop", "blobs": []}


def test_a_listener_is_exactly_one_descriptor_and_inherited_by_no_child_of_the_host() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as first, socket.socket() as second:
        socket.send_fds(theirs, [b"\0"], [first.fileno()])
        with receive_listener(ours) as listener:
            assert not listener.get_inheritable()
        before = set(os.listdir("/proc/self/fd"))
        with open("/dev/null", "rb") as no_socket:
            for sent in ([first, second], [], [second], [no_socket], [ours]):
                socket.send_fds(theirs, [b"\0"], [each.fileno() for each in sent])
                with pytest.raises(EnforcerFailed, match="no listening socket"):
                    receive_listener(ours)
        assert set(os.listdir("/proc/self/fd")) == before, "descriptors that came with it stay open"


STEP = Step(kind="exec", argv=["x"], env={}, rlimits={}, cwd="/")


class _Jail:
    """A jail whose gate is this test."""

    def __init__(self) -> None:
        self.control, self.gate = socket.socketpair()
        self.control.setblocking(False)
        self.inbox = Inbox()


@pytest.fixture
def jail() -> Iterator[_Jail]:
    made = _Jail()
    with made.control, made.gate:
        yield made


@pytest.mark.attack("O05", "session")
def test_files_that_nobody_asked_for_are_closed_and_end_the_jail(jail: _Jail) -> None:
    words = GateReplies(jail, [STEP])  # type: ignore[arg-type]
    before = len(os.listdir("/proc/self/fd"))
    message = packed({"op": "kept"})
    with open("/dev/null", "rb") as file:
        for _ in range(3):
            socket.send_fds(jail.gate, [message], [file.fileno()] * 200)
    with pytest.raises(EnforcerFailed, match="unexpected files came out"):
        words.read(0)
    words.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.attack("O05", "session")
def test_more_ends_than_steps_end_the_jail(jail: _Jail) -> None:
    words = GateReplies(jail, [STEP])  # type: ignore[arg-type]
    jail.gate.sendall(packed(EXIT) * 3)
    with pytest.raises(EnforcerFailed, match="more steps ended"):
        words.read(0)
    assert len(words.exits) == 1


@pytest.mark.attack("O05", "session")
def test_answers_that_nobody_asked_for_fill_no_memory(jail: _Jail) -> None:
    keeper = GateClient(jail)  # type: ignore[arg-type]
    jail.gate.setblocking(False)
    with pytest.raises(EnforcerFailed, match="more answers"):
        for _ in range(2000):
            jail.gate.sendall(packed({"op": "ping"}))
            keeper.read()


@pytest.mark.parametrize(
    "field", [{"pid": -1}, {"pid": True}, {"pid": "7"}, {"code": 256}, {"code": -129}, {"code": None}]
)
def test_a_report_of_the_end_of_a_worker_with_a_field_of_another_form_is_refused(
    jail: _Jail, field: dict[str, object]
) -> None:
    keeper = GateClient(jail)  # type: ignore[arg-type]
    keeper.worker = 7
    jail.gate.sendall(packed({"op": "gone", "pid": 7, "code": -9, **field}))
    with pytest.raises(SessionError, match=f"cannot be used.*{next(iter(field))}"):
        keeper.read()
    jail.gate.sendall(packed({"op": "gone", "pid": 8, "code": 0}) + packed({"op": "gone", "pid": 7, "code": -9}))
    keeper.read()
    assert keeper.gone == -9


@pytest.mark.parametrize(
    "said",
    [b"", b'{"ask": "x"}', b'{"ask": 5}\n', b'{"ask": "x"}\n{"end": "exit"}\n', b'{"ask": "x\n', b'{"end": "exit"}\n'],
)
def test_what_is_no_whole_question_is_none(said: bytes) -> None:
    assert question(said) is None


def test_a_question_is_cut_and_answered_in_one_line() -> None:
    assert question(b'{"ask": "' + b"x" * 20_000 + b'"}\n') == "x" * MAX_PROMPT
    assert (question(b'{"ask": ""}\n'), question(b'{"ask": "\\ud800?"}\n')) == ("", "??")
    assert (answer("a\nb"), answer(None)) == (b'{"answer": "a\\nb"}\n', b'{"answer": null}\n')


@pytest.mark.parametrize(
    "said", [None, "a.test", {"a.test": 1}, [1, None, "", "a b", "-x", "a" * 300, "x\n", ["a.test"]]]
)
def test_what_is_no_host_name_is_not_taken_for_one(said: object) -> None:
    assert host_names(said) == ()


def test_a_program_names_only_a_few_hosts() -> None:
    assert host_names([f"{n}.test:80" for n in range(9)]) == tuple(f"{n}.test:80" for n in range(5))


ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def memory(data: bytes, seals: int = ALL_SEALS) -> int:
    fd = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def file_of(fd: int) -> tuple[int, int] | None:
    try:
        return os.fstat(fd).st_dev, os.fstat(fd).st_ino
    except OSError:
        return None


@pytest.mark.parametrize(
    ("make", "kept"),
    [
        (lambda: [memory(b"program"), memory(b"")], (b"program", b"")),
        (lambda: [memory(b"program"), memory(b"more", fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)], ()),
        (lambda: [memory(b"x" * 101)], ()),
        (lambda: [*os.pipe()], ()),
    ],
    ids=["sealed", "one can still be written", "too large", "no memory files"],
)
def test_sealed_files_are_read_in_order_one_that_is_not_spoils_all_and_all_are_closed(
    make: Callable[[], list[int]], kept: tuple[bytes, ...]
) -> None:
    fds = make()
    files = [file_of(fd) for fd in fds]
    assert read_kept(fds, 100) == kept
    assert all(file_of(fd) != was for fd, was in zip(fds, files, strict=True))  # another thread may open the number
