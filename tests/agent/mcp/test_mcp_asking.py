"""What an MCP client's user is asked, shown and offered beside tools: permission, files, prompts, candidates."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp.types as types
from mcp import Client, MCPError, StdioServerParameters, stdio_client

from tests.agent.mcp.mcp_peers import COMMAND, Held, environment, over_stdio
from tests.loopback_server import QuietHandler, serving

GET = "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:PORT/', timeout=20).status)"


class _Hello(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(_Hello) as number:
        yield number


class User:
    """Answers what the server asks, and remembers the questions."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, context: object, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        answer = self.answers.pop(0)
        if answer == "error":
            raise MCPError(-32000, "the user's window broke")
        if answer == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"answer": answer})


def asking(folder: Path, user: User, mode: str) -> Held:
    words = [*COMMAND, "--allow-net", "127.0.0.1:9", "--allow-private", "127.0.0.1", "--audit", str(folder / "audit")]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment(folder))
    return Held(lambda: Client(stdio_client(server), mode=mode, elicitation_callback=user))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.slow
def test_the_users_answer_is_a_change_of_the_policy_and_written_down(mode: str, port: int, tmp_path: Path) -> None:
    user = User("once", "session")
    held = asking(tmp_path, user, mode)
    code = GET.replace("PORT", str(port))
    try:
        refused = held.answer("sandbox_exec", language="python", code=code)
        assert refused["status"] == "failed" and "run it again" in refused["notes"][-1]
        assert [each["rule"] for each in refused["violations"]] == ["port_not_allowed"]
        assert held.answer("sandbox_exec", language="python", code=code)["stdout"] == "200\n"
        again = held.answer("session_run", code=code)
        assert again["status"] == "failed" and "from now on" in again["notes"][-1]
        for tool in ("session_run", "sandbox_exec", "session_run"):
            assert held.answer(tool, language="python", code=code)["stdout"] == "200\n"
    finally:
        held.close()
    assert user.asked == [f"A program in the sandbox wanted to reach 127.0.0.1:{port}. May programs reach it?"] * 2
    events = [(line["event"], line["host"]) for line in map(json.loads, (tmp_path / "audit").read_text().splitlines())]
    assert {("refused", "127.0.0.1"), ("allowed", "127.0.0.1"), ("finished", "127.0.0.1")} <= set(events)
    assert [each for each in events if each[0].startswith("granted")] == [
        ("granted_once", "127.0.0.1"), ("granted", "127.0.0.1"),
    ]  # fmt: skip


@pytest.mark.slow
def test_who_declines_is_asked_again_and_never_is_never(port: int, tmp_path: Path) -> None:
    user = User("decline", "never")
    held = asking(tmp_path, user, "legacy")
    try:
        for _ in range(3):
            answer = held.answer("sandbox_exec", language="python", code=GET.replace("PORT", str(port)))
            assert answer["status"] == "failed"
    finally:
        held.close()
    assert len(user.asked) == 2
    assert '"declined"' in (tmp_path / "audit").read_text()


@pytest.mark.slow
def test_a_client_that_answers_with_an_error_gets_the_result_of_its_program(port: int, tmp_path: Path) -> None:
    user = User("error")
    held = asking(tmp_path, user, "legacy")
    try:
        code = f"print('ran')\n{GET.replace('PORT', str(port))}"
        answer = held.answer("sandbox_exec", language="python", code=code)
        assert (answer["status"], answer["stdout"]) == ("failed", "ran\n")
    finally:
        held.close()
    assert len(user.asked) == 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    held = over_stdio(tmp_path_factory.mktemp("stdio"))
    yield held
    held.close()


@pytest.mark.slow
def test_a_client_that_cannot_ask_gets_the_refusal(served: Held, port: int) -> None:
    answer = served.answer("sandbox_exec", language="python", code=GET.replace("PORT", str(port)))
    assert answer["status"] == "failed"


@pytest.mark.slow
def test_candidates_are_tried_from_one_state_and_one_is_kept(served: Held) -> None:
    served.answer("session_run", code="x = 1", session="tries")
    codes = ["x += 1; print(x)", "x += 10; print(x)", "1/0"]
    tried = served.answer("session_explore", session="tries", candidates=codes)
    assert [(each["status"], each["stdout"]) for each in tried["results"]] == [
        ("success", "2\n"), ("success", "11\n"), ("failed", ""),
    ]  # fmt: skip
    assert served.answer("session_run", code="print(x)", session="tries")["stdout"] == "1\n"
    served.answer("session_explore", session="tries", candidates=["x += 1", "x += 10"])
    assert served.answer("session_keep", session="tries", candidate=7)["status"] == "error"
    assert served.answer("session_keep", session="tries", candidate=1)["status"] == "success"
    assert served.answer("session_run", code="print(x)", session="tries")["stdout"] == "11\n"
    assert "has no candidates" in served.answer("session_keep", session="tries")["stderr"]


@pytest.mark.slow
def test_a_program_that_stumbles_gets_the_hint_of_other_doors(served: Held) -> None:
    answer = served.answer("sandbox_exec", language="python", code="import nosuchpackage")
    assert any("nosuchpackage" in note for note in answer["notes"])
