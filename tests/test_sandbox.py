"""The facade: runs, files, sessions and errors as a user meets them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest

from sandbox_kernel import (
    ExecResult,
    InvalidRequest,
    Limits,
    NetworkingDisabled,
    PathTraversal,
    ProcessConfig,
    Sandbox,
    SandboxDestroyed,
    Status,
)


@pytest.fixture
def box(nothing_left: None) -> Iterator[Sandbox]:
    with Sandbox(config=ProcessConfig(pool_size=0)) as made:
        yield made


def test_the_readme_example(box: Sandbox) -> None:
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


def test_a_hundred_runs_at_once_each_get_their_own_answer(box: Sandbox) -> None:
    async def crowd() -> list[ExecResult]:
        runs = (box.arun(f"print({n})", timeout=100) for n in range(100))
        return await asyncio.gather(*runs)

    assert [result.stdout for result in asyncio.run(crowd())] == [f"{n}\n" for n in range(100)]


def test_run_works_inside_a_running_event_loop(box: Sandbox) -> None:
    async def inside() -> str:
        return box.run("print('in a loop')").stdout

    assert asyncio.run(inside()) == "in a loop\n"


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
        lambda: box.snapshot("a"), lambda: box.resume("a"), lambda: box.provision([]), lambda: box.fetch("http://a.test"),
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


def test_fetching_without_permission_is_refused(box: Sandbox) -> None:
    with pytest.raises(NetworkingDisabled, match="allow_domain"):
        box.fetch("https://example.org/")


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
