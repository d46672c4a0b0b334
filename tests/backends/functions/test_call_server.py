"""The call socket, with a hostile program at its other end: every socket here is real, only the jail is missing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox_kernel import CallOutcome, FunctionLimits
from sandbox_kernel.backends.functions import call_server
from sandbox_kernel.backends.functions.call_server import MAX_CONNECTIONS, BudgetSpent, CallBudget, CallServer
from sandbox_kernel.backends.functions.host_function import make_functions
from sandbox_kernel.guest.functions.caller import Caller
from sandbox_kernel.guest.functions.calling import HostError
from sandbox_kernel.model.result import Call
from tests.waiting import until


def add(a: int, b: int = 1) -> int:
    return a + b


class Program:
    """The inside of a sandbox: has the call socket and nothing else."""

    def __init__(self, **options: object) -> None:
        self.release = threading.Event()
        self.entered = threading.Semaphore(0)
        functions = make_functions(
            {"add": add, "text": lambda size: "x" * size, "wait": self._wait},
            FunctionLimits(**options),  # type: ignore[arg-type]
        )
        assert functions is not None
        self.server = CallServer(functions)
        self.server.begin()
        self.caller = Caller(self.server.call_socket)

    def _wait(self) -> str:
        self.entered.release()
        self.release.wait(60)
        return "late"

    def knock(self, *descriptors: int, data: bytes = b"\0") -> None:
        with socket.socket(fileno=os.dup(self.server.call_socket)) as call_socket:
            call_socket.settimeout(30)
            socket.send_fds(call_socket, [data], list(descriptors))

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.knock(theirs.fileno())
        theirs.close()
        ours.settimeout(30)
        return ours

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self.server.close()


@pytest.fixture
def program() -> Iterator[Program]:
    with Program() as made:
        yield made


@contextlib.contextmanager
def serving(limits: FunctionLimits | None = None, **given: Callable[..., object]) -> Iterator[CallServer]:
    """A server of functions that a test gives."""
    functions = make_functions(given, limits)
    assert functions is not None
    with contextlib.closing(CallServer(functions)) as server:
        server.begin()
        yield server


def ask(line: socket.socket, data: bytes) -> dict[str, object] | None:
    line.sendall(struct.pack(">I", len(data)) + data)
    header = line.recv(4, socket.MSG_WAITALL)
    if len(header) < 4:
        return None
    answer = json.loads(line.recv(struct.unpack(">I", header)[0], socket.MSG_WAITALL))
    assert isinstance(answer, dict)
    return answer


def test_a_call_is_answered_and_written_down(program: Program) -> None:
    assert program.caller.call("add", [2], {"b": 3}) == 5
    (call,) = program.server.finish()
    assert (call.name, call.arguments, call.outcome, call.error) == ("add", {"a": 2, "b": 3}, "ok", "")
    assert call.duration >= 0


@pytest.mark.parametrize("how", [socket.SHUT_RDWR, socket.SHUT_WR])
def test_a_call_socket_that_a_program_shut_down_is_not_looked_at_any_more(program: Program, how: int) -> None:
    looked: list[None] = []
    program.server._take = lambda: looked.append(None)  # type: ignore[method-assign]
    with socket.socket(fileno=os.dup(program.server.call_socket)) as call_socket:
        call_socket.shutdown(how)
    for _ in range(3):  # each wakes the thread; before it takes the next, it has looked at all that was ready
        program.server.begin()
        until(lambda: not select.select([program.server._woken], [], [], 0)[0])
    assert looked == []


@pytest.mark.parametrize("message", [b"", b"x", b"x" * 5000], ids=["empty", "short", "long"])
def test_a_message_without_a_descriptor_does_not_close_the_call_socket_for_later_cells(
    message: bytes, program: Program
) -> None:
    with socket.socket(fileno=os.dup(program.server.call_socket)) as call_socket:
        call_socket.send(message)
    assert program.caller.call("add", [1], {}) == 2
    program.server.finish()
    program.server.begin()
    assert program.caller.call("add", [1], {}) == 2


@pytest.mark.parametrize(
    ("asked", "name"),
    [("\ud800x", "\\ud800x"), ("\x1b[2J\n", "\\x1b[2J\\n"), ("größe", "größe"), ("a" * 900, "a" * 64)],
    ids=["surrogate", "control", "plain", "long"],
)
def test_the_name_of_no_function_is_one_line_of_text_in_the_record(asked: object, name: str, program: Program) -> None:
    with program.connect() as line:
        answer = ask(line, json.dumps({"call": asked}).encode())
    (call,) = program.server.finish()
    assert call.name == name
    assert answer == {"error": {"type": "NameError", "message": call.error.removeprefix("NameError: ")}}
    assert f"'{name}'" in call.error.encode().decode()


@pytest.mark.parametrize("kind", ["file", "pipe", "listener", "datagram", "internet", "two", "none", "call_socket"])
def test_what_is_no_connection_is_closed_and_the_socket_stays_open(kind: str, program: Program, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    sent: list[int] = []
    if kind == "file":
        sent = [os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)]
    elif kind == "pipe":
        sent = list(os.pipe())
    elif kind == "listener":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        sent = [listener.detach()]
    elif kind == "datagram":
        sent = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach()]
    elif kind == "internet":
        sent = [socket.socket().detach()]
    elif kind == "two":
        sent = [each.detach() for each in socket.socketpair()]
    program.knock(*([program.server.call_socket] if kind == "call_socket" else sent))
    for number in sent:
        os.close(number)
    assert program.caller.call("add", [1], {}) == 2
    # Two more: the program's own end and the server's end of its connection. Spare jails of other tests may be made or
    # removed meanwhile, so a first number that is too high is looked at again.
    until = time.monotonic() + 20
    while len(os.listdir("/proc/self/fd")) > before + 2:
        assert time.monotonic() < until, "a descriptor stayed open"
        threading.Event().wait(0.1)


@pytest.mark.parametrize(
    "data",
    [b"", b"no json", b"[]", b"{}", b'{"next": 5}', b'{"next": "x"}', b'{"drop": []}', b"[" * 50_000, b'{"call": 3}'],
    ids=repr,
)
def test_a_malformed_message_is_an_answer_and_the_next_connection_works(data: bytes, program: Program) -> None:
    with program.connect() as line:
        answer = ask(line, data)
        assert answer is None or "error" in answer
    assert program.caller.call("add", [1], {}) == 2


def test_a_message_larger_than_the_budget_is_not_read_and_half_a_message_holds_up_only_itself(program: Program) -> None:
    with program.connect() as half:
        half.sendall(struct.pack(">I", 100) + b"{")
        assert program.caller.call("add", [1], {}) == 2
    with program.connect() as line:
        line.sendall(struct.pack(">I", 0xFFFFFFFF) + b"x" * 100)
        header = line.recv(4, socket.MSG_WAITALL)
        answer = json.loads(line.recv(struct.unpack(">I", header)[0], socket.MSG_WAITALL))
        assert answer["error"]["type"] == "LimitReached"


def test_calls_bytes_and_seconds_beyond_their_limits_are_refused() -> None:
    with Program(calls=3) as program:
        assert [program.caller.call("add", [n], {}) for n in range(3)] == [1, 2, 3]
        for _ in range(2):
            with pytest.raises(HostError, match="the limit of 3 calls of host functions is reached"):
                program.caller.call("add", [1], {})
        assert len(program.server.finish()) == 3
    with Program(bytes=2000) as program:
        assert program.caller.call("text", [100], {}) == "x" * 100
        with pytest.raises(HostError, match="the limit of 2000 bytes for host functions is reached"):
            program.caller.call("text", [10_000], {})
        assert [call.outcome for call in program.server.finish()] == ["ok", "error"]
    with Program(seconds=0.3) as program:
        with pytest.raises(HostError, match=r"TimeoutError: the time limit of 0\.3 s for host functions is reached"):
            program.caller.call("wait", [], {})
        with pytest.raises(HostError, match="time limit"):
            program.caller.call("add", [1], {})
        assert [call.outcome for call in program.server.finish()] == ["timeout", "refused"]


def test_the_end_of_a_cell_cancels_a_call_and_the_program_is_told(program: Program) -> None:
    failed: list[str] = []

    def call() -> None:
        with pytest.raises(HostError) as caught:
            program.caller.call("wait", [], {})
        failed.append(caught.value.type)

    thread = threading.Thread(target=call)
    thread.start()
    assert program.entered.acquire(timeout=30)
    calls = program.server.finish()
    thread.join(30)
    assert [call.outcome for call in calls] == ["cancelled"]
    assert failed == ["ConnectionLost"]


def test_closing_ends_every_thread_and_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    program = Program()
    assert program.caller.call("add", [1], {}) == 2
    program.server.close()
    program.server.close()
    with pytest.raises((HostError, OSError)):
        program.caller.call("add", [1], {})
    del program
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_time_is_that_of_all_calls_together_and_not_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [0.0]
    monkeypatch.setattr(call_server, "time", SimpleNamespace(monotonic=lambda: at[0]))
    budget = CallBudget(FunctionLimits(seconds=1.0))
    for number in range(1, 5):
        budget.begin(number, Call(name="f", outcome=CallOutcome.REFUSED))
    at[0] = 0.2
    assert not budget.time_is_up()
    at[0] = 0.3  # four times 0.3 s
    assert budget.time_is_up()
    with pytest.raises(BudgetSpent, match="1 s"):
        budget.begin(5, Call(name="f", outcome=CallOutcome.REFUSED))
    assert [budget.end(number) for number in (1, 1)] == [0.3, 0.0]


class _Odd(BaseException):
    """As pytest's ``Failed`` and other libraries have them: no ``Exception``."""


def test_a_function_that_raises_no_ordinary_exception_is_written_down() -> None:
    def odd() -> None:
        raise _Odd("x")

    with serving(odd=odd, ended=lambda: next(iter(()))) as server:
        with pytest.raises(HostError, match="_Odd: x"):
            Caller(server.call_socket).call("odd", [], {})
        with pytest.raises(HostError, match="StopIteration raised"):
            Caller(server.call_socket).call("ended", [], {})
        assert [(call.name, call.outcome, call.error) for call in server.finish()] == [
            ("odd", "error", "_Odd: x"),
            ("ended", "error", "StopIteration raised"),
        ]


def test_functions_that_still_block_take_no_calls_from_later_cells(program: Program) -> None:
    lines = [program.connect() for _ in range(MAX_CONNECTIONS)]
    for line in lines:
        line.sendall(struct.pack(">I", 15) + b'{"call":"wait"}')
        assert program.entered.acquire(timeout=60)
    assert [call.outcome for call in program.server.finish()] == ["cancelled"] * MAX_CONNECTIONS
    program.server.begin()
    assert program.caller.call("add", [1], {}) == 2
    for line in lines:
        line.close()


def test_a_connection_that_is_not_served_is_told_why(program: Program) -> None:
    lines = [program.connect() for _ in range(MAX_CONNECTIONS)]
    assert all(ask(line, b'{"call":"add","args":[1]}') == {"value": 2} for line in lines)
    with pytest.raises(HostError, match="LimitReached: the limit of 16 calls of host functions at the same time"):
        program.caller.call("add", [1], {})
    program.server.finish()
    late = Caller(program.server.call_socket)
    with pytest.raises(HostError, match="LimitReached: host functions can be called only while"):
        late.call("add", [1], {})
    program.server.begin()
    assert late.call("add", [2], {}) == 3, "the connection is opened anew"
    assert len(program.server.finish()) == 1
    for line in lines:
        line.close()


def test_every_call_that_ran_is_in_the_record_of_its_cell() -> None:
    ran, stepped = itertools.count(), threading.Event()

    def step() -> int:
        stepped.set()
        return next(ran)

    ended, recorded = threading.Event(), 0

    def call_without_end() -> None:
        caller = Caller(server.call_socket)
        while not ended.is_set():
            with contextlib.suppress(HostError, OSError):
                caller.call("step", [], {})

    with serving(FunctionLimits(calls=1_000_000, bytes=1 << 30), step=step) as server:
        threads = [threading.Thread(target=call_without_end) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(100):
                assert stepped.wait(60)
                recorded += len([call for call in server.finish() if call.outcome != "refused"])
                stepped.clear()
                server.begin()
            recorded += len([call for call in server.finish() if call.outcome != "refused"])
        finally:
            ended.set()
    for thread in threads:
        thread.join()
    assert recorded >= next(ran)


def test_a_stream_that_a_limit_cuts_is_written_down_as_an_error() -> None:
    with serving(FunctionLimits(bytes=4096), rows=itertools.count) as server:
        with pytest.raises(HostError, match="LimitReached"):
            list(Caller(server.call_socket).call("rows", [], {}))
        (call,) = server.finish()
        assert (call.outcome, call.error) == ("error", "the limit of 4096 bytes for host functions is reached")


def test_reading_a_stream_over_another_connection_makes_no_room_for_more() -> None:
    with serving(rows=itertools.count) as server:
        one, other = Caller(server.call_socket), Caller(server.call_socket)
        with pytest.raises(HostError, match="unfinished streams"):
            for _ in range(call_server.MAX_STREAMS + 1):
                answer, _ = one.ask({"call": "rows"})
                other.ask({"next": answer["stream"]})


def test_a_stream_that_is_read_while_its_connection_ends_goes_with_it() -> None:
    reading, ended = threading.Event(), threading.Event()

    def rows() -> Iterator[int]:
        reading.set()
        ended.wait()
        yield 1

    with serving(rows=rows) as server:
        one, other = Caller(server.call_socket), Caller(server.call_socket)
        answer, _ = one.ask({"call": "rows"})
        (opener,) = server._connections
        reader = threading.Thread(target=other.ask, args=({"next": answer["stream"]},))
        reader.start()
        reading.wait()
        opener.cancel()
        until(lambda: opener.over)
        ended.set()
        reader.join()
        assert not server._budget.streams


def test_a_stream_is_read_by_any_thread_and_never_mistaken_for_another() -> None:
    with serving(letters=lambda: iter("abcd"), numbers=lambda: iter([1, 2])) as server:
        one, other = Caller(server.call_socket), Caller(server.call_socket)
        letters, numbers = one.call("letters", [], {}), other.call("numbers", [], {})
        assert (next(letters), next(numbers)) == ("a", 1)
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append((next(letters), list(one.call("numbers", [], {})))))
        thread.start()
        thread.join()
        assert found == [("b", [1, 2])]
        assert list(letters) == ["c", "d"]
        server.finish()
        server.begin()
        late = one.call("letters", [], {})
        with pytest.raises(HostError, match="there is no such stream"):
            next(numbers)
        assert list(late) == list("abcd")
