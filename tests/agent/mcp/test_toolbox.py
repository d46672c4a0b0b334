"""The toolbox: sessions by name, turns, and the limit on their number, over sessions that do as they are told."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from sandbox_kernel import ExecResult, Sandbox, SandboxPolicy, SessionError, Status
from sandbox_kernel.agent.mcp import toolbox
from sandbox_kernel.agent.mcp.mcp_tool import ToolCall
from sandbox_kernel.agent.mcp.session_tools import MOST_SESSIONS
from sandbox_kernel.agent.mcp.toolbox import Toolbox


class FakeSession:
    """Runs until it is released or cancelled, and remembers what it ran."""

    def __init__(self, release: asyncio.Event) -> None:
        self.release = release
        self.begun = asyncio.Event()
        self.ran: list[str] = []

    async def arun(self, code: str, timeout: float, on_output: object, *, cancel: asyncio.Event) -> ExecResult:
        self.ran.append(code)
        self.begun.set()
        ends = [asyncio.ensure_future(event.wait()) for event in (self.release, cancel)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        return ExecResult(status=Status.INTERRUPTED if cancel.is_set() else Status.OK, exit_code=0)


class FakeBox:
    def __init__(self, open_session: Callable[[], FakeSession]) -> None:
        self.policy = SandboxPolicy.preset("standard")
        self.backend = None
        self.here = None
        self._open = open_session
        self.opened: list[str] = []

    def session(self, language: str, *, name: str, limits: object) -> FakeSession:
        self.opened.append(name)
        return self._open()


def run(toolbox: Toolbox, cancel: asyncio.Event | None = None, **args: object) -> asyncio.Task[Any]:
    call = ToolCall(args=args, cancel=cancel or asyncio.Event())
    return asyncio.ensure_future(toolbox.call("session_run", call))


def test_a_cancelled_call_that_waits_for_its_turn_does_not_interrupt_the_one_that_runs():
    async def play() -> None:
        release = asyncio.Event()
        session = FakeSession(release)
        toolbox = Toolbox(cast(Sandbox, FakeBox(lambda: session)))
        cancel = asyncio.Event()
        first = run(toolbox, code="first")
        await session.begun.wait()
        second = run(toolbox, cancel, code="second")
        cancel.set()
        release.set()
        assert (await first).answer["status"] == "success"
        answer = (await second).answer
        assert answer["status"] == "error"
        assert "nothing was run" in str(answer["stderr"])
        assert session.ran == ["first"]

    asyncio.run(play())


def test_there_are_only_so_many_sessions_and_the_known_ones_go_on():
    async def play() -> None:
        release = asyncio.Event()
        release.set()
        box = FakeBox(lambda: FakeSession(release))
        toolbox = Toolbox(cast(Sandbox, box))
        for number in range(MOST_SESSIONS):
            assert (await run(toolbox, code="x", session=f"s{number}")).answer["status"] == "success"
        refused = (await run(toolbox, code="x", session="more")).answer
        assert (refused["status"], "use one of them: s0, s1" in str(refused["stderr"])) == ("error", True)
        assert (await run(toolbox, code="x", session="s0")).answer["status"] == "success"
        assert box.opened == [f"s{number}" for number in range(MOST_SESSIONS)]

    asyncio.run(play())


def test_a_session_that_does_not_open_takes_no_place():
    async def play() -> None:
        def fail() -> FakeSession:
            raise SessionError("no room")

        toolbox = Toolbox(cast(Sandbox, FakeBox(fail)))
        for number in range(MOST_SESSIONS + 2):
            answer = (await run(toolbox, code="x", session=f"s{number}")).answer
            assert (answer["status"], answer["stderr"]) == ("error", "no room")

    asyncio.run(play())


def test_a_failure_of_our_own_is_told_and_logged(caplog: pytest.LogCaptureFixture):
    async def play() -> Any:
        def fail() -> FakeSession:
            raise ZeroDivisionError("ours")

        return await run(Toolbox(cast(Sandbox, FakeBox(fail))), code="x")

    assert asyncio.run(play()).answer["stderr"] == "internal error (ZeroDivisionError): ours"
    assert "the tool session_run failed" in caplog.text


def test_a_file_too_many_is_refused_and_later_runs_go_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolbox, "MAX_PACKED_BYTES", 10)
    monkeypatch.setattr(toolbox, "MAX_PACKED_FILES", 2)

    async def play(box: Sandbox) -> list[tuple[object, object]]:
        toolbox = Toolbox(box)
        said = []
        for path, content in (("a", "12345678"), ("b", "123"), ("b", "12"), ("c", ""), ("a", "")):
            reply = await toolbox.call("write_file", ToolCall(args={"path": path, "content": content}))
            said.append((path, reply.answer["status"]))
        return said

    with Sandbox() as box:
        assert asyncio.run(play(box)) == [
            ("a", "success"), ("b", "error"), ("b", "success"), ("c", "error"), ("a", "success"),
        ]  # fmt: skip
        assert sorted(box.files) == ["a", "b"]
