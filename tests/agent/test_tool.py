"""``SandboxTool``: its name and schema, what it answers to every end of a program, and bad arguments."""

import asyncio
import json
from dataclasses import replace

import jsonschema
import pytest

from sandbox_kernel import (
    BackendUnavailable,
    EnforcerFailed,
    ExecResult,
    ExecutionFailed,
    FsChange,
    InvalidRequest,
    Language,
    MemoryExceeded,
    ProcessBackend,
    ProcessConfig,
    SandboxTimeout,
    SandboxTool,
    Status,
    Violation,
)
from sandbox_kernel.agent.sandbox_tool import shown

from .conftest import OK, SIX, Answers, FakeBackend

FIELDS = {"status", "stdout", "stderr", "exit_code", "duration_ms"}


# -- name, schema, and every end of a program ----------------------------------------------------------------------


def test_the_tool_has_its_name_its_scopes_and_a_valid_schema():
    tool = SandboxTool(FakeBackend(OK))
    assert (tool.name, tool.required_scopes) == ("sandbox_exec", ["code:execute"])
    schema = tool.parameters_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    properties = schema["properties"]
    assert list(properties) == ["language", "code", "stdin", "timeout_secs"]
    assert properties["language"]["enum"] == ["rust", "python", "javascript", "typescript", "wasm", "command"]
    timeout = properties["timeout_secs"]
    assert (timeout["type"], timeout["minimum"], timeout["maximum"], timeout["default"]) == ("integer", 1, 300, 30)
    assert schema["required"] == ["language", "code"]


def test_a_program_that_ends_well_is_a_success(answers: Answers):
    answer = answers({"language": "python", "code": "print('hello')"})
    assert {name: answer[name] for name in FIELDS} == {
        "status": "success", "stdout": "hello\n", "stderr": "", "exit_code": 0, "duration_ms": 250,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"language": "python"}, 'missing required field "code"'),
        ({"code": "x"}, 'missing required field "language"'),
        ({"language": "python", "code": "x", "b": 1}, 'unknown field "b"; known fields: language, code, stdin, timeout_secs'),
        ({"language": "cobol", "code": "x"},
         'unsupported language "cobol". Expected one of: rust, python, javascript, typescript, wasm, command'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_is_known(answers: Answers, args: dict[str, object], said: str):
    answer = answers(args)
    assert (answer["status"], answer["stderr"]) == ("error", said)


def test_custom_timeout_and_stdin_reach_the_backend():
    backend = FakeBackend(OK)
    args = {"language": "python", "code": "x", "timeout_secs": 300, "stdin": "in"}
    assert asyncio.run(SandboxTool(backend).execute(args))["status"] == "success"
    (request,) = backend.requests
    assert (request.timeout, request.stdin) == (300.0, "in")
    assert (request.memory_limit_mb, dict(request.env), dict(request.files)) == (None, {}, {})


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SandboxTimeout(5), "timeout"),
        (MemoryExceeded(64), "memory_exceeded"),
        (ExecutionFailed("no"), "error"),
        (InvalidRequest("no"), "error"),
        (BackendUnavailable("no"), "error"),
        (EnforcerFailed("bubblewrap", "no"), "error"),
    ],
)
def test_every_error_has_its_status_in_json(answers: Answers, error: Exception, status: str):
    answer = answers({"language": "python", "code": "x"}, error)
    assert answer["status"] == status
    assert answer["stderr"] == str(error)
    assert answer["code"] == error.code
    assert set(answer) >= FIELDS


# -- wrong arguments, remarks and descriptions ---------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -5, 301, 10**9, 2.5, 5.0, "10", True, [], {}, float("nan")])
def test_a_wrong_timeout_is_told_and_nothing_runs(value: object):
    backend = FakeBackend(OK)
    answer = asyncio.run(SandboxTool(backend).execute({"language": "python", "code": "x", "timeout_secs": value}))
    assert answer["status"] == "error"
    assert str(answer["stderr"]).startswith('"timeout_secs" must be a whole number between 1 and 300, got ')
    assert backend.requests == []


def test_the_timeout_left_out_or_null_is_thirty_seconds():
    backend = FakeBackend(OK)
    for more in ({}, {"timeout_secs": None, "stdin": None}):
        asyncio.run(SandboxTool(backend).execute({"language": "python", "code": "x", **more}))
    assert [(request.timeout, request.stdin) for request in backend.requests] == [(30.0, None)] * 2


@pytest.mark.parametrize(
    "args",
    [
        None, [], "text", 7, {}, {"language": 42, "code": "x"}, {"language": None, "code": "x"},
        {"language": "python", "code": 7}, {"language": "python", "code": ""},
        {"language": "python", "code": "a\0b"}, {"language": "python", "code": "\ud800"},
        {"language": "python", "code": "x", "stdin": 7}, {"language": "python", "code": "x", "stdin": "\udfff"},
        {"language": "--help", "code": "x"}, {"language": "python; rm -rf /", "code": "x"},
        {"language": "python\0", "code": "x"}, {"language": "python" * 10**5, "code": "x"},
        {"language": "python", "code": "x", "files": {"../../etc/cron.d/x": "x"}},
        {"language": "python", "code": "x", "cwd": "-rf"}, {"language": "python", "code": "x", "env": {"A=B": "x"}},
        {"language": "python", "code": "x" * (17 << 20)}, {1: 2}, {"language": "python", "code": "x", "\ud800": 1},
    ],
    ids=lambda args: repr(args)[:50],
)  # fmt: skip
def test_bad_arguments_are_told_and_nothing_runs(args: object):
    backend = FakeBackend(OK)
    answer = asyncio.run(SandboxTool(backend).execute(args))
    assert answer["status"] == "error"
    assert answer["stderr"]
    assert len(json.dumps(answer)) < 2000
    assert backend.requests == []


def test_every_name_and_alias_of_a_language_is_known():
    backend = FakeBackend(OK)
    for name in (*map(str, SIX), "py", "js", "sh", "Python"):
        asyncio.run(SandboxTool(backend).execute({"language": name, "code": "x"}))
    assert [request.language for request in backend.requests] == [*SIX, "python", "javascript", "command", "python"]


def test_a_language_that_does_not_run_here_is_not_offered_and_not_tried():
    backend = FakeBackend(OK, (Language.PYTHON,))
    tool = SandboxTool(backend)
    assert tool.parameters_schema()["properties"]["language"]["enum"] == ["python"]
    answer = asyncio.run(tool.execute({"language": "rust", "code": "x"}))
    assert answer["status"] == "error"
    assert 'unsupported language "rust"' in str(answer["stderr"])
    assert str(answer["stderr"]).endswith("Expected one of: python")
    assert backend.requests == []


def test_a_program_that_ends_with_an_exit_code_counts_as_run(answers: Answers):
    answer = answers({"language": "python", "code": "x"}, ExecResult(exit_code=3, stderr="no\n", status=Status.FAILED))
    assert (answer["status"], answer["exit_code"], answer["stderr"]) == ("success", 3, "no\n")
    assert set(answer) == FIELDS


@pytest.mark.parametrize(
    ("result", "status", "said"),
    [
        (ExecResult(status=Status.TIMEOUT, timeout=5.0, limit="timeout"), "timeout", "execution timed out after 5s"),
        (ExecResult(status=Status.TIMEOUT), "timeout", "execution timed out after 30s"),
        (ExecResult(status=Status.MEMORY_EXCEEDED, memory_limit_mb=64), "memory_exceeded", "limit exceeded: 64 MB"),
        (ExecResult(status=Status.CPU_LIMIT, limit="cpu"), "timeout", "CPU time limit exceeded"),
        (ExecResult(status=Status.FUEL_EXHAUSTED, limit="fuel"), "timeout", "fuel limit exhausted"),
        (ExecResult(status=Status.KILLED, signal=11, exit_code=139), "error", "killed by signal 11 (SIGSEGV)"),
        (ExecResult(status=Status.INTERRUPTED), "error", "interrupted"),
        (ExecResult(status=Status.COMPILE_FAILED, exit_code=1), "success", ""),
    ],
)
def test_every_end_has_a_status_and_says_why_after_the_output_so_far(
    answers: Answers, result: ExecResult, status: str, said: str
):
    args = {"language": "python", "code": "x"}
    assert str(answers(args, result)["stderr"]).endswith(said)
    answer = answers(args, replace(result, stdout="out", stderr="half a line"))
    assert (answer["status"], answer["stdout"]) == (status, "out")
    assert str(answer["stderr"]).startswith("half a line\n" if said else "half a line")
    assert str(answer["stderr"]).endswith(said)
    told = result.status in (Status.TIMEOUT, Status.MEMORY_EXCEEDED)
    assert answer.get("outcome") == (None if told else result.status)


def test_an_error_that_carries_a_result_keeps_its_output(answers: Answers):
    half = ExecResult(stdout="so far", exit_code=None, duration=5.0, status=Status.TIMEOUT, timeout=5.0)
    answer = answers({"language": "python", "code": "x"}, SandboxTimeout(5, half))
    assert (answer["status"], answer["stdout"], answer["duration_ms"]) == ("timeout", "so far", 5000)
    assert answer["stderr"] == "execution timed out after 5s"


def test_a_backend_that_breaks_its_contract_is_told_and_logged(answers: Answers, caplog: pytest.LogCaptureFixture):
    answer = answers({"language": "python", "code": "x"}, RuntimeError("boom"))
    assert (answer["status"], answer["stderr"]) == ("error", "internal error (RuntimeError): boom")
    assert "boom" in caplog.text


def test_a_cancelled_task_is_cancelled(answers: Answers):
    with pytest.raises(asyncio.CancelledError):
        answers({"language": "python", "code": "x"}, asyncio.CancelledError())


def test_denials_changes_and_cuts_are_data(answers: Answers):
    denied = Violation(
        rule="domain", subject="evil.example", reason="not allowed", remedy="allow_domain('evil.example')"
    )
    result = ExecResult(
        status=Status.OK, exit_code=0, stdout="cut", stdout_bytes=5_000_000, stdout_truncated=True, limit="output",
        violations=(denied,), changes=(FsChange(path="a\udcff.txt", kind="created", size=3),) * 60, notes=("a note",),
    )  # fmt: skip
    answer = answers({"language": "python", "code": "x"}, result)
    assert answer["violations"] == [
        {"rule": "domain", "subject": "evil.example", "reason": "not allowed", "remedy": "allow_domain('evil.example')"}
    ]
    assert (answer["limit"], answer["truncated"]) == ("output", {"stdout": 5_000_000})
    assert answer["changes"][0] == {"path": "a?.txt", "kind": "created", "type": "file", "size": 3}
    assert (len(answer["changes"]), answer["changes_left_out"], answer["notes"]) == (50, 10, ["a note"])
    json.dumps(answer, ensure_ascii=False).encode()


def test_a_result_without_remarks_has_only_the_fields_of_the_contract(answers: Answers):
    late = ExecResult(status=Status.TIMEOUT, timeout=5.0, limit="timeout")
    large = ExecResult(status=Status.MEMORY_EXCEEDED, limit="memory", memory_limit_mb=64)
    for result in (ExecResult(), late, large):
        assert set(answers({"language": "python", "code": "x"}, result)) == FIELDS


# -- over the process backend --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_description_is_made_of_what_was_measured(process_tool: SandboxTool):
    text = process_tool.description
    assert "process+sandbox" in text
    assert "python (3." in text
    assert "Network: none." in text
    enforced = text.split("Enforced here, measured: ")[1].split(".")[0]
    assert {"time limit", "memory limit", "network isolation", "no reading of host files"} <= set(enforced.split(", "))


def test_the_description_says_what_is_not_enforced():
    text = SandboxTool(FakeBackend(OK)).description
    assert "Enforced here, measured: time limit." in text
    assert "NOT enforced here: memory limit, " in text


def test_the_first_call_does_not_wait_for_measurements(monkeypatch: pytest.MonkeyPatch):
    def measure(self: ProcessBackend) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(ProcessBackend, "capabilities", measure)
    tool = SandboxTool(ProcessBackend(ProcessConfig(pool_size=0)))
    assert asyncio.run(tool.execute({"language": "python", "code": "print(42)"}))["stdout"] == "42\n"


def test_rust_links_although_the_tool_gives_no_environment(process_tool: SandboxTool):
    if "rust" not in process_tool.parameters_schema()["properties"]["language"]["enum"]:
        pytest.skip("rust cannot run here")
    args = {"language": "rust", "code": 'fn main() { println!("{:?}", std::env::var("CARGO_HOME")); }'}
    answer = asyncio.run(process_tool.execute(args))
    assert (answer["status"], answer["exit_code"], answer["stdout"]) == ("success", 0, "Err(NotPresent)\n")


def test_a_flood_is_cut_to_what_a_model_can_read(process_tool: SandboxTool):
    code = "print('first'); print('x' * 3_000_000); print('last')"
    answer = asyncio.run(process_tool.execute({"language": "python", "code": code}))
    text = str(answer["stdout"])
    assert len(text) < 66_000
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "truncated" in text
    assert answer["truncated"] == {"stdout": 3_000_012}


def test_output_is_handed_on_as_it_comes_and_cancel_ends_the_run(process_tool: SandboxTool):
    async def play() -> tuple[dict[str, object], list[tuple[str, str]]]:
        cancel = asyncio.Event()
        heard: list[tuple[str, str]] = []

        def hear(stream: str, text: str) -> None:
            heard.append((stream, text))
            cancel.set()

        code = "import os; os.write(1, b'ready\\n')\nwhile True: pass"
        return await process_tool.execute({"language": "python", "code": code}, on_output=hear, cancel=cancel), heard

    answer, heard = asyncio.run(play())
    assert "".join(text for stream, text in heard if stream == "stdout").startswith("ready")
    assert (answer["status"], answer["stdout"], answer["outcome"]) == ("error", "ready\n", "interrupted")


def test_what_is_quoted_is_short_and_on_one_line_whatever_it_is():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10**7, "\n\x1b[2J", "\ud800", deep, object(), {1: {2}}, [1] * 10**6, b"bytes", float("inf")):
        text = shown(value)
        assert len(text) < 100
        assert text.isprintable()
        text.encode()
