"""Escapes and failures that really happened to others, by their names, each tried here.

What the attack list tries already is named in ``ELSEWHERE``; the rest is tried below.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ExecRequest, Language, Limits, ProcessBackend, ProcessConfig, Sandbox, SandboxPolicy, Status
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest, SandboxError
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.net.fetch_policy import FetchPolicy
from tests.attacks.harness import SECRET, listeners, make_sentinels, running, sentinel_state, wait_for_fork
from tests.attacks.titles import LINES

#: Incidents whose regression is a line of the attack list, by its id.
ELSEWHERE = {
    "CVE-2017-5226, CVE-2019-10063 (bubblewrap, flatpak: TIOCSTI)": "S08",
    "CVE-2024-28185, CVE-2024-28189 (judge0: host writes through a planted link)": "F06",
    "sandlock#246, bwrap --clearenv, codex, srt, firejail (environment of the host in /proc)": "S01",
    "inspect_ai#1357, inspect_ai#2779 (timeouts that leave processes alive)": "K01",
    "smolagents#2050, llxprt#3449 (sandboxes that outlive their host)": "K08",
    "RUSTSEC-2026-0114 (wasmtime: memory and table growth)": "W04",
    "GHSA-852m-cvvp-9p4w, GHSA-243v-98vx-264h (wasmtime: absurd sizes in host calls)": "W11",
    "GHSA-xjhv-v822-pf94 (wasmtime: an engine that gives up ends its own process only)": "W08",
    "CVE-2024-29021 (judge0: requests to services of the host)": "N03",
    "cplt#240, greywall#55 (unix sockets past Landlock and read-only binds)": "N03",
    "claude-code#87381 (a CONNECT that is relayed by another)": "N10",
    "microsandbox#675 (DNS exfiltration)": "N09",
    "OpenShell#584, agent-code#482 (walls that are missing, in silence)": "O10",
}
needs_landlock = pytest.mark.skipif(landlock_abi() < 6, reason="needs a kernel whose Landlock keeps signals in (6.12)")
both_enforcers = pytest.mark.parametrize("enforcer", ["bubblewrap", pytest.param("landlock", marks=needs_landlock)])


@pytest.mark.parametrize("incident", ELSEWHERE)
def test_an_incident_that_is_tried_elsewhere_is_a_line_of_the_list(incident: str) -> None:
    assert ELSEWHERE[incident] in LINES


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


@pytest.fixture
def fresh() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        yield opened


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> WasmBackend:
    return WasmBackend(store=WasmStore(str(tmp_path_factory.mktemp("incidents") / "store")))


LANGUAGE_ESCAPES = {
    "CVE-2025-5120 (smolagents: an import through a module's module)": "import random; random._os.system('cat @')",
    "CVE-2025-9959, smolagents#2125, smolagents#2271 (dunders by way of str.format)": (
        "class A:\n  def f(self): pass\nimport os\nprint('{0.__globals__}'.format(A.f)[:200])\nprint(open('@').read())"
    ),
    "smolagents#2094 (ctypes)": "import ctypes; ctypes.CDLL(None).system(b'cat @')",
    "CVE-2023-37271 (RestrictedPython: the frame of a generator)": (
        "def g():\n  yield x.gi_frame.f_back.f_builtins['open']('@').read()\nx = g()\nprint(next(x))"
    ),
    "CVE-2023-41039 (RestrictedPython: string.Formatter)": (
        "import string\nprint(string.Formatter().get_field('a.__class__.__base__', (), {'a': 1}))\nprint(open('@').read())"
    ),
    "CVE-2025-22153 (RestrictedPython: try/except*)": (
        "try: raise ExceptionGroup('', [ValueError()])\n"
        "except* ValueError as e: print(e.__traceback__.tb_frame.f_builtins['open']('@').read())"
    ),
    "CVE-2024-47532 (RestrictedPython: AttributeError.obj)": (
        "import string\ntry: string.nothing\nexcept AttributeError as e: print(e.obj.__builtins__['open']('@').read())"
    ),
}


@pytest.mark.parametrize("incident", LANGUAGE_ESCAPES)
def test_an_escape_within_the_language_leads_nowhere(box: Sandbox, tmp_path: Path, incident: str) -> None:
    secret = make_sentinels(tmp_path) / "secret.txt"
    result = box.run(LANGUAGE_ESCAPES[incident].replace("@", str(secret)), timeout=20)
    assert "No such file" in result.stdout + result.stderr
    assert SECRET not in result.stdout + result.stderr


def test_cve_2025_68668_and_cve_2026_5752_the_realm_of_a_guest_in_wasm_is_not_the_hosts(box: Sandbox) -> None:
    code = (
        "const F = console.log.constructor.constructor;\n"
        "const all = F('return globalThis')();\n"
        "console.log(['process', 'require', 'Deno', 'document', 'fetch'].filter(n => typeof all[n] === 'function' "
        "|| (typeof all[n] === 'object' && all[n] && (all[n].mainModule || all[n].binding || all[n].env?.SBX_SENTINEL))));"
        "try { console.log(F('return process.binding(\"fs\")')()) } catch (e) { console.log('refused') }"
    )
    result = box.run(code, "javascript", backend="wasm", timeout=60)
    assert SECRET not in result.stdout + result.stderr
    assert "refused" in result.stdout, result


@pytest.mark.slow
def test_pydantic_ai_2332_python_in_wasm_has_no_module_of_the_hosts_realm(box: Sandbox) -> None:
    code = (
        "for name in ('js', 'pyodide', 'pyodide_js', '_pyodide', 'micropip'):\n"
        "  try: __import__(name); print('REACHED', name)\n"
        "  except ImportError: print('refused')"
    )
    assert box.run(code, backend="wasm", timeout=60).stdout == "refused\n" * 5


def linked(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that a policy may show, with a link to the secret and one to its folder; and the sentinels."""
    sentinels, shown = make_sentinels(tmp_path), tmp_path / "shown"
    shown.mkdir()
    (shown / "file").symlink_to(sentinels / "secret.txt")
    (shown / "folder").symlink_to(sentinels)
    os.chmod(shown, 0o777)
    return shown, sentinels


@both_enforcers
def test_deno_12152_and_2738_a_link_in_a_folder_that_is_shown_leads_nowhere(enforcer: str, tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    shown, sentinels = linked(tmp_path)
    before = sentinel_state(sentinels)
    backend = ProcessBackend(
        ProcessConfig(pool_size=0), enforcer, SandboxPolicy.preset("standard").allow_read_write(shown)
    )
    code = (
        f"for path, mode in (('file', 'r'), ('folder/secret.txt', 'r'), ('file', 'w'), ('folder/writable.txt', 'w')):\n"
        f"  try: print('REACHED', open({str(shown)!r} + '/' + path, mode).read())\n"
        f"  except OSError as e: print('refused')"
    )
    result = backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=20))
    assert result.stdout == "refused\n" * 4, result
    assert sentinel_state(sentinels) == before


@pytest.mark.slow
def test_wasmoon_294_a_link_in_a_mounted_folder_leads_nowhere_from_wasm(wasm: WasmBackend, tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    shown, sentinels = linked(tmp_path)
    before = sentinel_state(sentinels)
    mounted = WasmBackend(SandboxPolicy().mount(shown, "/shown", writable=True), store=wasm.store)
    for name in ("file", "folder/secret.txt", "folder/writable.txt"):
        for fd in (3, 4, 5, 6):
            program = wat(f"(call $proc_exit {opens(name, fd, rights=66)})", name)
            result = mounted.run(ExecRequest(language=Language.WASM, code=program, timeout=20))
            assert (result.status, result.exit_code == 0) == (Status.FAILED, False), (name, fd, result)
    assert sentinel_state(sentinels) == before


def test_cve_2024_28185_judge0_a_link_as_a_result_is_not_read_changed_or_owned_by_the_host(
    fresh: Sandbox, tmp_path: Path
) -> None:
    sentinels = make_sentinels(tmp_path)
    before = sentinel_state(sentinels)
    code = "import os\nos.symlink('@/secret.txt', 'stdout.txt'); os.symlink('@', 'folder'); os.link('stdout.txt', 'h')"
    result = fresh.run(code.replace("@", str(sentinels)), timeout=20)
    assert SECRET not in str(result.to_dict())
    for path in ("stdout.txt", "folder/secret.txt", "h"):
        with pytest.raises(SandboxError):
            fresh.read_file(path)
    fresh.write_file("folder/writable.txt", b"after")
    assert sentinel_state(sentinels) == before


def test_compiler_explorer_6026_a_program_file_that_became_a_link_is_not_kept_or_run(tmp_path: Path) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0, cache_dir=str(tmp_path / "cache")))
    code = '#include <stdio.h>\n#include <unistd.h>\nint main(){symlink("/etc/passwd", "out.s"); puts("ran");}'
    first, second = (backend.run(ExecRequest(language=Language.C, code=code, timeout=60)) for _ in range(2))
    assert (first.stdout, second.stdout) == ("ran\n", "ran\n")
    for kept in (tmp_path / "cache").rglob("*"):
        assert not kept.is_symlink()
        assert b"root:" not in (kept.read_bytes() if kept.is_file() else b"")


WASI = '(import "wasi_snapshot_preview1" "{0}" (func ${0} (param {1}) {2}))'
CALLS = " ".join(
    WASI.format(name, parameters, "" if name == "proc_exit" else "(result i32)")
    for name, parameters in {
        "path_open": "i32 i32 i32 i32 i32 i64 i64 i32 i32",
        "path_symlink": "i32 i32 i32 i32 i32",
        "fd_renumber": "i32 i32",
        "proc_exit": "i32",
    }.items()
)


def wat(body: str, text: str = "") -> str:
    return (
        f'(module {CALLS} (memory (export "memory") 1) (data (i32.const 64) "{text}") (func (export "_start") {body}))'
    )


def opens(name: str, fd: int = 3, flags: int = 0, rights: int = 2) -> str:
    return (
        f"(call $path_open (i32.const {fd}) (i32.const 1) (i32.const 64) (i32.const {len(name)}) (i32.const {flags}) "
        f"(i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 8))"
    )


@pytest.mark.parametrize("name", ["../etc/passwd", "a/../../etc/", "../", "/etc/passwd/", "..//..//"])
def test_rustsec_2026_0269_wasmtime_no_slash_leads_out_of_a_folder(wasm: WasmBackend, name: str) -> None:
    program = wat(f"(call $proc_exit {opens(name)})", name)
    result = wasm.run(ExecRequest(language=Language.WASM, code=program, timeout=20, files={"a/b": ""}))
    assert (result.status, result.exit_code == 0) == (Status.FAILED, False), result


@pytest.mark.slow
def test_ghsa_2r75_wasmtime_a_read_only_file_is_not_truncated(wasm: WasmBackend, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    mounted = WasmBackend(SandboxPolicy().mount(tmp_path, "/ro"), store=wasm.store)
    for fd in (3, 4, 5, 6):
        program = wat(f"(call $proc_exit {opens('f', fd, flags=8, rights=66)})", "f")
        mounted.run(ExecRequest(language=Language.WASM, code=program, timeout=20))
    assert (tmp_path / "f").read_text() == "content"


def test_rustsec_2025_0046_wasmtime_renumbering_descriptors_ends_nobody_but_the_guest(wasm: WasmBackend) -> None:
    body = (
        "(drop (call $fd_renumber (i32.const 3) (i32.const 3))) (drop (call $fd_renumber (i32.const 3) (i32.const -1)))"
    )
    result = wasm.run(ExecRequest(language=Language.WASM, code=wat(body), timeout=20))
    assert result.signal is None
    assert wasm.run(ExecRequest(language=Language.WASM, code=wat(""), timeout=20)).ok


def test_wazero_2321_a_link_made_inside_wasm_leads_nowhere(wasm: WasmBackend) -> None:
    link = "(drop (call $path_symlink (i32.const 66) (i32.const 11) (i32.const 3) (i32.const 64) (i32.const 1)))"
    result = wasm.run(
        ExecRequest(
            language=Language.WASM, code=wat(f"{link} (call $proc_exit {opens('l')})", "l /etc/passwd"), timeout=20
        )
    )
    assert (result.status, result.exit_code == 0) == (Status.FAILED, False), result


def test_cve_2025_66479_sandbox_runtime_an_empty_list_of_domains_is_closed() -> None:
    nothing = FetchPolicy.from_sandbox_policy(SandboxPolicy())
    assert [nothing.check_url(url).allowed for url in ("https://example.org", "https://8.8.8.8", "http://[::1]")] == [
        False, False, False,
    ]  # fmt: skip
    assert ProcessBackend(policy=SandboxPolicy()).egress().__enter__() is None


def test_microsandbox_1361_a_domain_opens_no_address() -> None:
    one = FetchPolicy.from_sandbox_policy(SandboxPolicy().allow_domain("example.org"))
    assert one.check_url("https://example.org/").allowed
    for url in ("https://93.184.216.34/", "https://1.1.1.1/", "https://example.org.evil.test/", "https://0x5db8d822/"):
        assert not one.check_url(url).allowed, url


@both_enforcers
def test_landrun_43_and_docker_sock_a_socket_in_a_folder_that_may_be_read_cannot_be_spoken_to(enforcer: str) -> None:
    code = (
        "import os, socket\n"
        "tries = [lambda k=k, p=p: socket.socket(socket.AF_UNIX, k).connect(p) for k in (1, 2, 5) for p in PATHS]\n"
        "tries += [lambda p=p: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', p) for p in PATHS]\n"
        "for t in tries:\n"
        "  try: t(); print('REACHED')\n"
        "  except OSError as e: print(e)\n"
        "a, b = socket.socketpair(); a.send(b'x'); print('pair', b.recv(1))"
    )
    with listeners() as doors:
        paths = f"PATHS = {[doors.pathname, doors.datagram]}\n"
        policy = SandboxPolicy.preset("standard").allow_read(str(Path(doors.pathname).parent))
        backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer, policy)
        result = backend.run(ExecRequest(language=Language.PYTHON, code=paths + code, timeout=20))
        assert doors.seen == []
    assert "REACHED" not in result.stdout
    assert "pair b'x'" in result.stdout, result


@both_enforcers
def test_landrun_43_a_datagram_reaches_no_socket_of_the_host_by_its_path(enforcer: str) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer)
    code = "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\na.sendto(b'x', '@')"
    with listeners() as doors:
        result = backend.run(ExecRequest(language=Language.PYTHON, code=code.replace("@", doors.datagram), timeout=20))
        assert doors.seen == []
    assert result.status is Status.FAILED


def test_monty_112_and_phoenix_14784_a_stack_that_overflows_is_the_programs_own(box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="bracket"):
        box.run("(" * 100_000, timeout=20)
    code = "import sys\nsys.setrecursionlimit(10**9)\nf = lambda x: sorted([x], key=f)\nf(1)"
    result = box.run(code, timeout=60, memory_mb=512)
    assert result.status in (Status.FAILED, Status.KILLED, Status.MEMORY_EXCEEDED)
    assert box.run("print('alive')", timeout=20).stdout == "alive\n"


def test_hack_monty_modules_that_a_guest_wrote_are_never_imported_by_the_host(fresh: Sandbox) -> None:
    names = ("json", "dataclasses", "sitecustomize", "conftest", "_distutils_hack")
    code = (
        f"for n in {names}: open(n + '.py', 'w').write('raise SystemExit(7)')\nopen('x.pth', 'w').write('import json')"
    )
    assert fresh.run(code, timeout=20).ok
    assert [entry for entry in (*sys.path, os.getcwd()) if Path(entry, "json.py").is_file()] == []
    assert fresh.read_file("json.py") == b"raise SystemExit(7)"


def test_srt_582_a_refusal_is_told_to_the_caller_and_not_only_to_the_program() -> None:
    policy = SandboxPolicy.preset("standard").allow_domain("example.org")
    code = (
        "import urllib.request\ntry: urllib.request.urlopen('http://169.254.169.254/latest', timeout=10)\n"
        "except OSError as e: print('refused', e)"
    )
    result = ProcessBackend(ProcessConfig(pool_size=0), "bubblewrap", policy).run(
        ExecRequest(language=Language.PYTHON, code=code, timeout=30)
    )
    assert "refused" in result.stdout
    assert len(result.violations) == 1


def test_openshell_584_an_enforcer_that_does_not_exist_is_never_replaced_by_none() -> None:
    with pytest.raises((EnforcerUnavailable, SandboxError)):
        ProcessBackend(enforcer="seatbelt" if sys.platform == "linux" else "landlock")


@both_enforcers
@pytest.mark.one_case
def test_inspect_ai_2779_after_a_timeout_a_process_that_hid_is_gone(enforcer: str) -> None:
    code = (
        "import os, time\nfor _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n"
        "    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '47.11'])\n    os._exit(0)\ntime.sleep(60)"
    )
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer)
    mark = f"incident-{os.getpid()}-{enforcer}"
    request = ExecRequest(
        language=Language.PYTHON, code=code, timeout=0.5, limits=Limits(processes=20), env={"SBX_ATTACK": mark}
    )
    assert backend.run(request).status is Status.TIMEOUT
    assert running(mark, host=0) == []


def test_landrun_43_a_jail_that_a_template_forked_refuses_unix_sockets_beside_host_files_too(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o755)
    backend = ProcessBackend(
        ProcessConfig(pool_size=1), "bubblewrap", SandboxPolicy.preset("standard").allow_read(tmp_path)
    )
    request = ExecRequest(language=Language.PYTHON, code="import socket\nsocket.socket(socket.AF_UNIX)", timeout=20)
    wait_for_fork(backend, request)
    result = backend.run(request)
    assert "Address family not supported" in result.stderr, result
