import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

Wat = Callable[..., str]

HELLO = """
  (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 6))
  (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
"""
HELLO_DATA = r'(data (i32.const 16) "hello\n")'
SPIN = "(loop $again (br $again))"


def test_names_in_a_trap_cannot_drive_a_terminal(wasm) -> None:
    done = wasm.run('(module (func $"\\1b]0;owned\\07" (export "_start") unreachable))')
    assert b"\x1b" not in done.stderr and b"\x07" not in done.stderr
    assert b"owned" in done.stderr


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("(drop (i32.load (i32.const -4)))", "out of bounds memory access"),
        ("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "integer divide by zero"),
        ("(call $main)", "call stack exhausted"),
    ],
)
@pytest.mark.one_case
def test_each_trap_is_a_report_and_not_a_crash(wasm, wat: Wat, body: str, reason: str) -> None:
    done = wasm.run(wat(body))
    assert (done.end, done.message.splitlines()[0]) == ("trap", f"wasm trap: {reason}")


def test_huge_frames_exhaust_the_guests_stack_and_not_the_hosts(wasm) -> None:
    locals_ = "(local " + "i64 " * 5000 + ")"
    uses = "".join(f"(local.set {i} (i64.add (local.get {i}) (local.get {i + 1})))" for i in range(1, 4999))
    body = f"(func $deep (param i64) {locals_} {uses} (call $deep (i64.add (local.get 0) (local.get 7))) {uses})"
    done = wasm.run(f'(module {body} (func (export "_start") (call $deep (i64.const 1))))')
    assert (done.end, done.message.splitlines()[0]) == ("trap", "wasm trap: call stack exhausted")


def test_a_start_function_runs_before_the_entry_and_may_call_wasi(wasm, wat: Wat) -> None:
    body = "(i32.store8 (i32.const 16) (i32.const 72))"
    start = f"(func $first {HELLO}) (start $first)"
    done = wasm.run(wat(body + HELLO, "fd_write", extra=HELLO_DATA + start))
    assert done.stdout == b"hello\nHello\n"


@pytest.mark.slow
def test_an_exit_in_the_start_function_is_an_exit(wasm) -> None:
    module = """(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (func $s (call $exit (i32.const 7))) (start $s) (func (export "_start") unreachable))"""
    assert wasm.run(module).code == 7


MIB = 1 << 20
GROW = "(drop (memory.grow (i32.const 256)))"


OWN_MAXIMUM = "(if (i32.eq (memory.grow (i32.const 8)) (i32.const -1)) (then unreachable))"


@pytest.mark.parametrize(
    ("body", "module", "memory_bytes", "end", "refused"),
    [
        (GROW, {}, 64 * MIB, "exit", 0),
        (OWN_MAXIMUM, {"memory": "1 4"}, MIB, "trap", 0),
        ("", {"extra": f"(func $s {GROW}) (start $s)"}, MIB, "exit", 1),
    ],
    ids=["within the limit", "the module's own maximum", "in a start function"],
)
def test_only_a_growth_that_the_limit_refuses_is_counted(
    wasm, wat: Wat, body: str, module: dict[str, str], memory_bytes: int, end: str, refused: int
) -> None:
    done = wasm.run(wat(body, **module), memory_bytes=memory_bytes)
    assert (done.end, done.refused) == (end, refused)


@pytest.mark.slow
def test_a_program_that_fails_after_a_refused_growth_ran_out_of_memory(wasm, wat: Wat) -> None:
    check = "(if (i32.eq (memory.grow (i32.const 256)) (i32.const -1)) (then unreachable))"
    assert wasm.run(wat(check), memory_bytes=MIB).end == "memory"
    leave = "(if (i32.eq (memory.grow (i32.const 256)) (i32.const -1)) (then (call $proc_exit (i32.const 1))))"
    assert wasm.run(wat(leave, "proc_exit"), memory_bytes=MIB).end == "memory"


def test_a_program_that_does_nothing_but_ask_for_memory_is_stopped_for_it(wasm, wat: Wat) -> None:
    done = wasm.run(wat("(loop $again (drop (memory.grow (i32.const 1024))) (br $again))"))
    assert done.end == "memory"
    assert done.refused > 1000


def test_table_growth_stops_at_its_limit(wasm) -> None:
    module = """(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (table $t 1 funcref)
      (func (export "_start")
        (if (i32.eq (table.grow $t (ref.null func) (i32.const 10000000)) (i32.const -1))
          (then (call $exit (i32.const 5))))))"""
    assert wasm.run(module).code == 5


OPEN = """(i32.const {fd}) (i32.const 0) (i32.const {at}) (i32.const {size}) (i32.const {flags})
  (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 8)"""
READ_RIGHT, WRITE_RIGHT = 2, 64


def open_path(path: str, *, fd: int = 3, flags: int = 0, rights: int = READ_RIGHT) -> tuple[str, str]:
    size = len(path.encode())
    data = "".join(f"\\{byte:02x}" for byte in path.encode())
    call = f"(call $path_open {OPEN.format(fd=fd, at=1024, size=size, flags=flags, rights=rights)})"
    return call, f'(data (i32.const 1024) "{data}")'


def errno_of(wasm, wat: Wat, call: str, data: str, *imports: str, **plan: object) -> int:
    done = wasm.run(wat(f"(call $proc_exit {call})", "proc_exit", *imports, extra=data), **plan)
    assert done.end == "exit", done
    return done.code


def folders(tmp_path: Path) -> list[dict[str, object]]:
    (tmp_path / "ro").mkdir()
    (tmp_path / "ro" / "a.txt").write_text("secret")
    (tmp_path / "rw").mkdir()
    (tmp_path / "rw" / "a.txt").write_text("own")
    (tmp_path / "outside.txt").write_text("host")
    return [
        {"host": str(tmp_path / "ro"), "guest": "/ro", "writable": False},
        {"host": str(tmp_path / "rw"), "guest": "/rw", "writable": True},
    ]


@pytest.mark.slow
def test_read_only_folders_can_be_read_and_not_written(wasm, wat: Wat, tmp_path: Path) -> None:
    plan = {"preopens": folders(tmp_path)}
    assert errno_of(wasm, wat, *open_path("a.txt"), "path_open", **plan) == 0
    for flags, rights in ((0, WRITE_RIGHT), (1, WRITE_RIGHT), (8, WRITE_RIGHT), (8, READ_RIGHT)):
        assert errno_of(wasm, wat, *open_path("a.txt", flags=flags, rights=rights), "path_open", **plan) != 0
    assert errno_of(wasm, wat, *open_path("b.txt", flags=1, rights=WRITE_RIGHT), "path_open", **plan) != 0
    assert errno_of(wasm, wat, *open_path("b.txt", fd=4, flags=1, rights=WRITE_RIGHT), "path_open", **plan) == 0
    assert (tmp_path / "ro" / "a.txt").read_text() == "secret"
    assert not (tmp_path / "ro" / "b.txt").exists()
    assert (tmp_path / "rw" / "b.txt").exists()


@pytest.mark.parametrize(
    "path",
    ["../outside.txt", "/etc/passwd", "x/../../outside.txt", "..", "link/outside.txt", "link", "../outside.txt/"],
)
@pytest.mark.one_case
def test_no_path_leads_out_of_a_folder(wasm, wat: Wat, tmp_path: Path, path: str) -> None:
    plan = {"preopens": folders(tmp_path)}
    (tmp_path / "rw" / "link").symlink_to(tmp_path)
    assert errno_of(wasm, wat, *open_path(path, fd=4), "path_open", **plan) != 0


def test_a_folder_that_vanished_is_a_plain_failure(wasm, wat: Wat, tmp_path: Path) -> None:
    gone = [{"host": str(tmp_path / "gone"), "guest": "/data", "writable": False}]
    done = wasm.run(wat(""), preopens=gone)
    assert done.end == "trap"
    assert "/data" in done.message


def test_a_runner_that_is_killed_leaves_no_report(wasm, wat: Wat) -> None:
    compiled, module = wasm.compile(wat(SPIN))
    assert compiled.end == "compiled"
    process, status = wasm.start({"task": "run", "module": str(module)})
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with os.fdopen(status, "rb") as file:
        assert file.read() == b""
