"""Host functions from inside a real sandbox: Python runs and sessions, behind every wall."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import (
    EnforcerUnavailable,
    ExecResult,
    FunctionLimits,
    InvalidRequest,
    ProcessBackend,
    Sandbox,
    SandboxPolicy,
    Status,
    get_enforcer,
)
from sandbox_kernel.model.notes import NoteKind

#: 48 calls at once, and then one of a child process.
MANY_THREADS = """
import os, host
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(48) as pool:
    print(len(set(pool.map(host.meet, range(48)))))
if os.fork() == 0:
    print(host.alone(), flush=True)
    os._exit(0)
os.wait()
"""
MANY_COROUTINES = """
import asyncio, os, host
os.cpu_count = os.process_cpu_count = lambda: 64  # a pool of 32 threads
async def main():
    return await asyncio.gather(*(host.aio.meet(number) for number in range(48)))
print(len(set(asyncio.run(main()))))
if os.fork() == 0:
    print(host.alone(), flush=True)
    os._exit(0)
os.wait()
"""


def search(query: str, limit: int = 2) -> list[dict[str, object]]:
    """Search the catalogue."""
    return [{"title": f"{query} {number}", "score": 1.5} for number in range(limit)]


def invert(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


async def slow_square(number: int) -> int:
    await asyncio.sleep(0)
    return number * number


def count(to: int) -> Iterator[int]:
    yield from range(to)


async def acount(to: int) -> AsyncIterator[int]:
    for number in range(to):
        yield number


def broken() -> None:
    raise KeyError("no such thing")


def wrong_result() -> object:
    return {1, 2}


FUNCTIONS: dict[str, Callable[..., object]] = {
    each.__name__: each for each in (search, invert, slow_square, count, acount, broken, wrong_result)
}


@pytest.fixture(params=["bubblewrap", "landlock", None], ids=str)
def walled(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param is not None:
        try:
            get_enforcer(request.param)
        except EnforcerUnavailable as error:
            pytest.skip(str(error))
    with Sandbox(functions=FUNCTIONS) as made:
        made.backend = ProcessBackend(enforcer=request.param, policy=made.policy)
        yield made


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(functions=FUNCTIONS) as made:
        yield made


def ok(result: ExecResult) -> ExecResult:
    assert result.ok, (result.status, result.stderr, result.notes)
    return result


PROGRAM = """
from host import search, invert
import host
print(search("ship", limit=1))
print(invert(data=b"\\x00\\xff"), host.slow_square(7), list(host.count(3)), list(host.acount(2)))
"""


@pytest.mark.one_case
def test_a_program_calls_functions_behind_every_wall(walled: Sandbox) -> None:
    result = ok(walled.run(PROGRAM))
    assert result.stdout == "[{'title': 'ship 0', 'score': 1.5}]\nb'\\xff\\x00' 49 [0, 1, 2] [0, 1]\n"
    assert [call.name for call in result.calls] == ["search", "invert", "slow_square", "count", "acount"]
    assert {call.outcome for call in result.calls} == {"ok"}


@pytest.mark.one_case
def test_a_session_calls_functions_behind_every_wall(walled: Sandbox) -> None:
    with walled.session() as session:
        ok(session.run("from host import search"))
        result = ok(session.run("len(search('x', limit=5))"))
        assert result.displays[-1].data["text/plain"] == "5"
        assert [(call.name, call.arguments) for call in result.calls] == [("search", {"query": "x", "limit": 5})]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("broken()", "KeyError: 'no such thing'"),
        ("search(5)", "TypeError: search() argument 'query': Expected `str`, got `int`"),
        ("search()", "TypeError: search() missing a required argument: 'query'"),
        ("wrong_result()", "TypeError: the result of wrong_result() cannot be sent: it holds a set"),
    ],
)
def test_an_exception_is_a_host_error_with_type_and_message(box: Sandbox, call: str, error: str) -> None:
    result = ok(box.run(f"from host import *\ntry: {call}\nexcept HostError as e: print(e, e.type, sep='|')"))
    text, kind = result.stdout.rstrip("\n").split("|")
    assert text.startswith(error)
    assert kind == error.split(":")[0]
    assert result.calls[0].error.startswith(error)


def test_nothing_but_type_and_message_of_an_exception_goes_inside(box: Sandbox) -> None:
    result = box.run("from host import broken\nbroken()")
    assert result.status is Status.FAILED
    assert "test_functions" not in result.stderr


def test_an_unknown_function_is_an_import_error(box: Sandbox) -> None:
    assert "ImportError: cannot import name 'serch' from 'host'" in box.run("from host import serch").stderr


def test_functions_tell_what_they_are(box: Sandbox) -> None:
    result = ok(box.run("import host\nprint(host.search.__doc__)\nprint(dir(host))"))
    assert "search(query: str, limit: int = 2) -> list[dict[str, object]]\n\nSearch the catalogue." in result.stdout
    assert "'search'" in result.stdout


def test_threads_and_child_processes_each_get_their_own_answers(box: Sandbox) -> None:
    result = ok(
        box.run("""
import os, host
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(host.slow_square, range(8))))
child = os.fork()
if child == 0:
    print([host.slow_square(n) for n in range(3)], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(host.slow_square(9))
""")
    )
    assert result.stdout == "[0, 1, 4, 9, 16, 25, 36, 49]\n[0, 1, 4]\n81\n"
    assert len(result.calls) == 12


def test_coroutines_inside_can_await_calls(box: Sandbox) -> None:
    program = (
        "import asyncio, host\nasync def main(): print(await asyncio.gather(*map(host.aio.slow_square, range(4))))"
    )
    assert ok(box.run(f"{program}\nasyncio.run(main())")).stdout == "[0, 1, 4, 9]\n"


@pytest.mark.parametrize("code", [MANY_THREADS, MANY_COROUTINES], ids=["threads", "coroutines"])
def test_more_calls_at_once_than_the_host_serves_wait_for_each_other(code: str) -> None:
    together = threading.Barrier(12)

    def meet(number: int) -> int:
        together.wait(30)
        return number

    with Sandbox(functions={"meet": meet, "alone": lambda: "called"}) as made:
        result = made.run(code, timeout=60)
    assert result.stdout == "48\ncalled\n", result.stderr


def test_a_default_time_limit_of_the_programs_sockets_does_not_end_its_connection() -> None:
    code = """
import socket
socket.setdefaulttimeout(0.1)
import host
slow = host.slow()
(line,) = host._caller._lines.idle
print(slow, host.slow(), host._caller._lines.idle == [line])
"""

    def slow() -> str:
        threading.Event().wait(0.5)
        return "done"

    with Sandbox(functions={"slow": slow}) as made:
        result = made.run(code)
    assert result.stdout == "done done True\n", result.stderr


def test_coroutine_functions_run_on_the_loop_of_arun() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def whose() -> str:
        loops.append(asyncio.get_running_loop())
        return "ok"

    async def main() -> None:
        with Sandbox(functions={"whose": whose}) as made:
            ok(await made.arun("from host import whose; whose()"))
            with made.session() as session:
                ok(await session.arun("from host import whose; whose()"))
        assert loops == [asyncio.get_running_loop()] * 2

    asyncio.run(main())


def test_limits_hold_for_each_run_and_each_cell() -> None:
    with Sandbox(functions=FUNCTIONS, function_limits=FunctionLimits(calls=3)) as made:
        code = "import host\nn = 0\ntry:\n    while True: host.search('x'); n += 1\nexcept host.HostError as e: print(n, e)"
        expected = "3 LimitReached: the limit of 3 calls of host functions is reached\n"
        assert ok(made.run(code)).stdout == expected
        with made.session() as session:
            for _ in range(2):
                result = ok(session.run(code))
                assert result.stdout == expected
                assert len(result.calls) == 3


def test_a_stream_can_be_left_early_and_is_bounded_by_the_bytes() -> None:
    def forever() -> Iterator[str]:
        while True:
            yield "x" * 1000

    with Sandbox(functions={"forever": forever}, function_limits=FunctionLimits(bytes=100_000)) as made:
        code = "import host\nfor _, n in zip(host.forever(), range(3)): pass\nn = 0\n"
        code += "try:\n  for x in host.forever(): n += 1\nexcept host.HostError as e: print(50 < n < 100, e.type)"
        assert ok(made.run(code)).stdout == "True LimitReached\n"


@pytest.mark.slow
def test_a_call_is_cancelled_with_its_run() -> None:
    entered, release, cancelled = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        release.wait(60)

    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with Sandbox(functions={"wait": wait, "sleep": sleep}) as made:
        result = made.run("import host; host.wait()", timeout=2)
        assert (result.status, [call.outcome for call in result.calls]) == (Status.TIMEOUT, ["cancelled"])
        result = made.run("import host; host.sleep()", timeout=2)
        assert (result.status, [call.outcome for call in result.calls]) == (Status.TIMEOUT, ["cancelled"])
        assert cancelled.wait(30)
        assert entered.is_set()
        release.set()


@pytest.mark.slow
def test_a_cell_that_is_rolled_back_says_which_calls_had_happened(box: Sandbox) -> None:
    with box.session() as session:
        ok(session.run("from host import search"))
        code = "search('a'); search('b')\ntry: search(1)\nexcept Exception: pass\nimport time; time.sleep(60)"
        result = session.run(code, timeout=3)
        assert (result.status, result.rolled_back) == (Status.TIMEOUT, True)
        assert [call.outcome for call in result.calls] == ["ok", "ok", "refused"]
        (note,) = [note for note in result.notes if note.kind is NoteKind.CALLS_HAPPENED]
        assert note.endswith("what they did stays: search (2 times)")
        after = ok(session.run("search('c')"))
        assert [call.arguments["query"] for call in after.calls] == ["c"]


def test_an_interrupted_call_leaves_the_session_usable(box: Sandbox) -> None:
    entered, release = threading.Event(), threading.Event()

    def wait() -> str:
        entered.set()
        release.wait(60)
        return "late"

    with box.session(functions={"wait": wait}) as session:
        done: list[ExecResult] = []
        thread = threading.Thread(target=lambda: done.append(session.run("import host\nhost.wait()")))
        thread.start()
        assert entered.wait(30)
        session.interrupt()
        thread.join(60)
        release.set()
        assert done[0].status is Status.INTERRUPTED
        assert not done[0].rolled_back
        assert ok(session.run("len(host.search('x'))")).displays[-1].data["text/plain"] == "2"


def test_a_session_has_functions_of_its_own_beside_those_of_the_box(box: Sandbox) -> None:
    with box.session(functions={"extra": lambda: 5}) as session:
        assert (
            ok(session.run("import host\nhost.extra(), host.slow_square(2)")).displays[-1].data["text/plain"]
            == "(5, 4)"
        )
    assert "extra" in box.run("from host import extra").stderr


def test_functions_work_where_unix_sockets_and_new_processes_are_denied(tmp_path: Path) -> None:
    policy = SandboxPolicy().mount(tmp_path, "/data")
    with Sandbox(policy, functions=FUNCTIONS) as made:
        assert ok(made.run("import host; print(host.slow_square(3))")).stdout == "9\n"


def test_a_result_with_calls_is_json(box: Sandbox) -> None:
    calls = ok(box.run("import host; host.invert(b'abc')")).to_dict()["calls"]
    assert isinstance(calls, list)
    assert {**calls[0], "duration": 0} == {
        "name": "invert",
        "arguments": {"data": "<3 bytes>"},
        "outcome": "ok",
        "duration": 0,
        "error": "",
    }


def test_wrong_functions_and_limits_are_told_before_anything_runs() -> None:
    with pytest.raises(InvalidRequest, match="functions must be a dict"):
        Sandbox(functions=[search])  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="function_limits must be"):
        Sandbox(functions=FUNCTIONS, function_limits=5)  # type: ignore[arg-type]
