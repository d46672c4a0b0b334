"""The facade: runs, files, sessions and errors as a user meets them."""

import asyncio
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import (
    ExecRequest,
    ExecResult,
    InvalidRequest,
    Limits,
    NetworkingDisabled,
    PathTraversal,
    ProcessBackend,
    ProcessConfig,
    Sandbox,
    SandboxDestroyed,
    SandboxPolicy,
    SessionError,
    Status,
)
from sandbox_kernel.backends.base import RunContext


@pytest.fixture
def box(nothing_left: None) -> Iterator[Sandbox]:
    with Sandbox(config=ProcessConfig(pool_size=0)) as made:
        yield made


def test_the_readme_example_runs(box: Sandbox) -> None:
    result = box.run("import os; print(os.listdir('/home'))", "python", timeout=5, memory_mb=256)
    assert (result.stdout, result.status) == ("[]\n", Status.OK)


def test_files_written_before_are_there_and_files_made_inside_come_back(box: Sandbox) -> None:
    box.write_file("data/in.txt", b"41")
    result = box.run("n = int(open('data/in.txt').read()); open('out.txt', 'w').write(str(n + 1))")
    assert [(change.path, change.kind) for change in result.changes] == [("out.txt", "created")]
    assert box.read_file("out.txt") == b"42"
    assert [entry.name for entry in box.list_dir(".")] == ["data", "out.txt"]
    assert sorted(change.path for change in box.diff() if change.type == "file") == ["data/in.txt", "out.txt"]


def test_a_deleted_and_a_renamed_file_are_told_and_followed(box: Sandbox) -> None:
    box.write_file("a.txt", b"a")
    box.write_file("b.txt", b"b")
    result = box.run("rm a.txt; mv b.txt c.txt", "command")
    assert [(c.path, c.kind, c.renamed_from) for c in result.changes] == [
        ("a.txt", "deleted", None),
        ("c.txt", "renamed", "b.txt"),
    ]
    assert [entry.name for entry in box.list_dir()] == ["c.txt"]


@pytest.mark.slow
def test_a_run_that_is_stopped_leaves_no_file(box: Sandbox) -> None:
    result = box.run("open('half', 'w').write('x')\nwhile True: pass", timeout=1)
    assert result.status is Status.TIMEOUT
    assert any("not kept" in note for note in result.notes)
    assert box.list_dir() == ()


@pytest.mark.attack("F04", "host")
def test_a_link_planted_by_a_program_is_neither_followed_nor_kept(box: Sandbox) -> None:
    result = box.run("ln -s /etc/passwd result.csv; mkfifo pipe; echo ok > fine", "command")
    assert {change.path: change.type for change in result.changes}["result.csv"] == "symlink"
    assert [entry.name for entry in box.list_dir()] == ["fine"]
    assert any("result.csv" in note for note in result.notes)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ""])
def test_paths_outside_are_refused(box: Sandbox, path: str) -> None:
    with pytest.raises(PathTraversal):
        box.read_file(path)
    with pytest.raises(PathTraversal):
        box.write_file(path, b"x")


def test_map_is_ordered_bounded_and_tells_its_progress(box: Sandbox) -> None:
    seen: list[tuple[int, int]] = []
    results = box.map(
        "print(int(input()) ** 2)", ["1", "2", "3", "4"], progress=lambda *p: seen.append(p), max_workers=2
    )
    assert [result.stdout for result in results] == ["1\n", "4\n", "9\n", "16\n"]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with pytest.raises(InvalidRequest, match="max_workers"):
        box.map("1", [], max_workers=0)


@pytest.mark.slow
def test_a_hundred_runs_at_once_each_get_their_own_answer(box: Sandbox) -> None:
    async def crowd() -> list[ExecResult]:
        runs = (box.arun(f"print({n})", timeout=100) for n in range(100))
        return await asyncio.gather(*runs)

    assert [result.stdout for result in asyncio.run(crowd())] == [f"{n}\n" for n in range(100)]


def test_run_works_inside_a_running_event_loop(box: Sandbox) -> None:
    async def inside() -> str:
        return box.run("print('in a loop')").stdout

    assert asyncio.run(inside()) == "in a loop\n"


@pytest.mark.slow
def test_a_session_keeps_its_state_and_the_last_value_is_a_result(box: Sandbox) -> None:
    session = box.session("python")
    assert session.run("x = 41").ok
    assert session.run("x + 1").displays[0].data["text/plain"] == "42"
    assert session.run("while True: pass", timeout=1).rolled_back
    assert session.run("x").displays[0].data["text/plain"] == "41"
    box.destroy()
    assert not session.alive


def test_destroy_ends_everything(nothing_left: None) -> None:
    box = Sandbox(config=ProcessConfig(pool_size=0))
    box.write_file("a", b"a")
    box.destroy()
    box.destroy()
    acts: list[Callable[[], object]] = [
        lambda: box.run("1"), lambda: box.exec("true"), lambda: box.map("1", ["x"]), lambda: asyncio.run(box.arun("1")),
        lambda: box.read_file("a"), lambda: box.write_file("a", b""), box.list_dir, box.diff, lambda: box.files,
        lambda: box.fetch("http://a.test"),
        lambda: asyncio.run(box.afetch("http://a.test")), lambda: box.share_files(Sandbox()),
        box.report, box.session, lambda: box.load_session("a"),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(SandboxDestroyed):
            act()


def test_a_forgotten_sandbox_leaves_no_folder(nothing_left: None) -> None:
    box = Sandbox(config=ProcessConfig(pool_size=0))
    box.write_file("a", b"a")
    del box


def test_fetching_without_permission_is_refused_also_what_is_no_address(box: Sandbox) -> None:
    with pytest.raises(NetworkingDisabled, match="allow_domain"):
        box.fetch("https://example.org/")
    with pytest.raises(NetworkingDisabled, match="None cannot be fetched"):
        box.fetch(None)  # type: ignore[arg-type]


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="auto, process, wasm"):
        Sandbox(backend="docker")
    with Sandbox(config=ProcessConfig(pool_size=0)) as box, pytest.raises(InvalidRequest, match="docker"):
        box.run("1", backend="docker")


def test_wasm_goes_to_the_wasm_backend_by_itself(box: Sandbox) -> None:
    hello = (
        '(module (import "wasi_snapshot_preview1" "fd_write" (func $w (param i32 i32 i32 i32) (result i32)))'
        '(memory (export "memory") 1) (data (i32.const 8) "hi\\n")'
        '(func (export "_start") (i32.store (i32.const 0) (i32.const 8)) (i32.store (i32.const 4) (i32.const 3))'
        "(drop (call $w (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))))"
    )
    result = box.run(hello, "wasm", timeout=60)
    assert (result.stdout, result.backend, result.isolation) == ("hi\n", "wasm", "wasm")


def test_limits_reach_the_jail(box: Sandbox) -> None:
    assert box.run("import os; print(os.sysconf('SC_OPEN_MAX'))", limits=Limits(open_files=99)).stdout == "99\n"


@pytest.mark.attack("F16", "host")
def test_the_work_folder_of_the_host_is_never_on_the_hosts_import_path(box: Sandbox) -> None:
    box.run("open('json.py', 'w').write('raise SystemExit(\"pwned\")')")
    import json
    import sys

    assert json.dumps([1]) == "[1]"
    assert not any("sandbox-kernel-box" in entry for entry in sys.path)
    assert os.getcwd() not in ("", "/box")


HELLO_WAT = '(module (memory (export "memory") 1) (func (export "_start")))'


@pytest.mark.slow
def test_the_receipt_says_why_auto_took_a_backend() -> None:
    with Sandbox() as box:
        module, process = box.run(HELLO_WAT, "wasm"), box.run("print(1)")
        named = box.run("print(1)", backend="process")
        cell = box.session().run("1")
    assert (module.backend, process.backend) == ("wasm", "process")
    assert "'auto' took wasm" in module.chosen and "'auto' took process" in process.chosen
    assert "'auto' took wasm" in str(module._repr_mimebundle_()[0]["text/plain"])
    assert cell.chosen == process.chosen
    assert named.chosen == ""


@pytest.mark.parametrize("policy", ["standard", 5, {}, SandboxPolicy])
def test_what_is_no_policy_is_refused_with_the_ways_to_make_one(policy: Any) -> None:
    for make in (Sandbox, lambda given: ProcessBackend(policy=given)):
        with pytest.raises(
            InvalidRequest, match=r"policy must be a SandboxPolicy.*SandboxPolicy\.preset\('standard'\)"
        ):
            make(policy)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"env": []}, "env must be a mapping"),
        ({"files": []}, "files must be a mapping"),
        ({"files": "abc"}, "files must be a mapping"),
        ({"limits": 0}, "limits must be a Limits"),
        ({"limits": {"processes": 1}}, "limits must be a Limits"),
        ({"on_output": 5}, "on_output must be a function"),
        ({"python": 5}, "python must be an interpreter"),
        ({"python": "a\0b"}, "python must be an interpreter"),
    ],
)
def test_arguments_of_another_kind_are_typed_errors(box: Sandbox, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        box.run("print(1)", **wrong)
    with pytest.raises(InvalidRequest, match=told):
        asyncio.run(box.arun("print(1)", **wrong))


def test_an_interpreter_may_be_a_path_object_and_so_may_names_of_files(box: Sandbox) -> None:
    assert box.run("print(1)", python=Path(sys.executable)).stdout == "1\n"  # type: ignore[arg-type]
    box.write_file(Path("a/b.txt"), "text")
    assert box.read_file(Path("a/b.txt")) == b"text"
    assert [entry.name for entry in box.list_dir(Path("a"))] == ["b.txt"]
    with pytest.raises(PathTraversal):
        box.read_file(Path("../b.txt"))


def test_text_that_no_file_can_hold_is_refused(box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match=r"content of 'a.txt' holds a lone surrogate at position 1"):
        box.write_file("a.txt", "x\ud800")
    assert box.list_dir() == ()


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, float("nan"), "3"])
def test_a_map_with_no_such_number_of_workers_is_refused(box: Sandbox, workers: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_workers must be a whole number of at least 1"):
        box.map("print(1)", ["a"], "python", workers)


def test_a_map_checks_everything_before_anything_runs(box: Sandbox) -> None:
    for wrong, told in (
        ({"code": "", "inputs": []}, "code is empty"),
        ({"code": "1", "inputs": None}, "inputs must be a list"),
        ({"code": "1", "inputs": ["a"], "progress": 5}, "progress must be a function"),
    ):
        with pytest.raises(InvalidRequest, match=told):
            box.map(**wrong)  # type: ignore[arg-type]


def test_a_map_whose_progress_fails_does_not_run_the_rest(box: Sandbox, tmp_path: Path) -> None:
    started: list[str] = []

    def stopped(done: int, total: int) -> None:
        raise KeyboardInterrupt

    class Counting(ProcessBackend):
        def run(self, request: ExecRequest, context: RunContext) -> ExecResult:
            started.append(str(request.stdin))
            return super().run(request, context)

    box.backend = Counting(ProcessConfig(pool_size=0))
    with pytest.raises(KeyboardInterrupt):
        box.map(
            "import time\nif input() != '0': time.sleep(60)",
            [str(n) for n in range(50)],
            max_workers=2,
            progress=stopped,
        )
    assert len(started) <= 4


def test_a_destroyed_sandbox_can_neither_be_entered_nor_mapped(nothing_left: None) -> None:
    box = Sandbox()
    box.destroy()
    with pytest.raises(SandboxDestroyed):
        box.map("1", [])
    with pytest.raises(SandboxDestroyed):
        box.__enter__()


def test_a_stop_sign_of_threads_is_refused_because_the_loop_would_wait_for_it(box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match=r"cancel must be an asyncio\.Event"):
        asyncio.run(box.arun("print(1)", cancel=threading.Event()))  # type: ignore[arg-type]


def test_only_a_session_whose_state_can_be_copied_has_fork_and_save(box: Sandbox) -> None:
    with box.session("command") as session:
        assert not hasattr(session, "fork")
        assert not hasattr(session, "save")
    with pytest.raises(SessionError, match="is closed"):
        asyncio.run(session.arun("1"))
    with pytest.raises(InvalidRequest, match="saved to a path, got None"):
        box.load_session(None)


@pytest.mark.parametrize("backend", ["process", "wasm"])
def test_an_open_file_is_an_input_like_any_other(tmp_path: Path, backend: str) -> None:
    (tmp_path / "in").write_bytes(b"one\ntwo\n")
    with Sandbox() as box, (tmp_path / "in").open("rb") as file:
        assert box.run("sort -r", "command", stdin=file, backend=backend).stdout == "two\none\n"


@pytest.mark.parametrize("wrong", [5, object(), io.BytesIO(b"x")])
def test_an_input_that_cannot_be_read_is_refused(wrong: object) -> None:
    with Sandbox() as box, pytest.raises(InvalidRequest, match="stdin must be text, bytes or a file"):
        box.run("cat", "command", stdin=wrong)  # type: ignore[arg-type]


def test_a_run_in_webassembly_does_not_wait_for_a_terminal() -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "rb", buffering=0) as terminal, Sandbox() as box:
        assert box.run("cat; echo done", "command", stdin=terminal, backend="wasm").stdout == "done\n"
    os.close(ours)
