"""Host functions from JavaScript, TypeScript and the shell, in runs and sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import ExecResult, Sandbox


def search(query: str, limit: int = 2) -> list[str]:
    """Search the catalogue."""
    return [f"{query} {number}" for number in range(limit)]


def invert(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


def count(to: int) -> Iterator[int]:
    yield from range(to)


def broken() -> None:
    raise KeyError("no such thing")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    functions = {"search": search, "invert": invert, "count": count, "broken": broken}
    with Sandbox(functions=functions) as made:
        yield made


def ok(result: ExecResult) -> ExecResult:
    assert result.ok, (result.status, result.stdout, result.stderr, result.notes)
    return result


JAVASCRIPT = """
console.log(host.search('ship', {limit: 1}), host.search('a', 1));
console.log(host.invert(new Uint8Array([0, 255])), [...host.count(3)]);
try { host.broken() } catch (e) { console.log(e instanceof host.HostError, e.type, e.message) }
try { host.search(5) } catch (e) { console.log(e.message) }
"""
SHOWN = """[ 'ship 0' ] [ 'a 0' ]
Uint8Array(2) [ 255, 0 ] [ 0, 1, 2 ]
true KeyError KeyError: 'no such thing'
TypeError: search() argument 'query' must be str, got int
"""


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_a_run_of_javascript_calls(box: Sandbox, language: str) -> None:
    result = ok(box.run(JAVASCRIPT, language))
    assert result.stdout == SHOWN
    assert [(call.name, call.outcome) for call in result.calls] == [
        ("search", "ok"), ("search", "ok"), ("invert", "ok"), ("count", "ok"), ("broken", "error"), ("search", "refused"),
    ]  # fmt: skip


def test_a_session_of_javascript_calls_in_every_cell(box: Sandbox) -> None:
    with box.session("javascript") as session:
        assert ok(session.run(JAVASCRIPT)).stdout == SHOWN
        result = ok(session.run("console.log(host.search('x').length)"))
        assert (result.stdout, len(result.calls)) == ("2\n", 1)


SHELL = """
host search ship limit=1
host count 3
printf '%s' "$(host search a 1)"
host broken || echo "exit $?"
"""


def test_the_shell_calls_with_a_command(box: Sandbox) -> None:
    result = ok(box.run(SHELL, "command"))
    assert result.stdout == '["ship 0"]\n0\n1\n2\n["a 0"]exit 1\n'
    assert result.stderr == "host: KeyError: 'no such thing'\n"
    assert [call.name for call in result.calls] == ["search", "count", "search", "broken"]


def test_a_shell_session_calls_in_every_cell(box: Sandbox) -> None:
    with box.session("command") as session:
        for _ in range(2):
            result = ok(session.run("host search x 1"))
            assert (result.stdout, len(result.calls)) == ('["x 0"]\n', 1)


def test_the_command_says_how_it_is_used(box: Sandbox) -> None:
    result = box.run("host", "command")
    assert (result.exit_code, result.stderr) == (2, "host: usage: host FUNCTION [ARGUMENT | NAME=VALUE] ...\n")


def test_without_functions_there_is_no_command_and_no_global_name() -> None:
    with Sandbox() as plain:
        assert plain.run("echo $HOST_HATCH; ls /cell", "command").stdout == "\ncell.sh\n"
        assert plain.run("console.log(typeof host)", "javascript").stdout == "undefined\n"
