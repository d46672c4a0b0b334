"""A program of any language that reads its standard input can ask whoever runs it."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Language, ProcessBackend, Status
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail import input_prompts
from sandbox_kernel.jail.input_prompts import CannotTell
from tests.backends.conftest import User
from tests.conftest import need

PROGRAMS = {
    Language.PYTHON: "a = input('name? ')\nb = input('age? ')\nprint(a, b)",
    Language.COMMAND: "read a; read b; echo $a $b",
    Language.JAVASCRIPT: (
        "let n = 0; const lines = []; process.stdin.on('data', (part) => { lines.push(String(part).trim());"
        " if (++n == 2) { console.log(lines.join(' ')); process.exit() } })"
    ),
    Language.C: (
        "#include <stdio.h>\nint main(void) { char a[9]; int b;"
        ' scanf("%8s", a); scanf("%d", &b); printf("%s %d\\n", a, b); return 0; }'
    ),
}


@pytest.fixture(scope="module")
def backend() -> Iterator[ProcessBackend]:
    yield ProcessBackend()


def run(backend: ProcessBackend, user: User, code: str, language: Language = Language.PYTHON, **fields) -> ExecResult:
    request = ExecRequest(language=language, code=code, **{"timeout": 30, **fields})
    return backend.run(request, RunContext(on_output=user.hear, on_input=user.ask))


@pytest.mark.parametrize("language", PROGRAMS)
@pytest.mark.one_case
def test_a_program_gets_a_line_whenever_it_waits_for_one(backend: ProcessBackend, language: Language) -> None:
    need(language in backend.available_languages(), f"{language} is not available here")
    user = User("Ada", "36")
    result = run(backend, user, PROGRAMS[language], language)
    assert (result.stdout.rpartition("? ")[2], result.status) == ("Ada 36\n", Status.OK)
    assert len(user.seen) == 2


def test_what_was_printed_before_a_question_is_shown_before_it(backend: ProcessBackend) -> None:
    user = User("Ada", "36")
    run(backend, user, PROGRAMS[Language.PYTHON])
    assert [shown for _, shown in user.seen] == ["name? ", "name? age? "]


def test_where_nobody_can_be_asked_the_input_ends_and_nobody_is_asked_again(backend: ProcessBackend) -> None:
    user = User()
    result = run(backend, user, "import sys\nprint([sys.stdin.readline(), sys.stdin.readline()])")
    assert (result.stdout, len(user.seen)) == ("['', '']\n", 1)


def test_a_request_that_has_its_input_asks_nobody(backend: ProcessBackend) -> None:
    user = User("never")
    assert run(backend, user, "print(input())", stdin="given\n").stdout == "given\n"
    assert user.seen == []


def test_a_program_that_works_is_not_disturbed(backend: ProcessBackend) -> None:
    user = User("never")
    assert run(backend, user, "import time\ntime.sleep(0.3)\nprint('done')").stdout == "done\n"
    assert user.seen == []


@pytest.mark.slow
def test_the_users_time_is_not_the_programs(backend: ProcessBackend) -> None:
    thought = threading.Event()

    def ask(prompt: str, password: bool) -> str:
        threading.Timer(0.8, thought.set).start()
        thought.wait()
        return "late"

    request = ExecRequest(language=Language.PYTHON, code="print(input())", timeout=0.5)
    result = backend.run(request, RunContext(on_input=ask))
    assert (result.status, result.stdout) == (Status.OK, "late\n")


def test_a_run_is_stopped_while_its_user_thinks(backend: ProcessBackend) -> None:
    async def go() -> ExecResult:
        cancel, asked = asyncio.Event(), asyncio.Event()

        async def ask(prompt: str, password: bool) -> str:
            asked.set()
            await asyncio.Event().wait()
            return ""

        request = ExecRequest(language=Language.PYTHON, code="input()", timeout=30)
        running = asyncio.ensure_future(backend.execute(request, on_input=ask, cancel=cancel))
        await asked.wait()
        cancel.set()
        return await running

    assert asyncio.run(go()).status is Status.INTERRUPTED


def test_an_interrupt_of_the_question_is_one_of_the_run(backend: ProcessBackend) -> None:
    def ask(prompt: str, password: bool) -> str:
        raise KeyboardInterrupt

    request = ExecRequest(language=Language.PYTHON, code="input()", timeout=30)
    assert backend.run(request, RunContext(on_input=ask)).status is Status.INTERRUPTED


def test_where_nobody_can_tell_whether_a_program_waits_its_input_ends(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(init_pid: int, pipe_fd: int) -> bool:
        raise CannotTell

    monkeypatch.setattr(input_prompts, "waits_for_input", refused)
    user = User("never")
    result = run(backend, user, "print(repr(__import__('sys').stdin.read()))")
    assert (result.stdout, user.seen) == ("''\n", [])


def test_what_cannot_be_asked_is_refused_before_anything_runs(backend: ProcessBackend) -> None:
    request = ExecRequest(language=Language.PYTHON, code="input()", timeout=5)
    with pytest.raises(InvalidRequest, match="on_input"):
        backend.run(request, RunContext(on_input="yes"))  # type: ignore[arg-type]
