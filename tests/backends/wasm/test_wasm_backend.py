import asyncio
import base64
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import wasmtime

from sandbox_kernel.backends.wasm.prepare import PrepareProgress
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import InvalidRequest, MemoryExceeded, PolicyViolation, SandboxTimeout
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.jail.walls import Walls
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, Language, Status
from sandbox_kernel.policy import SandboxPolicy

SPIN = "(loop $again (br $again))"
MIB = 1 << 20


@pytest.mark.slow
def test_a_module_prints_and_ends_well(run_wasm, wat, say) -> None:
    result = run_wasm(wat(say(6), "fd_write", data="hello\\n"))
    assert (result.stdout, result.stderr, result.exit_code, result.status) == ("hello\n", "", 0, Status.OK)
    assert (result.backend, result.isolation, result.language) == ("wasm", "wasm", "wasm")
    assert result.compile_duration is not None


@pytest.mark.slow
def test_the_engine_never_runs_in_this_process(run_wasm, wat, say) -> None:
    # The tests import wasmtime themselves, so a fresh interpreter is asked.
    program = (
        "import sys\n"
        "from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend\n"
        "from sandbox_kernel.backends.wasm.store import WasmStore\n"
        "from sandbox_kernel.model import ExecRequest\n"
        "backend = WasmBackend(store=WasmStore(sys.argv[1]))\n"
        "result = backend.run(ExecRequest(language='wasm', code=sys.argv[2], timeout=20))\n"
        "print(result.stdout, 'wasmtime' in sys.modules)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        code = wat(say(2), "fd_write", data="hi")
        done = subprocess.run(
            [sys.executable, "-c", program, f"{folder}/store", code], capture_output=True, text=True, timeout=60
        )
    assert done.stdout == "hi False\n", done.stderr


def test_text_bytes_and_base64_run_alike(run_wasm, wat, say) -> None:
    text = wat(say(6), "fd_write", data="hello\\n")
    data = bytes(wasmtime.wat2wasm(text))
    assert [run_wasm(form).stdout for form in (text, data, base64.b64encode(data).decode())] == ["hello\n"] * 3


@pytest.mark.parametrize("code", [1, 42, 125, 126, 200, 255, 70000, -1])
@pytest.mark.one_case
def test_a_nonzero_exit_is_a_failed_result_with_its_exact_code(run_wasm, wat, code: int) -> None:
    result = run_wasm(wat(f"(call $proc_exit (i32.const {code}))", "proc_exit"))
    assert (result.status, result.exit_code, result.signal) == (Status.FAILED, code, None)


@pytest.mark.slow
def test_an_endless_loop_is_a_timeout_and_keeps_its_output(run_wasm, wat, say, nothing_left: None) -> None:
    result = run_wasm(wat(say(6) + SPIN, "fd_write", data="so far"), timeout=3)
    assert (result.status, result.limit, result.stdout, result.exit_code) == (Status.TIMEOUT, "timeout", "so far", None)
    with pytest.raises(SandboxTimeout):
        result.raise_for_status()


SLEEP = """(i32.store (i32.const 16) (i32.const 1)) (i64.store (i32.const 24) (i64.const 0x7fffffffffffffff))
  (drop (call $poll_oneoff (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200)))"""


@pytest.mark.slow
def test_a_timeout_of_one_run_never_reaches_another(wasm_backend, wat, say) -> None:
    """Three at once: one ends at once, one is timed out, one is busy for longer than both."""
    busy = """(local $i i32) (loop $again (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $again (i32.ne (local.get $i) (i32.const 700000000))))"""

    def request(code: str, timeout: float) -> ExecRequest:
        return ExecRequest(language=Language.WASM, code=code, timeout=timeout)

    async def all_three() -> list[Status]:
        runs = [
            wasm_backend.execute(request(wat(say(2), "fd_write", data="ok"), 30)),
            wasm_backend.execute(request(wat(SPIN), 0.3)),
            wasm_backend.execute(request(wat(busy), 60)),
        ]
        return [result.status for result in await asyncio.gather(*runs)]

    assert asyncio.run(all_three()) == [Status.OK, Status.TIMEOUT, Status.OK]


def test_a_refused_growth_is_named_though_the_program_ends_well(run_wasm, wat) -> None:
    result = run_wasm(wat("(drop (memory.grow (i32.const 256)))"), memory_limit_mb=1)
    assert (result.status, result.limit, result.exit_code) == (Status.OK, "memory", 0)


@pytest.mark.parametrize("pages", [512, 65536])
@pytest.mark.one_case
def test_an_initial_memory_above_the_limit_is_memory_exceeded(run_wasm, wat, pages: int) -> None:
    result = run_wasm(wat("", memory=str(pages)), memory_limit_mb=1)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory")
    assert f"size of {pages} pages exceeds memory limits; give it more (--memory" in result.stderr
    with pytest.raises(MemoryExceeded):
        result.raise_for_status()


@pytest.mark.slow
def test_memory_that_is_really_touched_is_counted_up_to_the_limit(run_wasm, wat) -> None:
    fill = "(drop (memory.grow (i32.const 1500))) (memory.fill (i32.const 0) (i32.const 1) (i32.const 98000000))"
    result = run_wasm(wat(fill), memory_limit_mb=128)
    assert (result.status, result.peak_memory_bytes) == (Status.OK, 1501 * 65536)


@pytest.mark.slow
def test_a_trap_is_failed_named_on_stderr_with_its_functions_and_keeps_the_output(run_wasm, wat, say) -> None:
    inner = "(func $inner unreachable)"
    result = run_wasm(wat(say(6) + "(call $inner)", "fd_write", data="so far", extra=inner))
    assert (result.status, result.exit_code, result.limit, result.stdout) == (Status.FAILED, 134, None, "so far")
    assert result.stderr.splitlines() == [
        "wasm trap: wasm `unreachable` instruction executed",
        "  at inner",
        "  at main",
    ]


@pytest.mark.slow
def test_standard_input_is_read(run_wasm, wat) -> None:
    echo = """(block $done (loop $again
        (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 60000))
        (br_if $done (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br_if $done (i32.eqz (i32.load (i32.const 8))))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        (br $again)))"""
    program = wat(echo, "fd_read", "fd_write")
    assert run_wasm(program).stdout == ""
    assert run_wasm(program, stdin="grüße").stdout == "grüße"
    large = "x" * (5 * MIB)
    result = run_wasm(program, stdin=large, limits=Limits(output_bytes=8 * MIB))
    assert result.stdout == large
    assert run_wasm(wat(""), stdin=large).status is Status.OK  # nobody reads it


def test_arguments_and_environment_come_from_request_and_policy_alone(wasm_store, wat, monkeypatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "leak")
    body = """(drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
      (drop (call $args_get (i32.const 100) (i32.const 1000)))
      (drop (call $environ_sizes_get (i32.const 8) (i32.const 12)))
      (drop (call $environ_get (i32.const 200) (i32.const 2000)))
      (i32.store (i32.const 16) (i32.const 1000)) (i32.store (i32.const 20) (i32.load (i32.const 4)))
      (drop (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 32)))
      (i32.store (i32.const 16) (i32.const 2000)) (i32.store (i32.const 20) (i32.load (i32.const 12)))
      (drop (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 32)))"""
    program = wat(body, "args_sizes_get", "args_get", "environ_sizes_get", "environ_get", "fd_write")
    backend = WasmBackend(SandboxPolicy().with_env("A", "policy").with_env("B", "policy"), store=wasm_store)
    result = backend.run(
        ExecRequest(language=Language.WASM, code=program, timeout=20, args=["one two", "ü"], env={"B": "request"})
    )
    assert result.stdout == "cell.wasm\0one two\0ü\0A=policy\0B=request\0"


def test_output_arrives_while_the_program_runs(wasm_backend, wat, say) -> None:
    seen: list[tuple[str, str]] = []
    cancel = asyncio.Event()

    def on_output(stream: str, text: str) -> None:
        seen.append((stream, text))
        cancel.set()

    async def go() -> Status:
        code = wat(say(5) + SPIN, "fd_write", data="first")
        request = ExecRequest(language=Language.WASM, code=code, timeout=60)
        return (await wasm_backend.execute(request, on_output=on_output, cancel=cancel)).status

    assert asyncio.run(go()) is Status.INTERRUPTED
    assert seen == [("stdout", "first")]


def test_a_sleeping_guest_can_be_interrupted(wasm_backend, wat, say) -> None:
    cancel = asyncio.Event()

    async def go() -> Status:
        body = say(2) + "(memory.fill (i32.const 0) (i32.const 0) (i32.const 64))" + SLEEP
        request = ExecRequest(language=Language.WASM, code=wat(body, "fd_write", "poll_oneoff", data="go"), timeout=60)
        return (await wasm_backend.execute(request, on_output=lambda *_: cancel.set(), cancel=cancel)).status

    assert asyncio.run(go()) is Status.INTERRUPTED


@pytest.mark.slow
def test_fuel_is_exact_repeatable_and_never_called_a_timeout(run_wasm, wat, say) -> None:
    hello = wat(say(6), "fd_write", data="hello\\n")
    used = {run_wasm(hello, limits=Limits(fuel=fuel)).fuel_used for fuel in (10_000, 20_000)}
    assert len(used) == 1 and None not in used
    assert run_wasm(hello).fuel_used is None
    result = run_wasm(wat(say(6) + SPIN, "fd_write", data="so far"), limits=Limits(fuel=100_000))
    assert (result.status, result.limit, result.fuel_used) == (Status.FUEL_EXHAUSTED, "fuel", 100_000)
    assert result.stdout == "so far"
    assert "all fuel consumed" in result.stderr


OPEN = """(call $path_open (i32.const {fd}) (i32.const 0) (i32.const 16) (i32.const {size}) (i32.const {flags})
  (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 8))"""


def opened(path: str, *, fd: int = 3, write: bool = False) -> tuple[str, str]:
    flags, rights = (1, 64) if write else (0, 2)
    text = OPEN.format(fd=fd, size=len(path), flags=flags, rights=rights)
    return f"(call $proc_exit {text})", path


@pytest.mark.slow
def test_files_of_the_request_are_there_and_changes_stay_in_the_box(run_wasm, wat) -> None:
    for fd in (3, 4):
        body, data = opened("data/a.txt", fd=fd)
        result = run_wasm(wat(body, "path_open", "proc_exit", data=data), files={"data/a.txt": "x"})
        assert (result.status, result.exit_code) == (Status.OK, 0)
    body, data = opened("made.txt", write=True)
    assert run_wasm(wat(body, "path_open", "proc_exit", data=data)).exit_code == 0
    assert not os.path.exists("made.txt")


@pytest.mark.parametrize("path", ["../etc/passwd", "/etc/passwd", "../cell/plan.json", "../guest/gate.py", "../proc/1"])
@pytest.mark.slow
def test_nothing_of_the_jail_around_the_engine_can_be_opened(run_wasm, wat, path: str) -> None:
    for fd in (3, 4):
        body, data = opened(path, fd=fd)
        assert run_wasm(wat(body, "path_open", "proc_exit", data=data)).exit_code != 0


def test_a_mount_that_vanished_and_one_of_a_file_are_errors_before_anything_runs(wasm_store, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "a.csv").write_text("")
    request = ExecRequest(language=Language.WASM, code='(module (func (export "_start")))', timeout=20)
    for name, words in (("data", "does not resolve"), ("a.csv", "mount the folder that holds it")):
        backend = WasmBackend(SandboxPolicy().mount(tmp_path / name, f"/{name}"), store=wasm_store)
        if name == "data":
            (tmp_path / "data").rmdir()
        with pytest.raises(PolicyViolation, match=words):
            backend.run(request)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("not wasm at all", "not WebAssembly"),
        ("(module\n(func (nonsense)))", "--> cell.wat:2:8"),
        (b"\0asm\x01\0\0\0\x01\x05", "announced.*build or download it again"),
        (b"\0asm\x0d\0\x01\0", "component"),
        (b"\x7fELF\x02\x01\x01\0", "native code"),
        ('(module (import "env" "missing" (func)) (func (export "_start")))', r"(?s)env::missing.*wasm32-wasip1"),
        ('(module (func (export "main")))', "no _start.*export the function to run as _start"),
        ('(module (memory i64 1) (func (export "_start")))', "switched off.*without threads, 64-bit memory"),
        ('(module (import "wasi_snapshot_preview1" "fd_write" (func)) (func (export "_start")))', "declare is given"),
    ],
)
@pytest.mark.one_case
def test_what_is_no_runnable_module_is_an_invalid_request_with_the_next_step(
    run_wasm, code: str | bytes, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        run_wasm(code)


def leb(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def module_of(*bodies: bytes) -> bytes:
    def section(number: int, content: bytes) -> bytes:
        return bytes([number]) + leb(len(content)) + content

    count = leb(len(bodies))
    code = count + b"".join(leb(len(body)) + body for body in bodies)
    exported = section(7, b"\x01\x06_start\0\0")
    types, functions = section(1, b"\x01\x60\0\0"), section(3, count + bytes(len(bodies)))
    return b"\0asm\x01\0\0\0" + types + functions + exported + section(10, code)


@pytest.mark.attack("W02", "wasm")
@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        ([b"\0\x0b"] * 300_000, "300000 functions"),
        ([b"\0" + b"\x02\x40" * 50_000 + b"\x0b" * 50_001], "nests more than"),
        ([b"\x01" + leb(50_001) + b"\x7f\x0b"], "local variables"),
        ([b"\0" + b"\x41\0\x0e" + leb(2_000_000) + b"\0" * 2_000_001 + b"\x0b"], "bytes of code"),
    ],
    ids=["functions", "nesting", "locals", "br_table"],
)
@pytest.mark.one_case
def test_bombs_for_the_compiler_are_refused_before_it_starts(run_wasm, bodies: list[bytes], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        run_wasm(module_of(*bodies))


@pytest.mark.attack("W02", "wasm")
@pytest.mark.slow
def test_a_bomb_within_the_caps_is_stopped_by_the_clock_of_the_request(run_wasm) -> None:
    loops = b"\0" + b"\x03\x40\x0b" * 100_000 + b"\x0b"
    result = run_wasm(module_of(*[loops] * 20), timeout=1)
    assert (result.status, result.limit) == (Status.TIMEOUT, "timeout")


@pytest.mark.attack("W02", "wasm")
def test_a_compilation_can_be_interrupted(wasm_backend) -> None:
    loops = b"\0" + b"\x03\x40\x0b" * 100_001 + b"\x0b"

    async def go() -> Status:
        cancel = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, cancel.set)
        request = ExecRequest(language=Language.WASM, code=module_of(*[loops] * 20), timeout=60)
        return (await wasm_backend.execute(request, cancel=cancel)).status

    assert asyncio.run(go()) is Status.INTERRUPTED


def test_other_languages_that_are_not_here_are_refused_with_the_way_out(wasm_backend) -> None:
    with pytest.raises(InvalidRequest, match="backend='process'"):
        wasm_backend.run(ExecRequest(language=Language.R, code="1", timeout=5))


FILL = """(drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 16) (i32.const 3) (i32.const 9)
    (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 8)))
  (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 65536))
  (loop $again (br_if $again (i32.eqz
    (call $fd_write (i32.load (i32.const 8)) (i32.const 0) (i32.const 1) (i32.const 12)))))"""


@pytest.mark.slow
def test_a_full_disk_is_met_by_the_guest_and_named(run_wasm, wat) -> None:
    result = run_wasm(wat(FILL, "path_open", "fd_write", memory="2", data="big"), limits=Limits(disk_mb=2))
    assert (result.status, result.limit) == (Status.OK, "disk")


@pytest.mark.slow
def test_folders_without_end_are_ended(run_wasm, wat) -> None:
    body = """(local $i i32) (loop $again
        (i32.store (i32.const 16) (i32.add (i32.const 0x41414141) (i32.and (local.get $i) (i32.const 0x0f0f0f0f))))
        (i32.store (i32.const 20) (i32.add (i32.const 0x41414141)
          (i32.and (i32.shr_u (local.get $i) (i32.const 4)) (i32.const 0x0f0f0f0f))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (drop (call $path_create_directory (i32.const 3) (i32.const 16) (i32.const 8)))
        (br $again))"""
    result = run_wasm(wat(body, "path_create_directory"), timeout=60)
    assert (result.status, result.limit) == (Status.KILLED, "disk")


@pytest.mark.slow
def test_processor_time_has_a_limit_of_its_own(run_wasm, wat) -> None:
    result = run_wasm(wat(SPIN), timeout=30, limits=Limits(cpu_seconds=0.5))
    assert (result.status, result.limit) == (Status.CPU_LIMIT, "cpu")


@pytest.mark.slow
def test_a_second_run_uses_the_compiled_module(run_wasm, wasm_backend, wat, monkeypatch) -> None:
    program = wat("(drop (i32.const 4711))")
    first = run_wasm(program)
    assert first.compile_duration and first.compile_duration > 0
    assert run_wasm(program).compile_duration == 0
    other = WasmBackend(store=wasm_backend.store)
    request = ExecRequest(language=Language.WASM, code=program, timeout=20)
    assert other.run(request).compile_duration == 0


def test_a_damaged_compiled_module_is_compiled_again(tmp_path: Path, wat, say) -> None:
    store = WasmStore(str(tmp_path / "store"))
    request = ExecRequest(language=Language.WASM, code=wat(say(2), "fd_write", data="ok"), timeout=20)
    WasmBackend(store=store).run(request)
    (target,) = (Path(store.folder) / "cells").iterdir()
    target.write_bytes(b"\x7fELF" + os.urandom(1000))
    again = WasmBackend(store=WasmStore(store.folder)).run(request)
    assert (again.stdout, again.status) == ("ok", Status.OK)
    assert again.compile_duration and again.compile_duration > 0


@pytest.mark.slow
def test_the_backend_has_its_name_its_class_and_its_capabilities(wasm_backend) -> None:
    found = wasm_backend.capabilities()
    assert (wasm_backend.name, wasm_backend.isolation_class, found.isolation_class) == ("wasm", "wasm", "wasm")
    assert Language.WASM in found.supported_languages
    assert {name for name, line in found.enforced_limits.items() if not line} == set()
    assert all(line.mechanism and line.evidence for _, line in found.enforced_limits.items())
    assert found.enforced_limits.filesystem_isolation


@pytest.mark.slow
def test_a_run_leaves_no_thread_and_no_timer_behind(run_wasm, wat) -> None:
    """Not even a thread that sleeps until the timeout of the run."""
    run_wasm(wat(""))
    assert wait_buried()
    before = threading.active_count()
    for _ in range(3):
        assert run_wasm(wat(""), timeout=300).ok
    assert wait_buried()
    assert threading.active_count() <= before


@pytest.mark.slow
def test_the_first_use_of_a_language_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[PrepareProgress] = []
    backend = WasmBackend(store=WasmStore(str(tmp_path / "store")), on_progress=told.append)
    result = backend.run(ExecRequest(language=Language.JAVASCRIPT, code="console.log(1)", timeout=1))
    assert (result.stdout, result.status) == ("1\n", Status.OK)  # its clock starts when the language is ready
    assert [one.fraction for one in told] == sorted(one.fraction for one in told)
    assert (told[0].text, told[-1].fraction) == ("fetching quickjs-wasi 3.6.2", 1.0)


@pytest.mark.slow
def test_a_waiting_jail_that_is_killed_as_it_is_handed_out_is_replaced(
    run_wasm, wasm_backend, wat, monkeypatch
) -> None:
    assert run_wasm(wat("")).ok
    take, killed = wasm_backend.pool.take, []

    def take_a_dead_one(walls: Walls) -> Jail:
        jail = take(walls)
        if not killed:
            killed.append(jail)
            jail.kill()
            jail.wait_dead()
        return jail

    monkeypatch.setattr(wasm_backend.pool, "take", take_a_dead_one)
    assert run_wasm(wat("")).ok
    assert killed


def test_an_entry_with_parameters_is_named(run_wasm) -> None:
    result = run_wasm('(module (func (export "_start") (param i32)))')
    assert (result.status, result.stderr) == (Status.FAILED, "_start takes 1 parameters; export one that takes none\n")


@pytest.mark.slow
def test_a_link_that_a_module_makes_is_followed_beneath_its_folder_only(run_wasm, wat) -> None:
    """Makes l -> TARGET in /, opens l; the exit code is the error number of the opening."""
    for target, answer in (("f", 0), ("../etc/passwd", 63)):
        body = f"""(drop (call $path_symlink (i32.const 16) (i32.const {len(target)})
            (i32.const 5) (i32.const 64) (i32.const 1)))
          (call $proc_exit (call $path_open (i32.const 5) (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 0)
            (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 128)))"""
        link = '(import "wasi_snapshot_preview1" "path_symlink" (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))'
        code = wat(body, "path_open", "proc_exit", data=target, extra='(data (i32.const 64) "l")')
        result = run_wasm(code.replace("(module ", f"(module {link} ", 1), files={"f": "x"})
        assert result.exit_code == answer, result.stderr
