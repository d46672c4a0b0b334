"""Requests check themselves before anything runs, and results say what happened without measured values."""

from __future__ import annotations

import inspect
import json
import math
import pickle
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, MemoryExceeded, SandboxTimeout
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, MAX_MEMORY_MB, MAX_TIMEOUT_S, Limit, Limits
from sandbox_kernel.model import (
    MAX_BRACKET_RUN,
    MAX_CODE_BYTES,
    CellError,
    Display,
    ExecRequest,
    ExecResult,
    FsChange,
    Language,
    Status,
    Violation,
    check_file_name,
    describe_end,
    signal_name,
)


def request(**given: object) -> ExecRequest:
    """A sound request, but for what is given."""
    return ExecRequest(**{"language": "python", "code": "1", "timeout": 5, **given})  # type: ignore[arg-type]


# What is wrong


class Unspeakable:
    """A value whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


ODD_NAMES = [
    "", ".", "..", "../x", "../../etc/cron.d/x", "a/../../x", "a/..", "/etc/passwd", "//x", "a//b", "./a", "a/.",
    "a/", "C:\\x", "C:x", "a\\b", "\\\\server\\x", "a\0b", "\ud800", "x" * 256, "é" * 128, "a/" * 2100 + "a",
    1, None,
]  # fmt: skip

#: What the complaint must say, and the fields that bring it about.
WRONG: dict[str, list[dict[str, object]]] = {
    "language must be a string": [{"language": name} for name in (42, None, ["python"], b"python")],
    "code is empty": [{"code": code} for code in ("", " ", "\n\t\r\n", "\u3000")] + [{"language": "wasm", "code": b""}],
    "code must be text": [{"code": code} for code in (None, 1, ["print(1)"], bytearray(b"1"))],
    "code holds a NUL character at position 5": [{"code": "x = '\0'"}],
    "code holds a lone surrogate at position 2": [{"code": f"# {each}"} for each in ("\ud800", "\udfff", "\udcff")],
    "code has .* at most": [{"code": "é" * (MAX_CODE_BYTES // 2 + 1)}],
    "brackets in a row": [
        {"code": bomb} for bomb in ("(" * 100_000, "[" * 100_000, "{" * 100_000, "([{" * 40_000, "f(" + "(" * 100_000)
    ],
    "timeout": [
        {"timeout": value} for value in (0, -1, math.nan, math.inf, MAX_TIMEOUT_S * 2, 10**400, True, "5", None)
    ],
    "memory limit": [{"memory_limit_mb": value} for value in (0, -1, 1.5, True, "256M", MAX_MEMORY_MB + 1)],
    "limits must be": [{"limits": value} for value in (None, {}, {"processes": 1}, 64)],
    "environment name": [{"env": {name: "x"}} for name in ("", "A=B", "A\0", "1A", "a b", "A-B", "é", "A\n", 1)],
    "environment value of NAME": [{"env": {"NAME": value}} for value in ("a\0b", "\ud800", 1, None, b"x")],
    "env must be": [{"env": env} for env in (None, "A=B", [("A", "B")], 5)],
    "arg": [{"args": args} for args in ("ls -l", ["a\0"], ["\udc00"], [1], [None], None, 7)],
    "file name": [{"files": {name: b""}} for name in ODD_NAMES],
    r"content of file 'a\.txt'": [{"files": {"a.txt": content}} for content in (1, None, ["x"], "\ud800")],
    "'a/b' as a file and, with 'a/b/c', as a folder": [{"files": {"a/b": "", "x": "", "a/b/c": ""}}],
    "stdin must be": [{"stdin": stdin} for stdin in (1, ["x"], bytearray(b"x"))],
    "a value of type Unspeakable": [
        {"timeout": Unspeakable()},
        {"memory_limit_mb": Unspeakable()},
        {"language": Unspeakable()},
        {"env": {"A": Unspeakable()}},
        {"limits": Unspeakable()},
        {"args": [Unspeakable()]},
    ],
    "argument 2 has 262145 bytes.* stdin": [{"args": ["fine", "x" * (1 << 18)]}],
    "environment value of A has .* stdin": [{"env": {"A": "x" * (1 << 18)}}],
    "arguments and environment take .* stdin": [
        {"env": {f"K{n}": "x" for n in range(100_000)}},
        {"args": ["x"] * 200_000},
    ],
}


@pytest.mark.attack("O08", "host")
@pytest.mark.attack("R27", "host")
@pytest.mark.parametrize("told", WRONG)
def test_a_wrong_field_of_a_request_is_refused_with_the_reason(told: str) -> None:
    for given_ in WRONG[told]:
        with pytest.raises(InvalidRequest, match=told):
            request(**given_)


# Languages


@pytest.mark.parametrize("language", list(Language))
def test_a_language_is_known_by_its_own_name_however_it_is_written(language: Language) -> None:
    assert Language.parse(str(language)) is language
    assert Language.parse(f"  {str(language).upper()} ") is language
    assert Language.parse(language) is language


@pytest.mark.parametrize(
    ("alias", "language"),
    [
        ("py", Language.PYTHON), ("js", Language.JAVASCRIPT), ("ts", Language.TYPESCRIPT), ("rs", Language.RUST),
        ("c++", Language.CPP), ("sh", Language.COMMAND), ("bash", Language.COMMAND), ("shell", Language.COMMAND),
        ("wat", Language.WASM),
    ],
)  # fmt: skip
def test_the_aliases_of_the_contract_are_known(alias: str, language: Language) -> None:
    assert Language.parse(alias) is language


@pytest.mark.attack("O08", "host")
@pytest.mark.parametrize("name", ["cobol", "", "--help", "python; rm", "python\0", "🐍"])
def test_an_unknown_language_is_quoted_with_the_list_of_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request(language=name)
    assert repr(name) in str(caught.value)
    assert all(str(language) in str(caught.value) for language in Language)


# Code


def test_bytes_are_for_wasm_alone() -> None:
    assert request(language="wasm", code=b"\0asm\1\0\0\0").source == b"\0asm\1\0\0\0"
    with pytest.raises(InvalidRequest, match="decode it first"):
        request(code=b"print(1)")


@pytest.mark.attack("R27", "host")
def test_two_hundred_megabytes_of_code_are_refused_in_text_bytes_and_spaces() -> None:
    for language, code in (("python", "x" * (200 << 20)), ("wasm", b"x" * (200 << 20)), ("python", " " * (200 << 20))):
        with pytest.raises(InvalidRequest, match=str(200 << 20)):
            request(language=language, code=code)


def test_code_of_just_the_largest_size_is_taken() -> None:
    assert len(request(code="#" * MAX_CODE_BYTES).source) == MAX_CODE_BYTES
    with pytest.raises(InvalidRequest, match="at most"):
        request(code="#" * (MAX_CODE_BYTES + 1))


def test_brackets_below_the_bound_are_the_languages_own_business() -> None:
    assert request(code="(" * (MAX_BRACKET_RUN - 1))


# Time, memory, limits


def test_a_timeout_must_be_given() -> None:
    assert inspect.signature(ExecRequest).parameters["timeout"].default is inspect.Parameter.empty
    with pytest.raises(TypeError, match="timeout"):
        ExecRequest(language=Language.PYTHON, code="1")  # type: ignore[call-arg]


def test_a_request_without_a_memory_limit_has_one_all_the_same() -> None:
    assert request().memory_limit_mb is None
    assert request().memory_mb == DEFAULT_MEMORY_MB
    assert request(memory_limit_mb=64).memory_mb == 64


# Environment, arguments, files, standard input


@pytest.mark.attack("O08", "host")
@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "GLIBC_TUNABLES"]
)
def test_a_name_by_which_the_loader_takes_code_is_refused_with_the_way_to_allow_it(name: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"policy\.with_env\('{name}'"):
        request(env={name: "/tmp/x.so"})


def test_ordinary_names_that_only_look_like_the_loaders_are_taken() -> None:
    env = {"LDFLAGS": "-s", "_LD_PRELOAD": "x", "LOCPATHS": "y", "path": "z"}
    assert dict(request(env=env).env) == env


@pytest.mark.attack("O08", "host")
def test_arguments_that_look_like_options_are_only_arguments() -> None:
    assert request(args=["--help", "-rf", "", "é"]).args == ("--help", "-rf", "", "é")


@pytest.mark.parametrize("name", ["a", "data/a.csv", "...", "-rf", ".hidden", "é" * 127, "a b", "a\nb", "CON"])
def test_odd_but_plain_file_names_are_taken(name: str) -> None:
    assert check_file_name(name) == name


@pytest.mark.attack("O08", "host")
@given(st.lists(st.sampled_from(["a", "b.txt", "..", ".", "", "c d"]), min_size=1, max_size=6))
@pytest.mark.slow
def test_no_file_name_that_is_taken_ever_leaves_its_folder(parts: list[str]) -> None:
    import posixpath

    name = "/".join(parts)
    try:
        check_file_name(name)
    except InvalidRequest:
        return
    assert posixpath.normpath(posixpath.join("/root", name)) == f"/root/{name}"


def test_standard_input_with_a_lone_surrogate_is_refused_and_nul_is_data() -> None:
    with pytest.raises(InvalidRequest, match="stdin holds a lone surrogate at position 1"):
        request(stdin="x\ud800")
    assert request(stdin="a\0b").stdin_bytes == b"a\0b"
    assert request(stdin="é").stdin_bytes == "é".encode()
    assert request().stdin_bytes is None


# The request as a value


def test_a_request_cannot_be_changed_not_even_through_what_it_was_made_of() -> None:
    env, files, args = {"A": "1"}, {"a": b"1"}, ["x"]
    made = request(env=env, files=files, args=args)
    env["A"], files["a"] = "2", b"2"
    args.append("y")
    assert (dict(made.env), dict(made.files), made.args) == ({"A": "1"}, {"a": b"1"}, ("x",))
    with pytest.raises(TypeError):
        made.env["A"] = "3"  # type: ignore[index]
    with pytest.raises(AttributeError):
        made.timeout = 99  # type: ignore[misc]


def test_a_request_is_the_same_after_pickling_and_still_frozen() -> None:
    made = request(env={"A": "1"}, files={"a": b"1"}, args=["x"], stdin=b"\xff", limits=Limits(fuel=7))
    back = pickle.loads(pickle.dumps(made))
    assert back == made
    with pytest.raises(TypeError):
        back.env["A"] = "3"


# Results


FULL = ExecResult(
    stdout="out",
    stderr="err",
    exit_code=139,
    duration=1.2345,
    status=Status.KILLED,
    signal=11,
    violations=(Violation(rule="net", subject="example.org", reason="not allowed", remedy="--allow-net example.org"),),
    compile_duration=0.5,
    stdout_bytes=98765,
    peak_memory_bytes=123456789,
    cpu_seconds=6.789,
    changes=(FsChange(path="a", kind="created", size=3),),
    displays=(Display(data={"text/plain": "1", "application/json": {"a": [1, None]}}, kind="result"),),
    error=CellError(ename="ValueError", evalue="x", traceback=("a", "b")),
    language="python",
    backend="process",
    isolation="process+sandbox",
    timeout=5.0,
    memory_limit_mb=64,
    notes=("a note",),
)


def test_a_result_is_plain_json_and_loses_nothing() -> None:
    plain = FULL.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain) == {field.name for field in fields(ExecResult)} | {"ok"}
    assert (plain["status"], plain["ok"]) == ("killed", False)
    assert plain["displays"] == [
        {"data": {"text/plain": "1", "application/json": {"a": [1, None]}}, "metadata": {}, "kind": "result"}
    ]
    assert plain["error"] == {"ename": "ValueError", "evalue": "x", "traceback": ["a", "b"]}


def test_a_result_is_the_same_after_pickling() -> None:
    assert pickle.loads(pickle.dumps(FULL)) == FULL


def test_an_ok_result_returns_itself() -> None:
    fine = ExecResult(exit_code=0)
    assert fine.raise_for_status() is fine


def test_a_result_raises_the_error_of_its_status_and_carries_itself() -> None:
    late = ExecResult(stdout="so far", status=Status.TIMEOUT, timeout=2)
    with pytest.raises(SandboxTimeout, match="after 2s") as timeout:
        late.raise_for_status()
    assert timeout.value.result is late
    with pytest.raises(MemoryExceeded, match="64 MB") as memory:
        replace(FULL, status=Status.MEMORY_EXCEEDED).raise_for_status()
    assert memory.value.result is not None
    for status in set(Status) - {Status.OK, Status.TIMEOUT, Status.MEMORY_EXCEEDED}:
        with pytest.raises(ExecutionFailed) as failed:
            replace(FULL, status=status).raise_for_status()
        assert failed.value.result is not None


def _with(status: Status, limit: str | None, measured: float) -> ExecResult:
    return replace(
        FULL,
        status=status,
        limit=limit,
        duration=measured,
        cpu_seconds=measured * 2,
        compile_duration=measured / 2,
        peak_memory_bytes=int(measured * 1e6),
        stdout_bytes=int(measured * 1000),
        stderr_bytes=int(measured * 1000),
        fuel_used=int(measured * 100),
    )


@pytest.mark.parametrize("limit", [None, *Limit])
@pytest.mark.parametrize("status", list(Status))
@pytest.mark.one_case
def test_the_sentence_about_an_end_never_depends_on_what_was_measured(status: Status, limit: str | None) -> None:
    assert describe_end(_with(status, limit, 1.5)) == describe_end(_with(status, limit, 977.25))


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (ExecResult(exit_code=0), "ok"),
        (ExecResult(exit_code=0, limit="processes"), "ok, after reaching the processes limit"),
        (ExecResult(status=Status.TIMEOUT, timeout=0.5), "time limit of 0.5 s exceeded"),
        (ExecResult(status=Status.MEMORY_EXCEEDED, memory_limit_mb=64), "memory limit of 64 MB exceeded"),
        (ExecResult(status=Status.CPU_LIMIT), "CPU time limit exceeded"),
        (ExecResult(status=Status.FUEL_EXHAUSTED), "fuel limit exhausted"),
        (ExecResult(status=Status.INTERRUPTED), "interrupted"),
        (ExecResult(status=Status.COMPILE_FAILED, exit_code=1), "compilation failed"),
        (ExecResult(status=Status.FAILED, exit_code=3), "exit code 3"),
        (ExecResult(status=Status.FAILED, exit_code=1, limit="disk"), "exit code 1, after reaching the disk limit"),
        (ExecResult(status=Status.FAILED, exit_code=134, signal=6), "aborted (SIGABRT)"),
        (ExecResult(status=Status.KILLED, exit_code=139, signal=11), "killed by signal 11 (SIGSEGV)"),
        (
            ExecResult(status=Status.KILLED, exit_code=153, signal=25, limit="disk"),
            "killed by signal 25 (SIGXFSZ) at the disk limit",
        ),
        (ExecResult(status=Status.KILLED, limit="disk"), "killed at the disk limit"),
        (ExecResult(status=Status.KILLED), "killed"),
    ],
)
def test_an_end_is_one_plain_sentence(result: ExecResult, sentence: str) -> None:
    assert describe_end(result) == sentence


def test_real_time_signals_keep_their_number() -> None:
    assert signal_name(40) == "signal 40"
    assert signal_name(9) == "SIGKILL"


def test_a_complaint_about_a_language_does_not_repeat_a_megabyte() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Language.parse("x" * (1 << 20))
    assert len(str(caught.value)) < 1000
