"""The process backend by its contract: programs, streams, environment, limits, files, and what a result says."""

import asyncio
import contextlib
import json
import os
import pickle
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel import (
    BackendUnavailable,
    ExecRequest,
    ExecResult,
    ExecutionFailed,
    InvalidRequest,
    Language,
    Limits,
    MemoryExceeded,
    PolicyViolation,
    ProcessBackend,
    ProcessConfig,
    Sandbox,
    SandboxPolicy,
    SandboxTimeout,
    Status,
    validate_policy,
)
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.walls import Walls
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_left")
STANDARD = SandboxPolicy.preset("standard")
needs_landlock = pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock")


@pytest.fixture
def backend() -> ProcessBackend:
    return ProcessBackend(ProcessConfig(pool_size=0))


def python(code: str, **options: object) -> ExecRequest:
    return ExecRequest(language=Language.PYTHON, code=code, **{"timeout": 20, **options})  # type: ignore[arg-type]


def behind(enforcer: str | None, policy: SandboxPolicy) -> ProcessBackend:
    return ProcessBackend(ProcessConfig(pool_size=0), enforcer=enforcer, policy=policy)


@pytest.fixture(params=["bubblewrap", pytest.param("landlock", marks=needs_landlock)])
def enforcer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "seen").mkdir()
    (folder / "seen" / "a").write_text("a")
    (folder / "hidden").write_text("secret")
    for path in (folder, folder / "seen", folder.parent, folder.parent.parent):
        path.chmod(0o755)
    return folder


def command(code: str, **options: object) -> ExecRequest:
    return ExecRequest(language=Language.COMMAND, code=code, **{"timeout": 20, **options})  # type: ignore[arg-type]


# Programs, their environment, input and output.


def test_a_python_program_runs(backend: ProcessBackend) -> None:
    result = backend.run(python("print('hello')"))
    assert (result.stdout, result.stderr, result.exit_code, result.status) == ("hello\n", "", 0, Status.OK)
    assert (result.backend, result.isolation, result.language) == ("process", "process+sandbox", "python")


@pytest.mark.slow
def test_timeout_enforcement_keeps_the_output_so_far(backend: ProcessBackend) -> None:
    result = backend.run(command("echo before; sleep 60; echo after", timeout=3))
    assert (result.status, result.limit, result.stdout) == (Status.TIMEOUT, "timeout", "before\n")
    assert result.exit_code is None
    with pytest.raises(SandboxTimeout, match="timed out after 3s") as raised:
        result.raise_for_status()
    assert raised.value.result is result
    assert raised.value.code == "code.sandbox_timeout"


def test_a_program_sees_nothing_of_the_hosts_environment(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "leaked-value")
    result = backend.run(command("env", env={"MY_TEST_VAR": "visible"}))
    names = {line.split("=")[0] for line in result.stdout.splitlines()}
    assert "MY_TEST_VAR=visible" in result.stdout.splitlines()
    # PWD, SHLVL, OLDPWD and _ are bash's own.
    assert names - {"PWD", "SHLVL", "OLDPWD", "_"} == {"MY_TEST_VAR", "PATH", "HOME", "LANG"}
    assert "HOME=/box" in result.stdout
    result = backend.run(command("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; true"))
    assert "leaked-value" not in result.stdout


@settings(max_examples=4)
@given(
    env=st.dictionaries(
        st.from_regex(r"V[A-Z0-9_]{0,10}", fullmatch=True),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
        max_size=5,
    )
)
@pytest.mark.slow
def test_a_program_sees_only_the_variables_that_it_was_given(env: dict[str, str]) -> None:
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    result = ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy()).run(python(code, env=env))
    seen = json.loads(result.stdout)
    assert {name: value for name, value in seen.items() if name not in ("PATH", "HOME", "LANG")} == env


def test_nonzero_exit_code_is_a_result(backend: ProcessBackend) -> None:
    result = backend.run(command("exit 42"))
    assert (result.exit_code, result.status, result.signal) == (42, Status.FAILED, None)
    with pytest.raises(ExecutionFailed, match="exit code 42"):
        result.raise_for_status()


def test_wasm_returns_invalid_request_that_points_to_the_wasm_backend(backend: ProcessBackend) -> None:
    with pytest.raises(InvalidRequest, match="WasmBackend"):
        backend.run(ExecRequest(language=Language.WASM, code="(module)", timeout=1))


def test_the_backend_has_its_name_and_its_defaults() -> None:
    config = ProcessConfig()
    assert ProcessBackend.name == "process"
    assert (config.rustc_path, config.python_path, config.node_path) == ("rustc", "python3", "node")


def test_timeout_terminates_background_descendants(backend: ProcessBackend) -> None:
    result = backend.run(command("(sleep 30; touch /box/marker) & wait", timeout=0.5))
    assert result.status is Status.TIMEOUT
    assert result.changes == ()


def test_normal_exit_terminates_background_descendants_and_does_not_wait(backend: ProcessBackend) -> None:
    # A result that waited for it would be a timeout.
    result = backend.run(command("nohup setsid sleep 60 & echo done", timeout=20))
    assert (result.stdout, result.status) == ("done\n", Status.OK)


def test_large_stdin_does_not_deadlock_against_output(backend: ProcessBackend) -> None:
    code = "import sys\nsys.stdout.write('x' * 262144)\nsys.stdout.flush()\nprint(len(sys.stdin.buffer.read()))"
    result = backend.run(python(code, stdin=b"y" * 524288))
    assert result.stdout.endswith("524288\n")


def test_stdout_far_beyond_the_cap_is_capped_with_a_notice_and_the_program_ends_by_itself(
    backend: ProcessBackend,
) -> None:
    code = "import sys\nfor _ in range(64): sys.stdout.write('a' * (1 << 20))\nsys.stdout.write('END')\nsys.exit(7)"
    result = backend.run(python(code))
    assert (result.exit_code, result.stdout_truncated, result.limit) == (7, True, "output")
    assert result.stdout_bytes == (64 << 20) + 3
    head, notice, tail = result.stdout.split("\n")
    assert len(head) + len(tail) == 1 << 20
    assert "truncated" in notice
    assert tail.endswith("aEND")


def test_the_cap_is_per_stream(backend: ProcessBackend) -> None:
    code = "import sys\nsys.stderr.write('e' * 9000)\nsys.stdout.write('ok')"
    result = backend.run(python(code, limits=Limits(output_bytes=4096)))
    assert (result.stdout, result.stdout_truncated, result.stderr_truncated) == ("ok", False, True)


def test_environment_precedence_is_sandbox_then_policy_then_request() -> None:
    policy = SandboxPolicy.preset("standard").with_env("A", "policy").with_env("B", "policy").with_env("LANG", "C")
    backend = ProcessBackend(ProcessConfig(pool_size=0), policy=policy)
    result = backend.run(command("echo $A $B $LANG", env={"B": "request"}))
    assert result.stdout == "policy request C\n"


# Bytes at a cut, signals, the work folder, the policy's paths and capabilities.


@pytest.mark.attack("O03", "host")
def test_an_invalid_byte_costs_one_character_and_no_time(backend: ProcessBackend) -> None:
    code = "import os\nos.write(1, b'\\xff' + b'a' * 1000 + b'\\xe2\\x82'); os.write(1, b'\\xac')"
    assert backend.run(python(code)).stdout == "\ufffd" + "a" * 1000 + "€"


@pytest.mark.attack("O03", "host")
def test_a_character_at_the_cut_is_dropped_whole(backend: ProcessBackend) -> None:
    result = backend.run(python("print('é' * 10000, end='')", limits=Limits(output_bytes=1001)))
    assert "\ufffd" not in result.stdout


def test_memory_errors_carry_the_output_so_far(backend: ProcessBackend) -> None:
    code = "print('before', flush=True)\nb = [bytearray(b'x' * (16 << 20)) for _ in range(64)]"
    result = backend.run(python(code, memory_limit_mb=128))
    assert (result.status, result.stdout) == (Status.MEMORY_EXCEEDED, "before\n")
    with pytest.raises(MemoryExceeded, match="128 MB"):
        result.raise_for_status()


def test_a_self_sent_sigkill_is_not_memory_and_an_exit_code_137_is_not_a_signal(backend: ProcessBackend) -> None:
    killed = backend.run(python("import os; os.kill(os.getpid(), 9)"))
    assert (killed.status, killed.signal, killed.limit) == (Status.KILLED, 9, None)
    exited = backend.run(command("exit 137"))
    assert (exited.status, exited.signal, exited.exit_code) == (Status.FAILED, None, 137)


def test_the_work_folder_is_private_and_not_the_hosts(backend: ProcessBackend) -> None:
    result = backend.run(command("pwd; touch here; ls"))
    assert result.stdout == "/box\nhere\n"
    assert not os.path.exists("here")


def test_output_is_streamed_in_order_while_the_program_runs(backend: ProcessBackend) -> None:
    heard: list[tuple[str, str]] = []
    code = "import sys\nprint('out', flush=True)\nprint('err', file=sys.stderr, flush=True)\nprint(input())"

    async def converse() -> ExecResult:
        return await backend.execute(python(code, stdin="in\n"), on_output=lambda *said: heard.append(said))

    result = asyncio.run(converse())
    assert "".join(text for stream, text in heard if stream == "stdout") == result.stdout == "out\nin\n"
    assert "".join(text for stream, text in heard if stream == "stderr") == "err\n"
    assert heard[0] == ("stdout", heard[0][1])


def test_a_language_without_its_toolchain_says_so() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0, python_path="/nowhere/python9"))
    with pytest.raises(BackendUnavailable, match="/nowhere/python9"):
        backend.run(python("1"))


def test_an_allowed_symlink_is_there_as_written_and_as_resolved(data: Path, enforcer: str) -> None:
    (data / "link").symlink_to(data / "seen")
    code = f"print(open('{data}/link/a').read(), open('{data}/seen/a').read())"
    assert behind(enforcer, STANDARD.allow_read(data / "link")).run(python(code)).stdout == "a a\n"


def test_an_allowed_path_is_read_only_and_its_neighbours_are_not_there(data: Path, enforcer: str) -> None:
    code = f"ls {data}; cat {data}/hidden; echo x > {data}/seen/a; cat {data}/seen/a"
    result = behind(enforcer, STANDARD.allow_read(data / "seen")).run(command(code))
    listed, refused = ("seen\n", "Read-only file system") if enforcer == "bubblewrap" else ("", "Permission denied")
    assert result.stdout == f"{listed}a" and refused in result.stderr
    assert (data / "seen" / "a").read_text() == "a"


def test_a_read_write_path_is_written_on_the_host_and_belongs_to_the_caller(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("data")
    policy = SandboxPolicy.preset("standard").allow_read_write(folder)
    backend = ProcessBackend(ProcessConfig(pool_size=0), policy=policy)
    result = backend.run(command(f"echo written > {folder}/new; cat {folder}/new"))
    assert result.stdout == "written\n", result.stderr
    assert (folder / "new").read_text() == "written\n"
    assert (folder / "new").stat().st_uid == os.geteuid()


def test_a_mount_appears_at_its_guest_path(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "a.csv").write_text("1,2")
    policy = SandboxPolicy.preset("standard").mount(folder, "/data")
    backend = ProcessBackend(ProcessConfig(pool_size=0), policy=policy)
    assert backend.run(command("cat /data/a.csv")).stdout == "1,2"


def test_a_path_that_does_not_resolve_is_a_policy_violation_before_anything_runs() -> None:
    policy = SandboxPolicy.preset("standard").allow_read("/nowhere/at/all")
    with pytest.raises(PolicyViolation, match="/nowhere/at/all"):
        ProcessBackend(ProcessConfig(pool_size=0), policy=policy).run(python("1"))


@pytest.mark.parametrize("walls", ["bubblewrap", pytest.param("landlock", marks=needs_landlock), None])
def test_without_spawning_no_process_starts_but_threads_do(walls: str | None) -> None:
    code = (
        "import os, subprocess, threading\nt = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "for act in (os.fork, lambda: subprocess.run(['true']), lambda: os.posix_spawn('/bin/true', ['true'], {})):\n"
        "  try: act(); print('STARTED')\n  except OSError as error: print(error.strerror)"
    )
    lines = behind(walls, SandboxPolicy()).run(python(code)).stdout.splitlines()
    assert lines == ["thread", *["Operation not permitted"] * 3]


def test_inside_is_an_ordinary_user_with_no_capability_and_its_own_processes(backend: ProcessBackend) -> None:
    code = (
        "import os\nlines = open('/proc/self/status').read().splitlines()\n"
        "status = dict(l.split(':\\t') for l in lines if ':\\t' in l)\n"
        "print(os.getuid(), int(status['CapEff'], 16), int(status['CapBnd'], 16), status['NoNewPrivs'],"
        " status['Seccomp'], sorted(int(p) for p in os.listdir('/proc') if p.isdigit()) == [1, os.getpid()])"
    )
    assert backend.run(python(code)).stdout == "1000 0 0 1 2 True\n"


@pytest.mark.slow
def test_capabilities_are_measured_and_carry_evidence(backend: ProcessBackend) -> None:
    limits = backend.capabilities().enforced_limits
    for name, line in limits.items():
        assert line, (name, line)
        assert line.mechanism and line.evidence
    assert limits.filesystem_isolation
    validate_policy(SandboxPolicy(), backend.capabilities())


# The limits: each is exceeded once, and once stayed below.


@pytest.mark.parametrize(("megabytes", "status"), [(60, Status.OK), (68, Status.FAILED)])
@pytest.mark.one_case
def test_a_program_ends_at_its_disk_limit(backend: ProcessBackend, megabytes: int, status: Status) -> None:
    request = python(f"open('f', 'wb').write(bytes({megabytes} << 20))", limits=Limits(disk_mb=64))
    result = backend.run(request)
    assert (result.status, result.limit) == (status, None if status is Status.OK else "disk")


@pytest.mark.parametrize(("children", "limit"), [(14, None), (20, "processes")])
def test_a_program_is_refused_one_process_too_many(backend: ProcessBackend, children: int, limit: str | None) -> None:
    code = (
        "import os, time\ntry:\n"
        f"  for _ in range({children}):\n    if os.fork() == 0: time.sleep(30)\n"
        "except OSError: print('refused')"
    )
    result = backend.run(python(code, limits=Limits(processes=16)))
    assert (result.status, result.limit) == (Status.OK, limit)
    assert ("refused" in result.stdout) == (limit is not None)


@pytest.mark.parametrize(("files", "limit"), [(20, None), (40, "open_files")])
def test_a_program_is_refused_one_open_file_too_many(backend: ProcessBackend, files: int, limit: str | None) -> None:
    result = backend.run(python(f"import os\nk = [os.dup(0) for _ in range({files})]", limits=Limits(open_files=32)))
    assert result.limit == limit


@pytest.mark.parametrize(("children", "status"), [(1, Status.OK), (6, Status.MEMORY_EXCEEDED)])
@pytest.mark.one_case
def test_all_processes_of_a_program_together_end_at_the_memory_limit(
    backend: ProcessBackend, children: int, status: Status
) -> None:
    code = (
        f"import os, time\npids = []\nfor _ in range({children}):\n  pid = os.fork()\n"
        "  if pid == 0:\n    b = b'x' * (40 << 20); time.sleep(1.5); os._exit(0)\n  pids.append(pid)\n"
        "for p in pids: os.waitpid(p, 0)"
    )
    assert backend.run(python(code, memory_limit_mb=128)).status is status


def test_memory_below_what_the_runtime_needs_is_refused_with_the_number(backend: ProcessBackend) -> None:
    with pytest.raises(InvalidRequest, match="at least 32 MB"):
        backend.run(python("1", memory_limit_mb=8))


@pytest.mark.parametrize(("seconds", "status"), [(0.1, Status.OK), (30, Status.CPU_LIMIT)])
@pytest.mark.one_case
def test_cpu_limit_counts_children(backend: ProcessBackend, seconds: float, status: Status) -> None:
    code = (
        "import os, time\nend = time.process_time\n"
        f"if os.fork() == 0:\n  while time.process_time() < {seconds}: pass\n  os._exit(0)\nos.wait()"
    )
    assert backend.run(python(code, limits=Limits(cpu_seconds=1))).status is status


def test_the_result_carries_peak_memory_and_cpu(backend: ProcessBackend) -> None:
    result = backend.run(python("b = b'x' * (64 << 20)\nimport time\nwhile time.process_time() < 0.2: pass"))
    assert result.peak_memory_bytes is not None and result.peak_memory_bytes > 60 << 20
    assert result.cpu_seconds is not None and 0.15 < result.cpu_seconds < 5


# Cancelling, concurrency, and results as values.


def test_cancel_ends_the_run_with_interrupted_and_its_output(backend: ProcessBackend) -> None:
    async def cancelled() -> ExecResult:
        cancel = asyncio.Event()
        return await backend.execute(
            command("echo started; sleep 60", timeout=50), on_output=lambda *_: cancel.set(), cancel=cancel
        )

    result = asyncio.run(cancelled())
    assert (result.status, result.stdout) == (Status.INTERRUPTED, "started\n")


def test_cancelling_the_task_kills_the_program(backend: ProcessBackend) -> None:
    async def abandon() -> None:
        started = asyncio.Event()
        task = asyncio.ensure_future(
            backend.execute(command("echo on; sleep 60", timeout=50), on_output=lambda *_: started.set())
        )
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(abandon())


@pytest.mark.slow
def test_a_task_that_is_cancelled_twice_leaves_no_descriptor_behind(backend: ProcessBackend) -> None:
    async def cancelled() -> None:
        started = asyncio.Event()
        request = command("echo started; sleep 60", timeout=50)
        task = asyncio.ensure_future(backend.execute(request, on_output=lambda *_: started.set()))
        await started.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = _eventfds()
    for _ in range(5):
        asyncio.run(cancelled())
    # The threads of those runs go on for a moment after their callers left.
    deadline = time.monotonic() + 20
    while _eventfds() > before:
        assert time.monotonic() < deadline, "descriptors of cancelled runs are left"


def _eventfds() -> int:
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed while we look
            found += os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventfd]"
    return found


def test_a_failing_callback_ends_the_run_and_is_raised(backend: ProcessBackend) -> None:
    def fail(stream: str, text: str) -> None:
        raise RuntimeError("reader failed")

    with pytest.raises(RuntimeError, match="reader failed"):
        asyncio.run(backend.execute(command("echo x; sleep 60", timeout=50), on_output=fail))
    with pytest.raises(RuntimeError, match="reader failed"):
        backend.run(command("echo x; sleep 60", timeout=50), RunContext(on_output=fail))


def test_a_result_is_picklable_and_json_safe(backend: ProcessBackend) -> None:
    result = backend.run(python("print(1)"))
    assert pickle.loads(pickle.dumps(result)) == result
    assert json.loads(json.dumps(result.to_dict()))["stdout"] == "1\n"


# Python programs end as they do under ``python cell.py``.


@pytest.mark.parametrize(
    ("code", "exit_code", "stdout"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit('a message')", 1, ""),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n"),
        ("class A:\n  def __del__(self): print('gone')\na = A()", 0, "gone\n"),
        ("f = open('x', 'w'); f.write('kept'); g = open('x'); import os; os._exit(0)", 0, ""),
        (
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('joined'))).start()",
            0,
            "joined\n",
        ),
        ("print(__name__, __file__)", 0, "__main__ /cell/cell.py\n"),
        ("from __future__ import annotations\nprint(1)", 0, "1\n"),
        ("import sys\nsys.stdout.write('no newline')", 0, "no newline"),
    ],
)
@pytest.mark.one_case
def test_a_python_program_ends_as_usual(backend: ProcessBackend, code: str, exit_code: int, stdout: str) -> None:
    result = backend.run(python(code))
    assert (result.exit_code, result.stdout) == (exit_code, stdout), result.stderr


def test_a_file_that_a_module_holds_open_is_flushed_at_the_end(backend: ProcessBackend) -> None:
    code = (
        "import os, sys\nmodule = type(sys)('m'); sys.modules['m'] = module\nread, write = os.pipe()\n"
        "module.file = open(1, 'w', closefd=False); module.file.write('kept')"
    )
    assert backend.run(python(code)).stdout == "kept"


def test_multiprocessing_spawn_finds_the_program_again(backend: ProcessBackend) -> None:
    code = (
        "import multiprocessing as mp\ndef work(q): q.put(42)\n"
        "if __name__ == '__main__':\n  c = mp.get_context('spawn'); q = c.SimpleQueue()\n"
        "  p = c.Process(target=work, args=(q,)); p.start(); p.join(); print(q.get(), p.exitcode)"
    )
    result = backend.run(python(code))
    assert result.stdout == "42 0\n", result.stderr


@pytest.mark.slow
def test_python_variables_of_the_environment_take_effect(backend: ProcessBackend) -> None:
    assert backend.run(python("print(hash('a'))", env={"PYTHONHASHSEED": "0"})).stdout == (
        backend.run(python("print(hash('a'))", env={"PYTHONHASHSEED": "0"})).stdout
    )
    assert backend.run(python("import sys; print(sys.flags.optimize)", env={"PYTHONOPTIMIZE": "2"})).stdout == "2\n"


def test_the_streams_can_be_opened_by_their_names(backend: ProcessBackend) -> None:
    result = backend.run(command("cat /dev/stdin; echo out > /dev/stdout; echo err > /dev/stderr", stdin="in\n"))
    assert (result.stdout, result.stderr) == ("in\nout\n", "err\n")


def test_a_spare_that_dies_while_it_is_handed_out_costs_the_run_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the pool's look and the order: nothing has run, so another one does."""
    backend = ProcessBackend(ProcessConfig(pool_size=1))
    taken: list[Jail] = []
    take = backend._pool.take

    def dying(walls: Walls) -> Jail:
        jail = take(walls)
        taken.append(jail)
        if len(taken) == 1:
            os.kill(jail.init_pid, signal.SIGKILL)
            until(lambda: not jail.alive)
        return jail

    monkeypatch.setattr(backend._pool, "take", dying)
    assert backend.run(python("print('ran')")).stdout == "ran\n"
    assert len(taken) == 2


@pytest.mark.parametrize("name", ["gate", "steps", "lockdown", "python_once", "session", "wasm"])
@pytest.mark.one_case
def test_a_module_of_the_users_own_is_not_taken_for_one_of_ours(name: str) -> None:
    with Sandbox() as box:
        result = box.run(f"import {name}; print({name}.mine)", "python", files={f"{name}.py": "mine = 1"})
    assert (result.stdout, result.stderr) == ("1\n", "")
